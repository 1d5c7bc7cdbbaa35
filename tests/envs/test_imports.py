"""A stranger's files never run a stranger's code unless the user allows it: a canary in every place that can name one."""

import json
import shutil
from pathlib import Path

import gymnasium as gym
import pytest

import proximo
from proximo.bench.jobs import Job, flags_of
from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.imports import check_imports, import_flags, named_modules
from proximo.errors import UsageError
from proximo.runs.run import resume_command
from tests.support.runs import at_iteration, terminate, train

CANARY = "canary.txt"


def test_modules_that_a_configuration_names():
    cfg = Config(env_id="a.b:Env-v0", env_wrappers=("gymnasium.wrappers:X", "c:Y"), env_file="/x/my.py:E")
    assert named_modules(cfg) == ["/x/my.py", "a.b", "c"] and named_modules(Config()) == []
    assert named_modules(Config(env_id="shimmy:dm_control/walker-walk-v0")) == []
    check_imports(cfg, ["a", "c", "/x/my.py"], "run")
    check_imports(cfg, import_flags(cfg)[1::2], "run")
    with pytest.raises(UsageError) as error:
        check_imports(cfg, ["a.b.c", "ab"], "run")
    assert len(str(error.value).splitlines()) == 3 and "--allow-import a.b " in str(error.value)


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A run that names `evilmod`, which lies in the current folder and writes a file when it is imported."""
    run = tmp_path / "theirs"
    assert train(run, "--total-timesteps", "64") == 0
    shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
    place = tmp_path / "elsewhere"
    place.mkdir()
    monkeypatch.chdir(place)
    (place / "evilmod.py").write_text(f"open({str(tmp_path / CANARY)!r}, 'a').write('ran')\n")
    return run


def name_in(run, **fields):
    """Write fields into config.json and into the model, with sums that fit."""
    from proximo.models.model import read_model
    from proximo.runs.checkpoint import save_tree

    content = json.loads((run / "config.json").read_text())
    content["config"] |= fields
    (run / "config.json").write_text(json.dumps(content))
    tree = read_model(run)
    save_tree(run / "model", tree | {"config": tree["config"] | fields})


@pytest.mark.parametrize("fields", [{"env_id": "evilmod:Evil-v0"}, {"env_wrappers": ["evilmod:Wrapper"]},
                                    {"env_file": "evilmod.py"}], ids=["id", "wrapper", "file"])
@pytest.mark.parametrize("command", ["eval", "watch", "resume", "rate", "plot", "evaluate", "act"])
def test_a_strangers_run_imports_nothing(command, fields, stranger, tmp_path, capsys):
    if fields != {"env_id": "evilmod:Evil-v0"} and command in ("watch", "rate", "plot"):
        pytest.skip("the same reader as eval")
    name_in(stranger, **fields)
    if command == "evaluate":
        with pytest.raises(UsageError, match="allow_import"):
            proximo.evaluate(stranger, episodes=1)
        with pytest.raises(UsageError, match="allow_import"):
            proximo.resume(stranger, total_timesteps=128)
    elif command == "act":
        proximo.load(stranger).act([0.0, 0.1, 0.0, 0.1])
    else:
        more = ["--total-timesteps", "128"] if command == "resume" else []
        code = main([command, str(stranger), *more])
        said = capsys.readouterr().err
        assert code == (0 if command == "plot" else 2), said
        assert command == "plot" or "--allow-import" in said
    assert not (tmp_path / CANARY).exists()


ENV = 'variant = "ppo"\nsteps = 50000\n'
FILES = {"bench": f'seeds = 1\n[[run]]\n{ENV}env_ids = ["evilmod:Evil-v0"]\n',
         "tune": f'{ENV}env_ids = ["evilmod:Evil-v0"]\n[space]\ngamma = {{low = 0.9, high = 0.99}}\n',
         "pbt": f'{ENV}env_id = "evilmod:Evil-v0"\npopulation = 4\n[space]\ngamma = {{low = 0.9, high = 0.99}}\n'}


@pytest.mark.parametrize("command", FILES)
def test_files_of_benchmarks_searches_and_populations_are_strangers_too(command, stranger, tmp_path, capsys):
    if command == "tune":
        pytest.importorskip("optuna")
    file = tmp_path / "theirs.toml"
    file.write_text(FILES[command])
    assert main([command, str(file), "--out", str(tmp_path / "b")]) == 2
    assert "theirs.toml names the module evilmod" in capsys.readouterr().err
    assert not (tmp_path / CANARY).exists() and not (tmp_path / "b").exists()


def test_an_allowed_module_is_imported_and_said(stranger, tmp_path, capsys):
    name_in(stranger, env_id="evilmod:Evil-v0")
    assert main(["eval", str(stranger), "--allow-import", "evilmod"]) == 2  # it registers nothing
    said = capsys.readouterr().err
    assert "Importing the module evilmod (env_id=evilmod:Evil-v0)." in said and "is unknown" in said
    assert (tmp_path / CANARY).read_text() == "ran"


def test_ones_own_run_continues_and_plays_with_the_flag_that_it_prints(tmp_path, monkeypatch, capsys):
    """The line at the end of an interrupted run is a whole command."""
    (tmp_path / "mine_to_allow.py").write_text(
        "import gymnasium as gym\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "gym.register('Mine-v0', entry_point=CartPoleEnv, max_episode_steps=50)\n")
    monkeypatch.chdir(tmp_path)
    at_iteration(monkeypatch, 4, terminate)
    assert train(tmp_path / "run", "--env-id", "mine_to_allow:Mine-v0") == 143
    line = capsys.readouterr().err.partition("Resume with: proximo ")[2].split()
    assert line == ["resume", str(tmp_path / "run"), "--allow-import", "mine_to_allow"]
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert main(line) == 0
    assert main(["eval", str(tmp_path / "run"), "--episodes", "1", "--allow-import", "mine_to_allow"]) == 0
    assert main(["resume", str(tmp_path / "run"), "--env-id", "mine_to_allow:Mine-v0", "--total-timesteps", "640"]) == 0
    assert proximo.evaluate(tmp_path / "run", 1, env="mine_to_allow:Mine-v0").returns
    assert proximo.evaluate(proximo.load(tmp_path / "run", allow_import=["mine_to_allow"]), 1).returns
    assert proximo.resume(tmp_path / "run", total_timesteps=960, allow_import=["mine_to_allow"])
    gym.registry.pop("Mine-v0")


def test_commands_that_others_print_or_start_have_the_flag():
    cfg = Config(env_file="/x/my.py")
    assert resume_command(Path("run"), cfg) == "proximo resume run --allow-import /x/my.py"
    job = Job(variant="ppo", env_id="a:B-v0", seed=1, steps=512, label="x", overrides={"env_kwargs": {"size": 5}})
    assert job.import_flags() == ["--allow-import", "a"]
    assert flags_of(job.overrides) == ["--env-kwargs", "size=5"]
