"""The two frameworks behind one interface, so that one test covers both.

The Adapter classes of torch_adapter.py and jax_adapter.py have the same methods, from numpy arrays to numpy arrays.
Tuples, named tuples and dicts keep their structure. Floating point is float64 inside float64().
"""

from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import pytest

FRAMEWORKS = ("torch", "jax")


def load_framework(name):
    """Return the adapter of a framework; skip the test where it is not installed."""
    if name == "jax" and find_spec("jax") is None:
        pytest.skip("needs JAX")
    return import_module(f"tests.support.{name}_adapter").Adapter()


def map_tree(function, tree):
    """Apply a function to every leaf of nested tuples, named tuples and dicts."""
    if isinstance(tree, dict):
        return {name: map_tree(function, x) for name, x in tree.items()}
    if isinstance(tree, tuple):
        parts = [map_tree(function, x) for x in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree)


class AdamRecord(NamedTuple):
    """The state after one step of Adam; the first three are dicts of arrays by name."""

    weights: dict
    exp_avg: dict
    exp_avg_sq: dict
    norm: float  # of the gradient, before clipping
    step: int  # number of steps that were applied
    ok: bool  # every gradient so far was finite


class NumpyCalls:
    """Calls methods of an object of the framework with numpy arrays and returns numpy arrays.

    Args:
        framework: The adapter, which converts by to_array(tree) and to_numpy(tree).
        raw: The object of the framework.
    """

    def __init__(self, framework, raw):
        self.framework, self.raw = framework, raw

    def call(self, function, *args):
        return self.framework.to_numpy(function(*self.framework.to_array(args)))


class NumpyDistribution(NumpyCalls):
    """A distribution of numpy arrays."""

    def sample(self, noise):
        return self.call(self.raw.sample, noise)

    def logprob(self, action):
        return self.call(self.raw.logprob, action)

    def entropy(self):
        return self.call(self.raw.entropy)

    def mode(self):
        return self.call(self.raw.mode)


class NumpyHead(NumpyCalls):
    """A head that maps numpy features to a NumpyDistribution and draws its noise from a seed."""

    def __call__(self, features, mask=None):
        return NumpyDistribution(self.framework, self.raw(*self.framework.to_array((features, mask))))

    def noise(self, seed, *lead):
        return self.call(self.raw.noise, self.framework.make_key(seed), *lead)

    def learning_noise(self, seed, *lead):
        return self.call(self.raw.learning_noise, self.framework.make_key(seed), *lead)

    def perturbed(self, dist, noise):
        return NumpyDistribution(self.framework, self.raw.perturbed(dist.raw, *self.framework.to_array((noise,))))


class NumpyAgent(NumpyCalls):
    """An agent of numpy arrays; see proximo.protocols.Agent."""

    def __init__(self, framework, raw):
        super().__init__(framework, raw)
        self.head = NumpyHead(framework, raw.head)
        self.recurrent, self.evaluates_later = raw.recurrent, raw.evaluates_later

    def __call__(self, obs, mask, first, state):
        dist, value, state = self.raw(*self.framework.to_array((obs, mask, first, state)))
        return NumpyDistribution(self.framework, dist), *self.framework.to_numpy((value, state))

    def act(self, obs, mask, first, state, noise):
        return self.call(self.raw.act, obs, mask, first, state, noise)

    def value(self, obs, first, state):
        return self.call(self.raw.value, obs, first, state)

    def evaluate(self, obs, mask, action):
        return self.call(self.raw.evaluate, obs, mask, action)

    def initial_state(self, num_envs):
        return tuple(x.astype("float64") for x in self.call(self.raw.initial_state, num_envs))
