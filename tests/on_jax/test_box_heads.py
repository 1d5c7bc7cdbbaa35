"""Acting in numpy equals acting in the compiled function, for every distribution of continuous actions; distributions are trees."""

import jax
import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.on_jax.assemble import assemble
from proximo.on_jax.bounded import Beta, Bounds
from proximo.on_jax.parameters import initial_weights, make_bind, make_numpy_bind
from tests.support.spec import Spec

KINDS = {"gaussian": {"log_std_init": -0.5}, "beta": {"distribution": "beta"}, "gsde": {"distribution": "gsde"},
         "squashed": {"distribution": "squashed", "state_dependent_std": True, "layer_norm": True}}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("xp", [np, jax.numpy])
def test_the_mode_of_beta_is_a_number_where_both_parts_underflow(xp):
    """Otherwise every bit is that of a / (a + b); the type stays float32."""
    a, b = xp.asarray(np.random.default_rng(0).uniform(0, 10, (2, 1000, 1)), xp.float32)
    bounds = Bounds(xp.asarray([-1], xp.float32), xp.asarray([3], xp.float32))
    assert xp.array_equal(Beta(a, b, bounds).mode(), bounds.from_unit(a / (a + b)))
    middle = Beta(xp.zeros_like(a), xp.zeros_like(b), bounds).mode()
    assert (middle == 1).all() and middle.dtype == np.float32


@pytest.mark.parametrize("kind", KINDS)
def test_acting_in_numpy(kind):
    """Random weights, float32 throughout, and no array of JAX."""
    space = spaces.Box(np.float32([-0.5, 10]), np.float32([2, 11]))
    agent = assemble(Spec((3,), np.dtype(np.float32), space), Config(hidden_sizes=(8,), **KINDS[kind]))
    rng = np.random.default_rng(1)
    weights = {name: x + rng.normal(0, 0.5, x.shape).astype(np.float32)
               for name, x in initial_weights(agent, rng).items()}
    obs, noise = rng.normal(size=(7, 3)).astype(np.float32), np.asarray(agent.head.noise(jax.random.key(0), 7))
    found = make_numpy_bind(agent)(weights).act(obs, None, np.zeros(7, bool), (), noise).action
    assert isinstance(found, np.ndarray) and found.dtype == np.float32 and len(np.unique(found)) == 14
    arrays = jax.numpy.asarray(obs), None, jax.numpy.zeros(7, bool), (), jax.numpy.asarray(noise)
    np.testing.assert_allclose(found, make_bind(agent)(weights).act(*arrays).action, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("space,changes", [
    (spaces.Discrete(3), {}), (spaces.MultiDiscrete([2, 3]), {}),
    (spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]), {}),
    *((spaces.Box(np.float32([-0.5, 10]), np.float32([2, 11])), changes) for changes in KINDS.values())], ids=str)
def test_compiled_and_mapped_functions_may_return_distributions(space, changes):
    """Against those of each row, computed without either. Of Discrete and of several parts it was a TypeError of JAX."""
    agent = assemble(Spec((3,), np.dtype(np.float32), space), Config(hidden_sizes=(8,), **changes))
    weights, obs = initial_weights(agent, np.random.default_rng(1)), np.random.default_rng(2).normal(size=(5, 3))
    head = make_bind(agent)(weights).head
    every = jax.jit(jax.vmap(lambda obs: head(obs, None)))(np.float32(obs))
    actions = every.sample(head.noise(jax.random.key(0), 5))
    logprob, entropy = jax.vmap(lambda dist, action: (dist.logprob(action), dist.entropy()))(every, actions)
    for i, row in enumerate(np.float32(obs)):
        alone = head(row, None)
        np.testing.assert_allclose([logprob[i], entropy[i]], [alone.logprob(actions[i]), alone.entropy()], rtol=1e-4)
