"""Brax: a small environment with known numbers; the compiled path is equal to the stepped one."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("brax")

import torch  # noqa: E402
from brax.envs.base import State  # noqa: E402
from jax import numpy as jnp  # noqa: E402

from proximo.envs.brax import brax_task, make_brax  # noqa: E402
from proximo.envs.brax_pure import BraxEnvs, BraxPure  # noqa: E402
from proximo.envs.normalize import make_normalizer  # noqa: E402
from proximo.errors import EnvError, UsageError  # noqa: E402
from proximo.variants import BatchedSim  # noqa: E402
from tests.support.normalized import Normalized  # noqa: E402

CFG = replace(BatchedSim(), env_id="fast", num_steps=4, reward_scaler=0.5)


class Walk:
    """Begins at a random place in [0, 1) and moves by the action; done above 3."""

    action_size = 1

    def reset(self, key):
        place = jax.random.uniform(key, (1,))
        return State(None, place, jnp.zeros(()), jnp.zeros(()), {"consecutive_successes": jnp.zeros(())})

    def step(self, state, action):
        place = state.obs + action
        return state.replace(obs=place, reward=10 * place[0], done=(place[0] > 3).astype(jnp.float32),
                             metrics={"consecutive_successes": place[0]})


def walks(num_envs=3, cfg=CFG, episode_length=1000):
    pure = BraxPure(Walk(), num_envs, cfg.num_steps, cfg.reward_scaler, episode_length)
    return Normalized(BraxEnvs(pure, cfg.env_id, seed=7), cfg)


def push(envs, by):
    return envs.step(torch.full((envs.num_envs, 1), float(by)))


def test_terminated_rows_begin_again_and_keep_their_last_observation():
    """Last observations, raw returns, scaled rewards and different first states are right in every row."""
    envs = walks()
    start = envs.reset()
    assert start.first.all()
    assert isinstance(start.obs, torch.Tensor)
    steps = [push(envs, 1.0) for _ in range(3)]
    assert torch.equal(steps[0].obs, start.obs + 1)
    last = steps[-1]
    assert last.terminated.all()
    assert not last.truncated.any()
    assert torch.equal(last.final_obs, start.obs + 1 + 1 + 1)
    assert (last.obs < 1).all()
    assert len(torch.unique(torch.cat([start.obs, last.obs]))) >= 4
    assert torch.allclose(last.reward, 5 * last.final_obs[:, 0])
    assert torch.allclose(last.episode.ret, sum(10 * step.final_obs[:, 0] for step in steps))
    assert last.episode.length.tolist() == [3, 3, 3]
    assert torch.equal(last.metrics["consecutive_successes"], last.final_obs[:, 0])


def test_actions_are_clipped_to_the_bounds():
    envs = walks()
    start = envs.reset()
    assert torch.equal(push(envs, 5.0).obs, start.obs + 1)


def test_time_limit_is_truncated_unless_the_task_ended():
    """It is truncated at step 5 of 5; a task that ends at this step is terminated only."""
    envs = walks(episode_length=5)
    envs.reset()
    steps = [push(envs, 0.0) for _ in range(5)]
    assert [bool(step.truncated.any()) for step in steps] == [False] * 4 + [True]
    assert steps[-1].truncated.all()
    assert not steps[-1].terminated.any()
    for by in (0.0, 0.0, 1.0, 1.0):
        push(envs, by)
    both = push(envs, 1.0)
    assert both.terminated.all()
    assert not both.truncated.any()


def test_bank_is_renewed_every_iteration():
    """First states come from one bank for num_steps steps, and then from another."""
    envs = walks(num_envs=4, cfg=replace(CFG, num_steps=3), episode_length=1)
    envs.reset()
    seen = [set(push(envs, 0.0).obs[:, 0].tolist()) for _ in range(6)]
    assert len(set.union(*seen[:3])) <= 4
    assert len(set.union(*seen)) > 4
    assert not set.union(*seen[:3]) & set.union(*seen[3:])


def test_episodes_that_begin_together_have_different_first_states():
    """A time limit ends them all at once. An evaluation would count a first state that is drawn twice as two episodes."""
    envs = walks(num_envs=64, episode_length=2)
    envs.reset()
    for _ in range(2):
        obs = push(envs, 0.0).obs
    assert len(torch.unique(obs)) == 64


@pytest.mark.parametrize("num_envs", [3, 2500])
def test_compiled_whole_equals_stepped(num_envs):
    """A scan over PureEnv.step in one compiled function equals the VecEnv, also with more rows than the bank has."""
    cfg = replace(CFG, framework="jax")
    envs = walks(num_envs, cfg, episode_length=6)
    action = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (14, num_envs, 1)), jnp.float32)
    state, start = jax.jit(envs.pure.reset)(envs.key)
    _, steps = jax.jit(lambda state: jax.lax.scan(envs.pure.step, state, action))(state)
    assert np.array_equal(start.obs, envs.reset().obs)
    for t in range(len(action)):
        step = envs.step(action[t])
        assert all(np.array_equal(a, b[t]) for a, b in zip(jax.tree.leaves(step), jax.tree.leaves(steps)))


def test_state_continues_exactly():
    """Environments of another seed that load the state, and continue the statistics, repeat 12 steps."""
    cfg = replace(CFG, norm_obs=True, norm_reward=True)
    envs, other = walks(cfg=cfg, episode_length=5), walks(cfg=cfg, episode_length=5)
    envs.reset()
    for _ in range(7):
        push(envs, 0.7)
    state = {name: value.copy() for name, value in envs.state().items()}
    assert all(isinstance(value, np.ndarray) for value in state.values())
    other.envs.key = jax.random.PRNGKey(99)
    other.reset()
    other.load(state)
    other.statistics = envs.statistics
    for _ in range(12):
        one, two = push(envs, 0.7), push(other, 0.7)
        assert all(torch.equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)))


def test_normalised_as_numpy_would():
    """The statistics on the device are equal to those of the numpy functions."""
    cfg = replace(CFG, norm_obs=True, norm_reward=True)
    raw, envs = walks(episode_length=5), walks(cfg=cfg, episode_length=5)
    normalizer = make_normalizer(cfg, SimpleNamespace(**vars(raw.envs), arrays="numpy", observation_space=None))
    start = jax.tree.map(lambda x: x.numpy(), raw.reset())
    statistics, _ = normalizer.reset(normalizer.start(), start)
    assert isinstance(envs.reset().obs, torch.Tensor)
    assert envs.statistics.obs.mean.shape == statistics.obs.mean.shape == (1,)
    for _ in range(9):
        step = jax.tree.map(lambda x: x.numpy(), push(raw, 0.4))
        statistics, wanted = normalizer.step(statistics, step)
        got = push(envs, 0.4)
        assert np.allclose(got.obs, wanted.obs, atol=1e-4)
        assert np.allclose(got.final_obs, wanted.final_obs, atol=1e-4)
        assert np.allclose(got.reward, wanted.reward, rtol=1e-3)
    assert np.allclose(envs.statistics.obs.var, statistics.obs.var, rtol=1e-3)


def test_errors_of_numbers_and_shapes():
    envs = walks()
    envs.reset()
    with pytest.raises(EnvError, match=r"must have shape \(3, 1\)"):
        envs.step(torch.zeros(2, 1))
    with pytest.raises(EnvError, match="environment 1 .* step 0"):
        envs.step(torch.tensor([[0.0], [float("nan")], [0.0]]))


def test_real_brax_environment_and_names(capsys):
    """Brax's own task for tests, tasks of Isaac Gym, and those that have no counterpart."""
    envs = Normalized(make_brax(CFG, [1, 2, 3, 4]), CFG)
    start = envs.reset()
    assert start.obs.shape == (4, 2)
    step = push(envs, 1.0)
    assert torch.allclose(step.obs[:, 1], torch.full((4,), 0.02))
    envs.load(envs.state())
    for _ in range(5):
        push(envs, 1.0)
    assert envs._advance._cache_size() == 1  # compiled once, wherever the arrays come from
    assert envs.render() is None
    assert brax_task("Cartpole") == "inverted_pendulum"
    assert "Cartpole runs as Brax's inverted_pendulum" in capsys.readouterr().err
    with pytest.raises(UsageError, match="ShadowHand has no counterpart in Brax. Use ant"):
        brax_task("ShadowHand")
    with pytest.raises(UsageError, match="halfcheetah"):
        brax_task("HalfChetah")
