"""A run is filed under the id that was played, not under a retired one."""

import json

import pytest

from proximo.cli.main import main
from tests.support.runs import SMALL


@pytest.mark.parametrize("words", [["train"], ["train", "ppo"]])
def test_a_retired_id_is_recorded_as_its_successor_and_named_once(words, tmp_path, capsys):
    """config.json, summary.json, the model and its evaluation say Taxi-v4; one message says why."""
    run = tmp_path / "run"
    assert main([*words, *SMALL, "--env-id", "Taxi-v3", "--run-dir", str(run), "--total-timesteps", "1024",
                 "--num-steps", "256"]) == 0
    assert capsys.readouterr().err.splitlines().count(
        "proximo: Taxi-v3 is retired. Its successor Taxi-v4 is used instead.") == 1
    assert json.loads((run / "config.json").read_text())["config"]["env_id"] == "Taxi-v4"
    assert json.loads((run / "summary.json").read_text())["env_id"] == "Taxi-v4"
    assert main(["eval", str(run), "--episodes", "1"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("Taxi-v4: ")
    assert "Taxi-v3" not in told.err


@pytest.mark.parametrize("env_id", ["PongNoFrameskip-v4", "Pusher-v4", "module_that_is_not_there:Env-v0"])
def test_other_ids_stay(env_id):
    """Atari's ids are not Gymnasium's; EnvPool plays Pusher-v4; an id that cannot be read is refused later."""
    from proximo.runs.settings.choice import played_env
    from proximo.variants import Compact

    assert played_env(Compact(env_id=env_id)) == {}


def test_a_missing_package_is_found_before_the_iterations_are_announced(monkeypatch, tmp_path, capsys):
    """The number of iterations is said once the environments exist."""
    import gymnasium

    def absent(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("no such package")

    monkeypatch.setattr(gymnasium, "make", absent)
    assert main(["train", "ppo", *SMALL, "--run-dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "needs a package" in said and "iterations" not in said and not (tmp_path / "run" / "config.json").exists()
