"""Collecting inside a compiled function: the axes of actions, and metrics of the environments."""

from functools import partial
from types import SimpleNamespace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.envs.normalize import keep_step
from proximo.errors import UsageError
from proximo.on_jax.rollout import collect
from proximo.protocols import Acted
from proximo.types import Carry
from tests.support.scripted_pure import ScriptedPure


class Measured(ScriptedPure):
    """A metric of the last steps of episodes: the sum of an action (2, 3)."""

    action_space, metric_names = gymnasium.spaces.Box(-9, 9, (2, 3)), ("force", "never")

    def step(self, state, action):
        assert action.shape == (self.num_envs, 2, 3)
        state, step = super().step(state, 0.0)
        force = jnp.where(step.terminated, action.sum((1, 2)), jnp.nan)
        return state, step._replace(metrics={"force": force, "never": jnp.full(self.num_envs, jnp.nan)})


def test_metrics_are_means_over_the_rows_that_have_them():
    """Against the actions of the last steps, in numpy; NaN where no row has one."""
    envs, noise = Measured(np.array([[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]])), np.random.default_rng(0).random((4, 3, 6))
    agent = SimpleNamespace(evaluates_later=False, recurrent=False, value=lambda obs, first, state: obs[:, 0],
                            act=lambda obs, mask, first, state, noise: Acted(noise, (), obs[:, 0], obs[:, 0]),
                            head=SimpleNamespace(action_shape=(6,), action_dtype=np.dtype(np.float32)))
    state, step = envs.reset(None)
    carry = Carry(obs=step.obs, mask=None, first=step.first, state=(), statistics=None)
    found = collect(agent, envs, SimpleNamespace(step=keep_step), state, carry, jnp.asarray(noise, jnp.float32))
    assert found.rollout.action.shape == (4, 3, 6) and np.isnan(found.charts["never"])
    np.testing.assert_allclose(found.charts["force"], noise[[1, 0, 3], [0, 1, 1]].sum(-1).mean(), rtol=1e-6)


def test_an_evaluation_of_ones_own_gives_one_number_per_row():
    """(T, N, 1) would be broadcast against (T, N)."""
    envs = ScriptedPure(np.zeros((3, 4), int))
    state, step = envs.reset(None)
    carry = Carry(obs=step.obs, mask=None, first=step.first, state=(), statistics=None)
    agent = SimpleNamespace(evaluates_later=True, evaluate=lambda obs, mask, action: (obs[:-1, :, 0], obs),
                            act=lambda obs, mask, first, state, noise: Acted(noise.argmax(-1), (), None, None),
                            head=SimpleNamespace(action_shape=(), action_dtype=np.dtype(np.int32)))
    with pytest.raises(UsageError, match=r"computes value of shape \(4, 3, 1\) for a rollout of shape \(4, 3\)"):
        jax.eval_shape(partial(collect, agent, envs, SimpleNamespace(step=keep_step), state, carry), jnp.zeros((4, 3, 2)))
