"""Published numbers against the tables that they come from, and the benchmark files that reproduce them."""

import importlib
import importlib.util
from pathlib import Path

import pytest

from proximo.bench.report.published import atari_game, atari_scores, atari_source, published_for, published_results
from proximo.bench.sets import load_set
from proximo.catalog import VARIANTS
from proximo.cli.suites import SUITES
from proximo.envs.atari_ids import find_rom
from proximo.envs.envpool_ids import import_envpool
from proximo.envs.procgen import procgen_id
from proximo.runs.presets import presets

SETS = sorted((Path(__file__).parents[3] / "benchmarks").glob("*.toml"))


def test_numbers_of_the_tables():
    """One number of each published table."""
    found = {(row.variant, row.env_id, row.implementation): (row.mean, row.std, row.steps, row.seeds)
             for row in published_results()}
    assert found["ppo", "CartPole-v1", "cleanrl ppo"] == (490.04, 6.12, 500_000, 3)
    assert found["ppo", "CartPole-v1", "openai/baselines ppo2"] == (497.54, 4.02, 500_000, 3)
    assert found["ppo_atari", "BreakoutNoFrameskip-v4", "cleanrl ppo_atari"] == (414.66, 28.09, 10_000_000, 3)
    assert found["ppo_atari_envpool_xla_jax", "Zaxxon-v5", "openai/baselines ppo2"] == (5532.67, 2607.65, 10**7, 3)
    assert found["ppo_procgen", "bigfish", "cleanrl ppo_procgen"] == (16.46, 2.71, 25_000_000, 3)
    assert found["", "Pendulum-v1", "cleanrl rpo_continuous_action"] == (-151.08, 3.73, 8_000_000, 10)


def test_every_number_has_a_source_and_a_known_variant():
    """Every row has a source, an implementation and a protocol."""
    for row in published_results():
        assert row.source and row.implementation and row.protocol in ("training", "evaluation")
        assert row.variant == "" or row.variant in VARIANTS
        assert row.metric in ("episodic_return", "episodic_length") and row.seeds >= 1 and row.steps > 0


def test_published_numbers_say_what_differs():
    """Another simulator, another version or another way of counting is given as a reason."""
    for row in published_results():
        if row.variant == "ppo_continuous_action_isaacgym":
            assert "Isaac Gym" in row.differs
        if row.env_id.startswith("dm_control/") or (row.env_id.endswith("-v4") and "NoFrameskip" not in row.env_id):
            assert row.differs
        if row.protocol == "evaluation":
            assert row.differs
    assert [row.differs for row in published_for("ppo", "CartPole-v1")][:2] == ["", ""]


def test_scores_of_humans_and_of_random_play():
    """57 games, as in the literature; every paper has Breakout's 1.7 and 30.5."""
    assert len(atari_scores()) == 57
    assert atari_scores()["Breakout"] == (1.7, 30.5)
    assert atari_scores()["Surround"] == (-10.0, 6.5)
    assert all(human > random for random, human in atari_scores().values())
    assert "Badia" in atari_source()


@pytest.mark.parametrize(("env_id", "game"), [
    ("BreakoutNoFrameskip-v4", "Breakout"), ("Pong-v5", "Pong"), ("ALE/MsPacman-v5", "MsPacman"),
    ("CartPole-v1", None), ("Breakout", None), ("pong_v3", None)])
def test_games_of_ids(env_id, game):
    """Each engine has its own form of Atari ids."""
    assert atari_game(env_id) == game


def test_every_published_environment_is_in_a_set():
    """The benchmark files cover every published environment that some engine can play."""
    played = {(row.variant, env_id) for path in SETS for row in load_set(path).rows for env_id in row.env_ids}
    impossible = {"Pusher-v4", "BallBalance", "AllegroHand", "ShadowHand"}
    wanted = {(row.variant, row.env_id) for row in published_results() if row.variant}
    assert {pair for pair in wanted - played if pair[1] not in impossible} == set()
    assert {path.stem for path in SETS} >= {
        "classic", "atari", "mujoco", "dm_control", "lstm", "envpool", "atari57", "procgen", "multigpu", "pettingzoo",
        "batched_sim", "small"}


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_a_shipped_set_parses_and_its_environments_exist_or_their_extra_is_named(path):
    """Ids are compared with the list of each installed engine; other files must name the extra that they need."""
    bench_set = load_set(path)
    assert set(bench_set.extra.split(",")) <= ({extra for suite in SUITES for extra in suite.extra.split(",")}
                                               | {preset.extra for preset in presets().values()})
    for row in bench_set.rows:
        if script := row.overrides.get("env_file"):
            text = (path.parents[1] / script).read_text()
            assert all(f'gym.register("{env_id}"' in text for env_id in row.env_ids)
            continue
        engine, missing = missing_ids(row.variant, row.env_ids)
        assert not missing
        if engine not in ("classic control", "gymnasium"):
            assert bench_set.extra


def missing_ids(variant, env_ids):
    """Return (engine, ids that it does not have); nothing is missing from an engine that is not installed."""
    if variant == "ppo_continuous_action_isaacgym":
        from proximo.envs.brax import BACKENDS, ISAAC
        return "brax", [env_id for env_id in env_ids if env_id not in BACKENDS and env_id not in ISAAC]
    if variant == "ppo_pettingzoo_ma_atari":
        if importlib.util.find_spec("pettingzoo") is None:
            return "pettingzoo", []
        folder = Path(importlib.util.find_spec("pettingzoo").submodule_search_locations[0]) / "atari"
        return "pettingzoo", [env_id for env_id in env_ids if not (folder / f"{env_id}.py").exists()]
    if "envpool" in variant or variant == "ppo_procgen":
        if importlib.util.find_spec("envpool") is None:
            return "envpool", []
        known = import_envpool().list_all_envs()
        names = [procgen_id(env_id, "easy", known) for env_id in env_ids] if variant == "ppo_procgen" else env_ids
        return "envpool", [name for name in names if name not in known]
    if env_ids[0].startswith("dm_control/"):
        if importlib.util.find_spec("dm_control") is None:
            return "dm_control", []
        from dm_control import suite
        tasks = {f"dm_control/{domain}-{task}-v0" for domain, task in suite.ALL_TASKS}
        return "dm_control", sorted(tasks ^ set(env_ids))
    if "atari" in variant:
        if importlib.util.find_spec("ale_py") is None:
            return "atari", []
        return "atari", [env_id for env_id in env_ids if not find_rom(env_id).exists()]
    import gymnasium
    engine = "mujoco" if "HalfCheetah-v4" in env_ids else "gymnasium"
    modules = {env_id.rpartition(":")[0] for env_id in env_ids} - {""}
    if any(importlib.util.find_spec(module.partition(".")[0]) is None for module in modules):
        return ", ".join(modules), []
    for module in modules:
        importlib.import_module(module)  # registers its ids
    return engine, [env_id for env_id in env_ids if env_id.rpartition(":")[2] not in gymnasium.registry]
