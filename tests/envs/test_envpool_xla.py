"""EnvPool inside a compiled function equals the same pool stepped by numpy, over ends and filler rows."""

import gc
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box

from proximo.cli.main import main
from proximo.config import Config
from proximo.errors import UsageError
from proximo.variants import AtariXLAScan, Continuous

pytest.importorskip("envpool_assets")

from proximo.envs.envpool import make_envpool, make_envpool_atari
from proximo.envs.envpool_arrays import pool_reader
from proximo.envs.envpool_xla import make_envpool_xla, observation_reader
from proximo.envs.inside import make_atari_inside
from proximo.errors import notify_once

CASES = [Config(env_id="CartPole-v1"), Continuous(env_id="HalfCheetah-v4"),
         Continuous(env_id="CheetahRun-v1"), AtariXLAScan(env_id="Breakout-v5"), Config(env_id="HealthGathering-v1")]


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.uint8, np.int32])
def test_observations_are_read_as_outside(dtype):
    space = Box(0, 100, (3,), dtype)
    assert observation_reader(space, (3,))(np.zeros((2, 3), dtype)).dtype == pool_reader(space, Box(0, 1)).dtype


@pytest.mark.parametrize("cfg", CASES, ids=[cfg.env_id for cfg in CASES])
def test_the_same_steps_as_outside(cfg, tmp_path, monkeypatch):
    """They are equal bit for bit, also where actions (HealthGathering) and observations have 64 bits."""
    monkeypatch.chdir(tmp_path)  # ViZDoom writes its settings there
    atari = isinstance(cfg, AtariXLAScan)
    ours = (make_atari_inside if atari else make_envpool_xla)(cfg, [5, 6, 7])
    theirs = (make_envpool_atari if atari else make_envpool)(cfg, [5, 6, 7])
    rng = np.random.default_rng(0)
    pairs, space = [(ours.reset(), theirs.reset())], theirs.action_space
    for _ in range(150):
        action = rng.integers(0, space.n, 3) if hasattr(space, "n") else rng.normal(size=(3, *space.shape)).astype("f4")
        a, b = ours.step(action), theirs.step(action)
        for name in ("obs", "first", "reward", "terminated", "truncated", "valid"):
            np.testing.assert_array_equal(np.asarray(getattr(a, name)), getattr(b, name), err_msg=name)
        over = b.episode.finished
        np.testing.assert_array_equal(np.asarray(a.episode.finished), over)
        np.testing.assert_array_equal(np.asarray(a.episode.length)[over], b.episode.length[over])
        np.testing.assert_allclose(np.asarray(a.episode.ret)[over], b.episode.ret[over], rtol=1e-6)
        pairs.append(over.sum())
    assert cfg.env_id != "CartPole-v1" or sum(pairs[1:]) > 10
    ours.close()
    theirs.close()


def test_deaths_at_the_limit_as_outside():
    """CartPole pushed to one side dies after 8 to 10 steps, in some rows in the last step of its limit."""
    def limited(cfg, seeds):
        return make_envpool(cfg, seeds, {"max_episode_steps": 9})

    ours, theirs = make_envpool_xla(CASES[0], range(8), limited), limited(CASES[0], range(8))
    ours.reset(), theirs.reset()
    at_limit = np.zeros(2, int)
    for _ in range(9):
        a, b = ours.step(np.ones(8, int)), theirs.step(np.ones(8, int))
        np.testing.assert_array_equal(a.terminated, b.terminated)
        np.testing.assert_array_equal(a.truncated, b.truncated)
        at_limit = b.terminated.sum(), b.truncated.sum()
    assert min(at_limit) > 0, "in the ninth step some rows die, and some are cut"
    ours.close(), theirs.close()


def test_a_second_reset_plays_the_new_pool():
    """A function that was compiled with one pool always steps that pool."""
    envs = make_envpool_xla(replace(CASES[0]), [1, 2])
    assert envs.play == "pool" and not envs.keeps_state and envs.state() is None
    runs = []
    for _ in range(2):
        envs.reset()
        runs.append([np.asarray(envs.step(np.array([0, 1])).obs) for _ in range(20)])
    np.testing.assert_array_equal(runs[0], runs[1])
    envs.close()


def same_play(one, other, steps=40):
    """Check that two VecEnvs make the same steps with the same random actions."""
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(one.reset().obs, other.reset().obs)
    for _ in range(steps):
        action = rng.integers(0, one.action_space.n, one.num_envs)
        a, b = one.step(action), other.step(action)
        for name in ("obs", "first", "reward", "terminated", "truncated", "valid"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Taxi-v3", "MiniGrid-Empty-5x5-v0"])
def test_what_cannot_be_read_inside_is_stepped_outside(env_id, capsys):
    """It is stepped as make_envpool steps it, and a message says so."""
    notify_once.cache_clear()
    cfg = Config(env_id=env_id, engine="envpool")
    envs, plain = make_envpool_xla(cfg, [5, 6]), make_envpool(cfg, [5, 6])
    assert f"{env_id} is stepped outside the compiled function, because its observations" in capsys.readouterr().err
    assert envs.arrays == "numpy" and envs.play == "host"
    same_play(envs, plain)
    envs.close(), plain.close()


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("make", [make_envpool, make_envpool_xla])
def test_close_ends_the_threads_of_a_pool(make):
    """They end although the closed object is still referenced, and also if close() is called again."""
    def threads():
        return len(os.listdir("/proc/self/task"))

    gc.collect()  # pools of other tests
    before = threads()
    envs = make(Config(env_id="Taxi-v3", engine="envpool"), [1, 2])
    envs.reset()
    assert threads() > before
    envs.close(), envs.close()
    assert threads() == before


def test_variants_for_the_inside_raise_and_free_the_pool(monkeypatch):
    """The error names the variant that steps it outside. Only the reaction to the name of the system is tested here."""
    ended = []
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("proximo.envs.envpool.PoolEnvs.close", lambda self: ended.append(self))
    with pytest.raises(UsageError, match="cannot be stepped inside .*no XLA handle on macOS. Use ppo_atari_envpool"):
        make_atari_inside(AtariXLAScan(), [1])
    assert len(ended) == 1


def test_systems_without_a_handle(monkeypatch, capsys):
    """EnvPool's code says that it has none on macOS. Only the reaction to the name of the system is tested here."""
    notify_once.cache_clear()
    monkeypatch.setattr("sys.platform", "darwin")
    envs = make_envpool_xla(Config(env_id="CartPole-v1"), [1])
    assert envs.arrays == "numpy" and "no XLA handle on macOS" in capsys.readouterr().err
    envs.close()


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "MiniGrid-Empty-5x5-v0"])
def test_two_iterations_outside(env_id, tmp_path):
    """From the command line, with a checkpoint in between that makes a new pool."""
    words = (f"train ppo --framework jax --engine envpool --env-id {env_id} --num-envs 2 --num-steps 8 "
             "--num-minibatches 2 --update-epochs 1 --total-timesteps 32 --hidden-sizes 8 8 --checkpoint-every 1 "
             f"--threads 1 --logger none --run-dir {tmp_path / 'run'}")
    assert main(words.split()) == 0
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 3
