"""EnvPool inside a compiled function against the same pool stepped by numpy, through ends and filler rows."""

from dataclasses import replace

import numpy as np
import pytest

from proximo.config import Config
from proximo.variants import AtariXLAScan, Continuous

pytest.importorskip("envpool_assets")

from proximo.envs.envpool import make_envpool  # noqa: E402
from proximo.envs.envpool_xla import make_envpool_xla  # noqa: E402

PLAIN = {"norm_obs": False, "norm_reward": False}
CASES = [Config(env_id="CartPole-v1"), Continuous(env_id="HalfCheetah-v4", **PLAIN),
         Continuous(env_id="CheetahRun-v1", **PLAIN), AtariXLAScan(env_id="Breakout-v5")]


@pytest.mark.parametrize("cfg", CASES, ids=[cfg.env_id for cfg in CASES])
def test_the_same_steps_as_outside(cfg):
    """Bit for bit, also where actions and observations have 64 bits."""
    ours, theirs, rng = make_envpool_xla(cfg, [5, 6, 7]), make_envpool(cfg, [5, 6, 7]), np.random.default_rng(0)
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


def test_a_second_reset_plays_the_new_pool():
    """A function compiled with one pool steps that pool for ever."""
    envs = make_envpool_xla(replace(CASES[0]), [1, 2])
    runs = []
    for _ in range(2):
        envs.reset()
        runs.append([np.asarray(envs.step(np.array([0, 1])).obs) for _ in range(20)])
    np.testing.assert_array_equal(runs[0], runs[1])
    envs.close()
