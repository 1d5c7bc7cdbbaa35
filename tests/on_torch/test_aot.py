"""Ahead-of-time compilation against the same function run eagerly, and the cache of compiled functions."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from proximo.errors import FilesError, UsageError
from proximo.on_torch.aot import compile_ahead, functional, unsupported_reason

needs_compiler = pytest.mark.skipif(unsupported_reason() is not None, reason=str(unsupported_reason()))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "proximo" / "aot"


def make_step(agent):
    """Make a small minibatch step: gather, masked loss, gradient, finiteness, and all tensors changed in place."""
    def gradient(image, target, valid):
        error = (agent(image.float() / 255).squeeze(-1) - target).square()
        loss = torch.where(valid, error, 0.0).sum() / valid.sum()
        grads = torch.autograd.grad(loss, list(agent.parameters()))
        return torch.cat([grad.reshape(-1) for grad in grads]), loss.detach()

    def step(weights, moment, count, ok, lr, index, image, target, valid):
        grad, loss = functional(agent, gradient)(weights, image[index], target[index], valid[index])
        good = ok & torch.isfinite(grad.norm())
        new = 0.9 * moment + grad
        moment.copy_(torch.where(good, new, moment))
        weights.copy_(torch.where(good, weights - lr * new / (count + 1), weights))
        count.add_(good)
        ok.copy_(good)
        return torch.stack([loss, grad.norm()]), weights[index] * index

    return step


def make_example(agent, rows=12):
    generator = torch.Generator().manual_seed(3)
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in agent.parameters()])
    return (weights, torch.zeros_like(weights), torch.tensor(0), torch.tensor(True), torch.tensor(0.1),
            torch.randperm(rows, generator=generator)[:5],
            torch.randint(256, (rows, 3), dtype=torch.uint8, generator=generator),
            torch.randn(rows, generator=generator), torch.rand(rows, generator=generator) > 0.3)


def make_net():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def double(x, y):
    return x + x, y * 2


def test_functional_gives_the_gradient_of_the_module():
    """Against backward() of the module itself. Afterwards the module has its own parameters again."""
    agent, x = make_net(), torch.randn(6, 3)
    before = list(agent.parameters())
    twin = copy.deepcopy(agent)
    twin(x).square().sum().backward()
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in agent.parameters()])
    grads = functional(agent, lambda x: torch.autograd.grad(agent(x).square().sum(), list(agent.parameters())))(
        weights, x)
    for grad, parameter in zip(grads, twin.parameters(), strict=True):
        torch.testing.assert_close(grad, parameter.grad)
    assert all(a is b for a, b in zip(before, agent.parameters(), strict=True))


@needs_compiler
def test_compiled_step_equals_eager_and_a_second_build(cache, capfd):
    """Three steps against eager ones up to rounding, and against a second build bit for bit. The second build is made
    because the file of the first was truncated. The fourth step is not finite and must not change the weights. The
    caller's own tensors change in place, among them 0-d, int64 and bool ones."""
    agent = make_net()
    step, example = make_step(agent), make_example(agent)
    before = [tensor.clone() for tensor in example]
    compiled = compile_ahead(step, example, "step")
    assert all(torch.equal(a, b) for a, b in zip(example, before, strict=True))
    assert capfd.readouterr() == ("", "proximo: compiling step (about 20 s; cached for later runs)\n")
    (file,) = cache.iterdir()
    half = file.read_bytes()[:-1000]
    file.unlink()  # the process has the whole file loaded: it must not be overwritten
    file.write_bytes(half)
    rebuilt = compile_ahead(step, example, "step")
    assert "compiling" in capfd.readouterr().err
    assert len(list(cache.iterdir())) == 1

    runs = [copy.deepcopy(example) for _ in range(3)]
    places = [tensor.data_ptr() for tensor in runs[1]]
    for turn in range(4):
        if turn == 3:
            for tensors in runs:
                tensors[7].fill_(torch.nan)
        eager, first, second = (call(*tensors) for call, tensors in zip((step, compiled, rebuilt), runs, strict=True))
        for a, b, c in zip((*eager, *runs[0]), (*first, *runs[1]), (*second, *runs[2]), strict=True):
            torch.testing.assert_close(a, b, equal_nan=True)
            assert a.dtype == b.dtype
            assert torch.equal(b.nan_to_num(), c.nan_to_num())
    assert [tensor.data_ptr() for tensor in runs[1]] == places
    assert runs[1][2] == 3 and not runs[1][3] and runs[1][0].isfinite().all()
    assert not torch.equal(runs[1][0], example[0])

    with pytest.raises(UsageError, match="was compiled for"):
        compile_ahead(step, example, "step")(*example[:-1], example[-1].float())


@needs_compiler
def test_a_second_process_finds_the_binary(cache):
    """A process without a message has compiled nothing. One tensor given for two arguments stays two arguments."""
    x = torch.arange(3.0)
    compile_ahead(double, (x, x), "double")
    code = ("import torch; from tests.on_torch.test_aot import double; from proximo.on_torch.aot import compile_ahead; "
            "x = torch.arange(3.0); torch.set_num_threads(1); print(compile_ahead(double, (x, x), 'double')(x, x + 1))")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[tensor([0., 2., 4.]), tensor([2., 4., 6.])]\n" and found.stderr == ""
    assert len(list(cache.iterdir())) == 1


def test_a_function_that_reads_a_value_is_one_sentence(cache):
    """A branch in Python on a tensor's value cannot be compiled. Nothing is left in the cache."""
    with pytest.raises(UsageError, match="torch cannot compile chooser .*Run without --compile"):
        compile_ahead(lambda x: (x if x.sum() > 0 else -x,), (torch.ones(3),), "chooser")
    assert not list(cache.iterdir())


def test_a_cache_that_cannot_be_made_is_one_sentence(tmp_path, monkeypatch):
    """A file is where the folder of the cache should be: the message names the environment variable to change."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(FilesError, match="XDG_CACHE_HOME"):
        compile_ahead(double, (torch.zeros(3),) * 2, "double")


def test_no_compiler_is_one_sentence():
    """unsupported_reason in a process that has no C++ compiler."""
    code = "from proximo.on_torch.aot import unsupported_reason; print(unsupported_reason())"
    env = {**os.environ, "CXX": "no-such-compiler"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert "C++ compiler" in run.stdout
