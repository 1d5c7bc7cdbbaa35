"""The folder of a run and its config.json."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

from proximo.catalog import config_class
from proximo.cli.main import main
from proximo.config import Config
from proximo.errors import FilesError, UsageError
from proximo.runs.folder.run import Run, config_from, forget_run, read_config, run_folder, write_config
from proximo.variants import Atari
from tests.support.full_disk import full_disk


def test_the_folder_is_named_after_environment_name_seed_and_time():
    folder = run_folder(Config(env_id="module:ALE/Pong-v5", exp_name="try", seed=3))
    assert re.fullmatch(r"runs/module-ALE-Pong-v5__try__3__\d+", folder.as_posix())


def test_two_runs_of_one_second_have_two_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.time", lambda: 5.0)
    for name in ("x____1__5", "x____1__5-2", "x____1__5-3"):
        folder = run_folder(Config(env_id="x"))
        assert folder.as_posix() == f"runs/{name}"
        folder.mkdir(parents=True)


@pytest.mark.parametrize("name", ["../../x", "/x", "..", "a\\b", "."])
def test_the_name_of_an_experiment_cannot_lead_out_of_the_folder_of_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "ppo", "--exp-name", name, "--env-id", "CartPole-v1"]) == 2
    assert f"exp_name={name} is not a name." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert run_folder(Config(env_id=r"..\..\x", exp_name="a")).parent.name == "runs"


@pytest.mark.parametrize("kept", ["checkpoints/00000004", "metrics.csv", ""])
def test_a_run_that_has_begun_is_not_forgotten(kept, tmp_path):
    """Also where its log was removed: without config.json, its checkpoints could not be used."""
    write_config(Run(tmp_path, Config(run_dir=str(tmp_path)), "ppo"))
    if kept:
        (tmp_path / kept).mkdir(parents=True)
    forget_run(tmp_path)
    assert (tmp_path / "config.json").exists() == bool(kept)


def test_what_is_written_is_read(tmp_path):
    run = Run(tmp_path, Atari(device_ids=(0, 1), sticky=0.25), "ppo_atari", "python mine.py resume RUN")
    write_config(run)
    assert read_config(tmp_path, config_class) == run
    assert run.resume_line == f"python mine.py resume {tmp_path}"
    assert run._replace(resume_with="").resume_line == f"proximo resume {tmp_path}"


def test_lines_to_copy_are_words_of_a_shell_and_of_python():
    """Also for folders with spaces and quotes; RUN stands for the folder at its place only."""
    folder = Path("my runs/it's")
    cfg = Config(env_file="/a b/shop.py")
    line = Run(folder, cfg, "ppo").resume_line
    assert shlex.split(line) == ["proximo", "resume", str(folder), "--allow-import", "/a b/shop.py"]
    line = Run(folder, cfg, "ppo", "python RUNNER.py resume RUN").resume_line
    assert shlex.split(line) == ["python", "RUNNER.py", "resume", str(folder), "--allow-import", "/a b/shop.py"]
    line = Run(folder, Config(), "ppo", "proximo.resume('RUN', loss_fn=...)").resume_line
    assert ast.literal_eval(line.removeprefix("proximo.resume(").removesuffix(", loss_fn=...)")) == str(folder)


@pytest.mark.parametrize("program", ["my dir/prog.py", "it's (1).py", "/a/b.py"])
@pytest.mark.parametrize("processes", [1, 2])
def test_the_line_of_a_program_can_be_pasted(program, processes, monkeypatch):
    """Also where its path has spaces and parentheses, and with as many processes as there are."""
    for name, value in (("RANK", 0), ("WORLD_SIZE", processes), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", processes),
                        ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", 1)):
        monkeypatch.setenv(name, str(value))
    line = Run(Path("runs/a b"), Config(), "ppo", f"python {program} resume RUN").resume_line
    start = ["python"] if processes == 1 else ["torchrun", "--standalone", "--nproc_per_node=2"]
    assert shlex.split(line) == [*start, program, "resume", "runs/a b"]


def test_the_line_of_a_run_on_several_nodes_names_them(monkeypatch):
    """It began with torchrun --standalone, which starts all processes on one machine."""
    for name, value in (("RANK", 1), ("WORLD_SIZE", 8), ("LOCAL_RANK", 1), ("LOCAL_WORLD_SIZE", 4)):
        monkeypatch.setenv(name, str(value))
    assert Run(Path("a"), Config(), "ppo").resume_line == (
        "torchrun --nnodes=2 --nproc_per_node=4 --rdzv-backend=c10d --rdzv-endpoint=HEAD:29400 -m proximo resume a")


def test_a_program_that_is_a_flag_of_python_is_no_line_to_paste():
    assert Run(Path("a"), Config(), "ppo", "python -m evil resume RUN").resume_line.startswith("the program that started it")


def test_fields_of_other_versions_are_left_out_with_a_warning(capsys):
    assert config_from({"seed": 3, "warp": 9}, Config, Path("config.json")) == Config(seed=3)
    assert "has fields that Config does not have: warp. They are ignored." in capsys.readouterr().err


@pytest.mark.parametrize(("content", "kind", "sentence"), [
    (None, UsageError, "contains no config.json"), ("{", FilesError, "is not JSON"),
    ("[]", FilesError, "a table of names and values"), ("{}", FilesError, "variant is missing"),
    (json.dumps({"variant": "ppo", "config": 3}), FilesError, "config=3 is not allowed"),
    (json.dumps({"variant": "pppo", "config": {}}), FilesError, r"config.json: pppo is not a variant. Did you mean ppo\? The")])
def test_what_is_no_run_is_told(content, kind, sentence, tmp_path):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(kind, match=sentence):
        read_config(tmp_path, config_class)


@pytest.mark.parametrize("name, command", [("study.journal", "tune"), ("pbt.json", "pbt"), ("bench.json", "bench")])
def test_a_folder_of_many_runs_is_answered_with_what_continues_it(name, command, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=rf"no config\.json\. The same `proximo {command} FILE` continues what is in it\.$"):
        read_config(tmp_path, config_class)


def test_a_checkpoint_is_answered_with_the_run_to_resume(tmp_path):
    """Its folder is what checkpoints are named by."""
    (tmp_path / "checkpoints" / "00000004").mkdir(parents=True)
    (tmp_path / "config.json").touch()
    with pytest.raises(UsageError, match=rf"00000004 is a checkpoint\. `proximo resume {tmp_path}` continues .* docs/runs\.md"):
        read_config(tmp_path / "checkpoints" / "00000004", config_class)


def test_the_advice_of_a_full_disk_is_that_of_a_new_run_or_of_a_resume(tmp_path):
    run = Run(tmp_path / "run", Config(), "ppo")
    with full_disk(), pytest.raises(FilesError, match=r", or choose another folder with --run-dir\.$"):
        write_config(run)
    write_config(run)
    with full_disk(), pytest.raises(FilesError, match=r", then continue with `proximo resume \S+run`\.$"):
        write_config(run)
    assert read_config(tmp_path / "run", config_class).cfg == run.cfg


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path):
    """More space on the disk would not help."""
    (tmp_path / "afile").write_text("")
    for folder in ("afile", "afile/run"):
        with pytest.raises(FilesError, match="Remove the file that is in the place of the folder, or choose another folder"):
            write_config(Run(tmp_path / folder, Config(), "ppo"))
