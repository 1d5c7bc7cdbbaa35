"""A stranger's files never run a stranger's code unless the user allows it: a canary in every place that can name one."""

import json
import shutil
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import proximo
from proximo.bench.jobs import Job, flags_of
from proximo.cli.main import main
from proximo.cli.messages import exit_code
from proximo.cli.suites import EXTRAS, SUITES
from proximo.config import Config
from proximo.envs.custom.imports import (
    KNOWN,
    check_imports,
    import_flags,
    import_named,
    load_script,
    named_modules,
    with_moved_script,
)
from proximo.envs.gym_ids import gym_id
from proximo.errors import UsageError
from proximo.runs.folder.run import resume_command
from tests.support.runs import at_iteration, same_weights, terminate, train

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


@pytest.mark.parametrize("env_id", ["shimmy:GymV26Environment-v0", "shimmy.registration:GymV21Environment", "GymV26Environment-v0"])
def test_environments_of_gym_need_permission(env_id):
    """gym imports the module that their argument env_id names."""
    cfg = Config(env_id=env_id, env_kwargs=("env_id='evil:X-v0'",))
    with pytest.raises(UsageError, match="names the module gym.*--allow-import gym"):
        check_imports(cfg, (), "RUN")
    check_imports(cfg, ("gym",), "RUN")


@pytest.mark.parametrize("module", KNOWN)
def test_a_missing_module_that_is_known_comes_with_the_command_that_installs_it(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as error:
        gym_id(f"{module}:Env-v0")
    assert str(error.value).endswith(f'Install it: pip install "{KNOWN[module]}"')


def test_what_installs_a_known_module_is_an_extra_or_a_package():
    """The extras of `proximo list`; gymnasium is installed with every one of them."""
    extras = {suite.extra: suite.packages for suite in SUITES} | {name: packages for name, (packages, _) in EXTRAS.items()}
    for module, what in KNOWN.items():
        extra = what.removeprefix("proximo[").removesuffix("]")
        assert module in extras[extra] if what != extra else what == module.replace("_", "-")


def test_a_script_takes_the_place_of_one_of_the_same_name_only():
    """Also of one with a path of Windows. What the user did not name is never chosen."""
    cfg = Config(env_file="/theirs/shop.py", env_id="Shop")
    for allowed in ([], ["shop"], ["/mine/store.py"], ["/theirs/shop.py"], ["/theirs/shop.py", "/mine/shop.py"],
                    ["/a/shop.py", "/b/shop.py"], ["/mine/shop.pyc"]):
        assert with_moved_script(cfg, allowed) is cfg
    assert with_moved_script(cfg, ["numpy", "/mine/shop.py"]).env_file == "/mine/shop.py"
    assert with_moved_script(cfg, ["shop.py"]).env_file == str(Path.cwd() / "shop.py")
    assert with_moved_script(Config(env_file="C:\\theirs\\shop.py:Shop"), ["/mine/shop.py"]).env_file == "/mine/shop.py:Shop"
    none = Config()
    assert with_moved_script(none, ["/mine/shop.py"]) is none
    with pytest.raises(UsageError, match="names the file /theirs/shop.py, which does not exist on this machine. If you have it"
                                         " in another place and trust it, add --allow-import PATH/shop.py"):
        check_imports(cfg, ["/mine/shop.py"], "run")


SHOP = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
with open({canary!r}, "a") as file:
    file.write({place!r})
class Shop(gym.Wrapper, gym.Env):
    def __init__(self):
        super().__init__(gym.wrappers.TimeLimit(CartPoleEnv(), 20))
"""


@pytest.fixture
def moved(tmp_path, monkeypatch):
    """A run whose script was copied to the current folder. Every import of a script writes its place into a file."""
    for place in ("old", "new"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "shop.py").write_text(SHOP.format(canary=str(tmp_path / CANARY), place=f"{place} "))
    assert train(tmp_path / "run", "--env-file", f"{tmp_path / 'old' / 'shop.py'}:Shop") == 0
    monkeypatch.chdir(tmp_path / "new")
    (tmp_path / CANARY).unlink()
    return tmp_path / "run"


def imported(tmp_path):
    return {*(tmp_path / CANARY).read_text().split()}


def test_a_run_whose_script_has_moved_plays_and_continues(moved, tmp_path, capsys):
    """Commands import the script that was named, never the recorded one, although it still exists here. A resume
    records the new place; the weights are those of a run that was not moved."""
    shutil.copytree(moved, tmp_path / "still")
    for command in ("eval", "card"):
        assert main([command, str(moved), "--episodes", "2", "--allow-import", "shop.py"]) == 0
    assert main(["verify", str(moved), "--allow-import", "shop.py"]) == 0
    assert "proximo watch agent --allow-import shop.py" in (moved / "model" / "README.md").read_text()
    assert proximo.evaluate(moved, 2, allow_import="shop.py").lengths
    assert proximo.evaluate(proximo.load(moved, allow_import=["shop.py"]), 2).lengths
    assert imported(tmp_path) == {"new"}
    assert f"env_file={tmp_path / 'new' / 'shop.py'} takes the place of {tmp_path / 'old' / 'shop.py'}." in capsys.readouterr().err
    assert main(["resume", str(moved), "--total-timesteps", "640", "--allow-import", "shop.py"]) == 0
    config = json.loads((moved / "config.json").read_text())["config"]
    assert (config["env_file"], config["env_id"]) == (str(tmp_path / "new" / "shop.py"), "Shop")
    assert imported(tmp_path) == {"new"}
    assert main(["eval", str(moved), "--episodes", "1", "--allow-import", str(tmp_path / "new" / "shop.py")]) == 0
    assert main(["resume", str(tmp_path / "still"), "--total-timesteps", "640", "--allow-import", str(tmp_path / "old/shop.py")]) == 0
    assert same_weights(moved, tmp_path / "still")


@pytest.mark.parametrize("how", ["resume", "auto", "python"])
def test_a_resume_may_name_the_new_place_of_the_script(how, moved, tmp_path, capsys):
    """But no script of another name, and nothing else in the file."""
    def resume(script):
        more = ["--env-file", script, "--total-timesteps", "640"]
        if how == "auto":
            return train(moved, *more, "--resume", "auto")
        if how == "resume":
            return main(["resume", str(moved), *more])
        return exit_code(lambda: proximo.resume(moved, env_file=script, total_timesteps=640) and 0)

    shutil.copy("shop.py", "store.py")
    Path("shop.py").write_text(Path("shop.py").read_text() + "class Other(Shop): pass\n")
    for script, refused in (("store.py:Shop", "env_file="), ("shop.py:Other", "env_id=Other")):
        assert resume(script) == 2
        said = capsys.readouterr().err
        assert f"{refused}" in said and "a resume cannot change it" in said
    assert resume("shop.py:Shop") == 0
    assert json.loads((moved / "config.json").read_text())["config"]["env_file"] == str(tmp_path / "new" / "shop.py")
    assert "old" not in imported(tmp_path)


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
    from proximo.models.read_folder import read_model
    from proximo.runs.folder.checkpoint import save_tree

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


@pytest.mark.parametrize("what", ["module", "script"])
def test_a_package_that_opens_a_window_is_imported_without_a_screen(what, tmp_path, monkeypatch):
    """As miniworld imports pyglet, which connects to the screen unless PYGLET_HEADLESS is set before."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "PYGLET_HEADLESS", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / f"window_{what}.py"
    path.write_text("import os\nassert os.environ['PYGLET_HEADLESS'] == 'true'\n")
    assert import_named(path.stem, "env_id") if what == "module" else load_script(path)
