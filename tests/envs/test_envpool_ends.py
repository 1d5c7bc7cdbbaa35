"""Rows of EnvPool that die in the step of their time limit, against the same episodes with a longer limit."""

import numpy as np
import pytest

from proximo.envs.envpool_ends import RULES, death_rule, separate_ends

pytest.importorskip("envpool_assets")  # importorskip("envpool") would import it before its libraries

from proximo.envs.envpool import PoolEnvs
from proximo.envs.envpool_ids import import_envpool

IDS = ("CartPole-v1", "phys2d/CartPole-v0", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "FrozenLake-v1",
       "FrozenLake8x8-v1", "Hopper-v4", "Walker2d-v5", "Ant-v4", "Humanoid-v5", "InvertedPendulum-v4",
       "InvertedDoublePendulum-v4")


@pytest.mark.parametrize("game_over", [True, False])
@pytest.mark.parametrize("rule", [True, False])
def test_a_row_that_dies_at_its_limit_is_terminated(game_over, rule):
    """Rows: dies, meets its limit, dies at its limit (reported as truncated only), is a filler row, plays on."""
    terminated, truncated = np.array([1, 0, 0, 1, 0], bool), np.array([0, 1, 1, 1, 0], bool)
    dies = np.array([1, 0, 1, 1, 0])
    info, died = {"terminated": dies} if game_over else {}, dies.astype(bool) if rule else None
    ended, cut = separate_ends(terminated, truncated, np.array([1, 1, 1, 0, 1], bool), info, died)
    assert ended.tolist() == [True, False, game_over or rule, False, False]
    assert cut.tolist() == [False, True, not (game_over or rule), False, False]


def action(envs, obs, rng):
    """Return random actions; swing up where only that ends an episode."""
    if envs._name.startswith("MountainCarC"):
        return np.sign(obs[:, 1:2])
    if envs._name.startswith(("MountainCar", "Acrobot")):
        return 1 + np.sign(obs[:, -1]).astype(int)
    space = envs.action_space
    return rng.integers(space.n, size=len(obs)) if hasattr(space, "n") else rng.uniform(-1, 1, (len(obs), *space.shape))


def play(name, limit, steps):
    """Return what ended in each of the first steps (steps, 2, N): terminated, truncated."""
    envs, rng = PoolEnvs(name, range(8), {"max_episode_steps": limit}), np.random.default_rng(0)
    step, ends = envs.reset(), []
    while len(ends) < steps and not (ends and np.any(ends[-1])):
        step = envs.step(action(envs, step.obs, rng))
        ends.append([step.terminated, step.truncated])
    envs.close()
    return np.array(ends)


@pytest.mark.parametrize("name", IDS)
def test_the_rule_agrees_with_a_longer_limit(name):
    """The rows that die first are terminated although this is the last step of their limit; all others are cut."""
    ends = play(name, 2000, 1000)
    died = ends[-1, 0]
    assert died.any() and not died.all() and not ends[:, 1].any(), "these rows die, and these live"
    cut = play(name, len(ends), 1000)
    assert len(cut) == len(ends) and np.array_equal(cut[-1, 0], died) and np.array_equal(cut[-1, 1], ~died)


def test_every_rule_is_of_an_environment():
    """Names without a rule count an end at the limit as truncated."""
    names = [name for name in import_envpool().list_all_envs() if death_rule(name)]
    assert {name.removeprefix("phys2d/").rpartition("-v")[0] for name in names} == {*RULES, "FrozenLake", "FrozenLake8x8"}
    assert death_rule("BipedalWalker-v3") is None and death_rule("Taxi-v3") is None
