"""Procgen: ids, levels that are the ones asked for, real seeds, and rewards scaled with the variant's own gamma."""

import numpy as np
import pytest

from proximo.envs.envpool_ids import import_envpool
from proximo.envs.normalize import apply_normalization
from proximo.envs.procgen import GAMES, make_procgen, procgen_id
from proximo.errors import UsageError
from proximo.variants import Procgen

pytest.importorskip("envpool_assets")  # envpool itself must not be imported before its libraries
pytest.importorskip("PyQt5")


def first_obs(seeds=(1, 2, 3), **fields):
    envs = make_procgen(Procgen(**fields), list(seeds))
    obs = envs.reset().obs
    envs.close()
    return obs


def test_ids_and_modes(capsys):
    """Games, EnvPool's ids and the ids of the old package; an id's own mode holds, and is said."""
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
    """(3, 64, 64) uint8; other seeds other levels, the same seeds the same."""
    obs = first_obs()
    assert obs.shape == (3, 3, 64, 64) and obs.dtype == np.uint8
    assert not np.array_equal(obs[0], obs[1]) and np.array_equal(obs, first_obs())
    assert np.array_equal(obs[1:], first_obs((2, 3)))


def test_number_and_start_of_levels():
    """With one level every environment begins alike; another first level is another one; hard mazes are larger."""
    one = first_obs(env_id="maze", num_levels=1, start_level=3)
    assert (one == one[0]).all()
    assert not np.array_equal(one, first_obs(env_id="maze", num_levels=1, start_level=4))
    assert not np.array_equal(one, first_obs(env_id="maze", num_levels=1, start_level=3, distribution_mode="hard"))


def test_rewards_are_scaled_and_returns_raw():
    """Against openai/baselines' recipe in plain numpy, with gamma 0.999, filler rows left out."""
    cfg = Procgen(env_id="bigfish")
    plain = make_procgen(cfg, list(range(8)))
    envs = apply_normalization(make_procgen(cfg, list(range(8))), cfg)
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
