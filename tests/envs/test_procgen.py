"""Procgen: ids, levels, seeds, and rewards scaled with the gamma of the variant."""

import numpy as np
import pytest

from proximo.envs.envpool_ids import import_envpool
from proximo.envs.procgen import GAMES, make_procgen, procgen_id
from proximo.errors import UsageError
from proximo.variants import Procgen
from tests.support.normalized import Normalized

pytest.importorskip("envpool_assets")  # importorskip("envpool") would import it before its libraries
pytest.importorskip("PyQt5")


def first_obs(seeds=(1, 2, 3), **fields):
    envs = make_procgen(Procgen(**fields), list(seeds))
    obs = envs.reset().obs
    envs.close()
    return obs


def test_ids_and_modes(capsys):
    """Games, EnvPool's ids and ids of the old package; the mode of an id is used, with a message."""
    known = import_envpool().list_all_envs()
    assert all(procgen_id(game, mode, known) in known for game in GAMES for mode in ("easy", "hard"))
    assert procgen_id("StarpilotEasy-v0", "easy", known) == "StarpilotEasy-v0"
    assert procgen_id("procgen:procgen-coinrun-v0", "hard", known) == "CoinrunHard-v0"
    assert capsys.readouterr().err == ""
    assert procgen_id("StarpilotHard-v0", "easy", known) == "StarpilotHard-v0"
    assert "not used" in capsys.readouterr().err
    with pytest.raises(UsageError, match="Did you mean starpilot"):
        procgen_id("starpilt", "easy", known)
    with pytest.raises(UsageError, match="no mode memory"):
        procgen_id("StarpilotMemory-v0", "easy", known)


def test_images_and_seeds():
    """Images are (3, 64, 64) uint8; the same seeds play the same levels, other seeds other ones."""
    obs = first_obs()
    assert obs.shape == (3, 3, 64, 64) and obs.dtype == np.uint8
    assert not np.array_equal(obs[0], obs[1]) and np.array_equal(obs, first_obs())
    assert np.array_equal(obs[1:], first_obs((2, 3)))


def test_number_and_start_of_levels():
    """With one level all environments begin with it; another first level differs; hard mazes are larger."""
    one = first_obs(env_id="maze", num_levels=1, start_level=3)
    assert (one == one[0]).all()
    assert not np.array_equal(one, first_obs(env_id="maze", num_levels=1, start_level=4))
    assert not np.array_equal(one, first_obs(env_id="maze", num_levels=1, start_level=3, distribution_mode="hard"))


def test_rewards_are_scaled_and_returns_raw():
    """Rewards equal the method of openai/baselines in plain numpy, with gamma 0.999 and without filler rows."""
    cfg = Procgen(env_id="bigfish")
    plain = make_procgen(cfg, list(range(8)))
    envs = Normalized(make_procgen(cfg, list(range(8))), cfg)
    envs.reset(), plain.reset()
    rng, ret, returns, finished = np.random.default_rng(0), np.zeros(8), [], 0
    for _ in range(250):
        action = rng.integers(0, 15, 8)
        scaled, raw = envs.step(action), plain.step(action)
        over = raw.terminated | raw.truncated
        ret[raw.valid] = ret[raw.valid] * 0.999 + raw.reward[raw.valid]
        returns.extend(ret[raw.valid])
        wanted = np.clip(raw.reward / np.sqrt(np.var(returns) + 1e-8), -10, 10)
        if len(returns) > 200 and np.var(returns) > 0.05:
            assert np.allclose(scaled.reward, wanted, rtol=1e-2)
        ret[over] = 0
        assert np.array_equal(scaled.episode.ret[over], raw.episode.ret[over])
        finished += over.sum()
    assert finished >= 8 and np.max(returns) > 1
