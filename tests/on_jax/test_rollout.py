"""Collecting inside a compiled function: the axes of actions, and metrics of the environments."""

from types import SimpleNamespace

import gymnasium
import jax.numpy as jnp
import numpy as np

from proximo.envs.normalize import keep_step
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
