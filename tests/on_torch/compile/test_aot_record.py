"""The record that names a compiled function: equal for functions that compute the same, different for others."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from proximo.config import Config
from proximo.on_torch.assemble import assemble
from proximo.on_torch.compile.aot import functional
from proximo.on_torch.compile.aot_record import record_operations
from tests.support.spec import Spec

EXAMPLE = (torch.randn(3, 2), torch.randn(3, 2))


def gradient_of(function):
    """Return the gradient of a function with respect to its first argument."""
    def gradient(x, y):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x, y).sum(), [x])

    return gradient


def changed(x, y):
    y.add_(x)
    return (x + 1,)


def scaled(number):
    constant = torch.tensor([number, 3.0])
    return lambda x, y: (x * constant,)


CONSTANT = torch.arange(4.0)
HALVES = CONSTANT[:2], CONSTANT[2:]
FUNCTIONS = [lambda x, y: (x * HALVES[0],), lambda x, y: (x * HALVES[1],), lambda x, y: (x.add(y, alpha=2),),
             lambda x, y: (x.add(y, alpha=3),), lambda x, y: (x + y,), lambda x, y: (y + x,),
             lambda x, y: (x - y,), lambda x, y: (x + y, x), lambda x, y: (x + 1,), lambda x, y: (x + 2,),
             lambda x, y: (x.t(),), lambda x, y: (x[1],), lambda x, y: (x[2],), changed, scaled(1.0),
             scaled(2.0), lambda x, y: (x.double(),), lambda x, y: (torch.zeros(3),), lambda x, y: (torch.ones(3),),
             gradient_of(lambda x, y: x.tanh() * y), gradient_of(lambda x, y: y.tanh() * x),
             gradient_of(lambda x, y: x.exp() * y.exp()), gradient_of(lambda x, y: x.exp() * x.exp()),
             gradient_of(lambda x, y: x.exp() * x)]


def test_functions_that_compute_something_else_have_other_records():
    """Operators, their order, numbers, constants, views, what is changed in place, what is returned, gradients: all are
    equal for the arguments of the record, which are zeros, or differ only in which tensor is read."""
    records = [record_operations(function, EXAMPLE) for function in FUNCTIONS]
    assert None not in records
    assert len({*records}) == len(FUNCTIONS)
    assert records == [record_operations(function, EXAMPLE) for function in FUNCTIONS]
    assert record_operations(scaled(1.0), EXAMPLE) == records[FUNCTIONS.index(changed) + 1]


def test_layouts_have_other_records_and_numbers_have_not():
    """The values of the arguments are those of a first call. Only dtypes, shapes and strides decide what is compiled."""
    def add(x, y):
        return (x + y,)

    known = record_operations(add, EXAMPLE)
    assert record_operations(add, (torch.ones(3, 2), torch.full((3, 2), torch.nan))) == known
    for x in (torch.ones(3, 1), torch.ones(3, 2).double(), torch.ones(2, 3).t(), torch.ones(3, 2)[:, :0]):
        assert record_operations(add, (x, x)) not in (known, None)


def test_the_gradients_of_layers_differ_in_the_tensor_that_they_read():
    """Tensors that autograd saves are recognised: x1 * x1 and x1 * x2 have the same operators."""
    def of(first, second):
        def function(x, y):
            layers = [torch.tanh(x), torch.sigmoid(x), torch.tanh(y)]
            return layers[first] * layers[second]

        return record_operations(gradient_of(function), EXAMPLE)

    found = [of(first, second) for first in range(3) for second in range(3) if (first, second) != (2, 2)]
    assert None not in found and len({*found}) == 8


@pytest.mark.parametrize("function", [
    lambda x, y: (x + torch.rand(3, 2),), lambda x, y: (nn.functional.dropout(x, 0.5),), lambda x, y: (x if x.sum() > 0 else y,),
    lambda x, y: (x[x > 0],), lambda x, y: (torch.linalg.inv(x[:2]),), lambda x, y: (EXAMPLE[0].add_(x),), lambda x, y: 1 / 0,
    lambda x, y: (x + 1j,), lambda x, y: (y * x.tolist()[0][0],), lambda x, y: (y * float(x.numpy()[0, 0]),),
    lambda x, y: (y * float(np.asarray(x)[0, 0]),)],
    ids=["draws", "dropout", "branch", "shape", "zeros", "changes", "raises", "complex", "tolist", "numpy", "array"])
def test_what_has_no_record(function):
    """Draws, branches on numbers, shapes that depend on numbers, what fails for zeros or changes a constant."""
    constant, generator = EXAMPLE[0].clone(), torch.get_rng_state()
    assert record_operations(function, EXAMPLE) is None
    assert torch.equal(EXAMPLE[0], constant) and torch.equal(torch.get_rng_state(), generator)


CODE = """
import torch
from torch import nn
from proximo.on_torch.compile.aot import functional
from proximo.on_torch.compile.aot_record import record_operations
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
def function(x):
    return torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
print(record_operations(functional(net, function), (torch.zeros(30), torch.zeros(5, 3))))
"""


def test_another_process_finds_the_same_record():
    """Nothing in it depends on addresses or on the order of a set."""
    found = {subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(found) == 1 and "None" not in found


@pytest.mark.parametrize("fields", [{}, {"distribution": "squashed"}, {"distribution": "gsde"}, {"recurrent": "lstm"},
                                    {"recurrent": "gru"}], ids=str)
def test_acting_of_the_networks_is_recorded(fields):
    """Also recurrent layers: without a record, a start from the cache traces the function by torch's compiler."""
    agent = assemble(Spec((3,), np.dtype(np.float32), spaces.Box(-0.5, 2.0, (2,))), Config(hidden_sizes=(4,), **fields))
    state, first = agent.initial_state(5), torch.zeros(5, dtype=torch.bool)

    def act(obs, noise):
        acted = agent.act(obs, None, first, state, noise)
        return (acted.action, *acted.state)

    weights = torch.cat([parameter.detach().reshape(-1) for parameter in agent.parameters()])
    assert record_operations(functional(agent, act), (weights, torch.zeros(5, 3), agent.head.noise(torch.Generator(), 5)))
