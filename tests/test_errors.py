"""Bad input, bad environments, bad numbers and bad disks: one sentence a problem, its exit code, no traceback."""

import errno
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import proximo
from proximo.bench.continuing import was_not_finite
from proximo.cli.main import main
from proximo.cli.messages import exit_code
from proximo.config import Config
from proximo.errors import (
    EnvError,
    FilesError,
    NumbersError,
    PeerError,
    ProximoError,
    UsageError,
    nearest,
    notify,
    reading_checkpoint,
    warn,
    with_place,
)
from proximo.on_torch.loss import ppo_loss
from proximo.problems import config_problems
from proximo.runs.folder.checkpoint import checkpoints, load_tree, save_tree
from proximo.runs.interrupts.sigterm import interrupt_on_sigterm
from proximo.runs.session import Session
from tests.support.probes import Truncated
from tests.support.run_folders import RunFolder
from tests.support.runs import SMALL, at_iteration, same_logs, same_weights, train

FAULTS = (UsageError, EnvError, NumbersError, FilesError, PeerError)


def refused(capsys, *words):
    """The sentences with which a command ends as a usage error."""
    assert main([*words]) == 2
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert "Traceback" not in said.err and all(line.startswith("proximo: ") for line in lines)
    return [line.removeprefix("proximo: ") for line in lines]


def test_each_fault_has_its_exit_code():
    assert [kind.exit_code for kind in FAULTS] == [2, 3, 4, 5, 6]
    assert all(issubclass(kind, ProximoError) for kind in FAULTS)


def test_errors_are_also_those_of_the_standard_library():
    """A program that knows nothing of Proximo catches them as what they are."""
    standard = {UsageError: ValueError, EnvError: RuntimeError, NumbersError: ArithmeticError, FilesError: OSError,
                PeerError: ConnectionError}
    for kind, base in standard.items():
        with pytest.raises(base, match="^what was given$"):
            raise kind("what was given")


def test_our_faults_are_not_taken_for_those_of_others(tmp_path, monkeypatch):
    """FilesError is an OSError and EnvError a RuntimeError: handlers of those must not wrap ours a second time."""
    save_tree(tmp_path / "kept", {"weights": 1})
    (tmp_path / "kept" / "tree.json").write_text("{}")
    with pytest.raises(FilesError) as error:
        load_tree(tmp_path / "kept")
    assert str(error.value).count(str(tmp_path)) == 1 and "is damaged" in str(error.value)

    def iterations():
        raise EnvError("environment 0: the connection to the robot is lost")
        yield

    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(EnvError, match="robot"):
        Session(tmp_path, [], iterations()).train_to_end()


def test_only_the_first_process_speaks(monkeypatch):
    records = []
    monkeypatch.setattr(logging.getLogger("proximo"), "handle", records.append)
    notify("one")
    warn("two")
    monkeypatch.setenv("RANK", "1")
    warn("three")
    assert [(record.name, record.levelname, record.getMessage()) for record in records] == [
        ("proximo", "INFO", "one"), ("proximo", "WARNING", "two")]


@pytest.mark.parametrize("script,printed", [
    ("notify('one'); warn('two')", "two\n"),
    ("with printed_messages():\n    notify('one'); warn('two')\nnotify('three')", "proximo: one\nproximo: two\n"),
    ("logging.basicConfig(level='INFO', format='%(name)s %(message)s'); notify('one')", "proximo one\n"),
    ("logging.basicConfig(level='INFO')\nwith printed_messages():\n    notify('one')", "proximo: one\n"),
    ("logging.getLogger('proximo').setLevel('ERROR'); warn('two')", "")])
def test_messages_are_silent_at_info_until_a_program_asks_for_them(script, printed):
    """In processes of their own: the logger as it is after the import."""
    imports = "import logging\nfrom proximo.errors import notify, warn\nfrom proximo.cli.messages import printed_messages\n"
    found = subprocess.run([sys.executable, "-c", imports + script], capture_output=True, text=True, timeout=100)
    assert (found.stdout, found.stderr) == ("", printed)


def test_the_nearest_name_is_suggested():
    assert nearest("trian", ["train", "plot"]) == " Did you mean train?" and nearest("xyz", ["train"]) == ""


@pytest.mark.parametrize("words,sentence", [
    ("trian", "trian is not a command. Did you mean train? `proximo --help` lists all"),
    ("train ppo_atary", "ppo_atary is not a variant. Did you mean ppo_atari"),
    ("train CartPole-v1", "CartPole-v1 is not a variant. To name an environment, write proximo train --env-id CartPole-v1."),
    ("train cartpole", "cartpole is not a variant. To name an environment, write proximo train --env-id cartpole. Did you mean Cart"),
    ("train ppo --env-id CartPoll-v1", "env_id=CartPoll-v1 is unknown. Did you mean CartPole-v1"),
    ("train --env-id CartPoll-v1", "env_id=CartPoll-v1 is unknown. Did you mean CartPole-v1"),
    ("train ppo --env-id no_such_module:Env-v0", "env_id=no_such_module:Env-v0: the module no_such_module cannot be"),
    ("train ppo --num-minibatches 3", "batch_size=512 is not divisible by num_minibatches=3. Use 1, 2, 4, 8"),
    ("train ppo --gamma 1.5", "gamma=1.5 must be between 0 and 1"),
    ("train ppo --total-timesteps 100", "total_timesteps=100 is less than one batch, num_envs * num_steps = 512"),
    ("train ppo --learning-rate nan", "learning_rate=nan is not a finite number"),
    ("train ppo --num-env 4", "--num-env is not a flag of this variant. Did you mean --num-envs"),
    ("train ppo --model cnn", "--model cnn needs images"),
    ("train ppo --env-id tests.support.probes:Spoken-v0", "tests.support.probes:Spoken-v0 has the action space Text"),
    ("train ppo --device cuda", "--device cuda needs a GPU, but torch sees none on this machine. Use --device cpu"),
    ("train ppo --device tpu", "device=tpu is unknown. Use cpu, cuda, cuda:N or auto."),
    ("train ppo_atari_envpool_xla_jax --framework torch", "framework=torch is not available in this variant. Use jax."),
    ("eval /no/such/run --episodes 0", "--episodes 0 must be at least 1"),
    ("resume /no/such/run", "/no/such/run is not a run: there is no such folder."),
    ("plot /no/such/run", "/no/such/run"),
    ("eject foo", "foo is not a variant. To name an environment, write proximo eject ppo --env-id foo."),
    ("sweep foo", "foo is not a variant. To name an environment, write proximo sweep --env-id foo."),
    ("sweep search.toml", "search.toml is not a variant. Its runs are started by proximo bench, tune or pbt."),
    ("train my_env.py", "my_env.py is not a variant. To name an environment, write proximo train --env-file my_env.py."),
    ("sweep ppo --seeds a", "--seeds a is not allowed. Use a whole number."),
    ("train --env-id", "--env-id needs a value")])
def test_bad_input(words, sentence, capsys, tmp_path, monkeypatch):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.chdir(tmp_path)
    lines = refused(capsys, *words.split())
    assert any(line.startswith(sentence) for line in lines)
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_all_problems_come_at_once(capsys):
    """Of flags, values, sizes, device, environment: eight mistakes, eight sentences."""
    lines = refused(capsys, "train", "ppo", "--foo", "1", "--seed", "x", "--gamma", "2", "--ent-coef", "nan",
                    "--num-minibatches", "3", "--total-timesteps", "5", "--device", "cuda", "--env-id", "CartPoll-v1")
    starts = ("--foo is not a flag", "--seed x is not allowed", "gamma=2.0", "ent_coef=nan", "total_timesteps=5",
              "batch_size=512", "--device cuda", "env_id=CartPoll-v1")
    assert len(lines) == len(starts) and all(line.startswith(start) for line, start in zip(lines, starts))


def test_an_argument_without_a_value_makes_no_environment(capsys):
    """CartPole-v1 would be made with foo='', which nobody has written."""
    assert refused(capsys, "train", "ppo", "--env-kwargs", "foo") == [
        "env_kwargs: 'foo' is not key=value. Write it like --env-kwargs size=5 continuous=False."]


def test_an_unknown_device_is_told_once(capsys):
    """No second sentence says that it needs a GPU."""
    (line,) = refused(capsys, "train", "ppo", "--device", "gpu")
    assert line == "device=gpu is unknown. Use cpu, cuda, cuda:N or auto."


@pytest.mark.parametrize("words", [
    ["train", "ppo", *SMALL, "--run-dir", "afile"], ["train", "ppo", *SMALL, "--run-dir", "afile/run"],
    ["plot", "run", "--out", "afile/curve.png"], ["bench", "small.toml", "--out", "afile"]], ids=lambda words: f"{words[0]} {words[-1]}")
def test_a_file_in_the_place_of_a_folder_is_told(words, tmp_path, monkeypatch, capsys):
    """Free space on the disk would not help."""
    monkeypatch.chdir(tmp_path)
    Path("afile").write_text("")
    RunFolder(Path("run")).grow(10).finish()
    Path("small.toml").write_text('[[run]]\nvariant = "ppo"\nenv_ids = ["CartPole-v1"]\nsteps = 512\n')
    assert main(words) == FilesError.exit_code
    said = capsys.readouterr().err
    assert "Remove the file that is in the place of the folder, or choose another" in said and "Free" not in said


def test_a_folder_that_cannot_be_written_is_told(tmp_path, capsys):
    """As root every folder can be written, so the error is raised here. A file that cannot be read needs other advice."""
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for path, advice in ((tmp_path / "new", " Make the folder writable, or choose another name."), (tmp_path, "")):
        assert exit_code(partial(refuse, path)) == FilesError.exit_code
        assert capsys.readouterr().err == f"proximo: {path}: Permission denied.{advice}\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_device_and_environment_come_together(capsys, tmp_path):
    """Also where the configuration itself is right."""
    lines = refused(capsys, "train", "ppo", "--device", "cuda", "--env-id", "CartPoll-v1", "--run-dir",
                    str(tmp_path / "run"))
    assert [line.partition(" ")[0] for line in lines] == ["--device", "env_id=CartPoll-v1"]
    assert not (tmp_path / "run").exists()


def test_a_missing_extra_is_named_with_its_command(capsys, monkeypatch, tmp_path):
    """Box2D, and JAX."""
    loaded = [name for name in sys.modules if name.startswith(("Box2D", "gymnasium.envs.box2d"))]
    for name in ["Box2D", "gymnasium.envs.box2d", *loaded]:  # None: as if it were not installed
        monkeypatch.setitem(sys.modules, name, None)
    lines = refused(capsys, "train", "ppo", *SMALL, "--env-id", "LunarLander-v3", "--run-dir", str(tmp_path / "run"))
    assert 'pip install "proximo[box2d]"' in lines[-1]
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    assert 'pip install "proximo[jax]"' in refused(capsys, "train", "ppo", "--framework", "jax")[-1]


def test_a_folder_that_holds_a_run_is_left_alone(capsys, tmp_path):
    assert train(tmp_path) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    line, = refused(capsys, "train", "ppo", *SMALL, "--run-dir", str(tmp_path))[-1:]
    assert f"Resume it with `proximo resume {tmp_path}`" in line
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("how,cause", [
    ("raises", "raised RuntimeError: the motor is on fire"), ("nan_obs", "observation is not finite"),
    ("inf_reward", "reward is inf; it must be a finite number"), ("wrong_shape", "observation has shape (1,); its space"),
    ("no_reward", "reward is"),
    ("four_values", "step returned a tuple of 4")])
def test_an_environment_at_fault_is_named_with_step_and_field(how, cause, capsys, tmp_path):
    assert train(tmp_path / "run", "--env-id", f"tests.support.probes:Faulty_{how}-v0") == 3
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith(f"proximo: environment 0 (tests.support.probes:Faulty_{how}-v0), step 7: {cause}")


def exploding(at_iteration, iterations_calls):
    """ppo_loss that gives NaN from the first minibatch of an iteration on."""
    calls = []

    def loss_fn(inputs, cfg):
        loss, stats = ppo_loss(inputs, cfg)
        if loss.requires_grad:
            calls.append(1)
        first = 1  # call for one row, which checks the function
        return (loss * float("nan") if len(calls) > first + (at_iteration - 1) * iterations_calls else loss), stats

    return loss_fn


def test_a_loss_that_is_not_finite_stops_before_the_step(tmp_path):
    """Exit code 4; what stays are the weights before it, those of a run of two iterations."""
    cfg = Config(num_envs=2, num_steps=16, num_minibatches=2, update_epochs=2, hidden_sizes=(8, 8), total_timesteps=160,
                 logger="none", checkpoint_every=1, anneal_lr=False, run_dir=str(tmp_path / "bad"))
    with pytest.raises(NumbersError, match="not finite in iteration 3, after 64 steps. The weights are those before"):
        proximo.train(cfg, loss_fn=exploding(3, 4))
    proximo.train(replace(cfg, total_timesteps=64, run_dir=str(tmp_path / "good")))
    assert NumbersError.exit_code == 4 and same_weights(tmp_path / "bad", tmp_path / "good")


def test_a_run_that_was_not_finite_is_known_by_its_files(tmp_path):
    """Between checkpoints its log is written every second: the end of its process must not write more of it."""
    cfg = Config(num_envs=2, num_steps=16, num_minibatches=2, update_epochs=2, hidden_sizes=(8, 8), total_timesteps=160,
                 logger="none", run_dir=str(tmp_path / "run"))
    with pytest.raises(NumbersError):
        proximo.train(cfg, loss_fn=exploding(3, 4))
    assert (tmp_path / "run" / "metrics.csv").read_text().count("\n") == 3 and was_not_finite(tmp_path / "run")


class Rewarding(Truncated):
    """A reward near the largest float: finite, and too large for a loss."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 1e30, *rest


gymnasium.register("Rewarding-v0", entry_point=Rewarding)


def test_numbers_that_overflow_end_the_command_with_4(capsys, tmp_path):
    assert train(tmp_path / "run", "--env-id", "Rewarding-v0") == 4
    said = capsys.readouterr().err
    assert "not finite in iteration 1, after 0 steps" in said and "Traceback" not in said
    assert f"proximo doctor {tmp_path / 'run' / 'repro'}" in said
    assert main(["doctor", str(tmp_path / "run" / "repro")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "WRONG loss: value_loss (): 1 of 1 numbers are not finite"
    assert "ok    rollout: reward (16, 2): 1e+30 to 1e+30" in lines and "ok    normalised advantage" in " ".join(lines)


def test_an_update_that_cannot_be_kept_is_told(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("proximo.runs.folder.repro.save_tree", full_json)
    assert train(tmp_path / "run", "--env-id", "Rewarding-v0") == 4
    said = capsys.readouterr().err
    assert said.endswith(f"The batch and the weights could not be written to {tmp_path / 'run' / 'repro'}.\n")


@pytest.mark.parametrize(("part", "name", "line"), [
    ("rollout", "obs", "WRONG rollout: obs (16, 2, 2): 1 of 64 numbers are not finite, the first one at index (0, 0, 0)"),
    ("weights", None, "WRONG weights: "), ("rollout", "logprob", "WRONG rollout: logprob (16, 2): 1 of 32"),
    ("rollout", "next_value", "WRONG rollout: next_value")])
def test_doctor_names_the_first_number_that_is_not_finite(part, name, line, tmp_path, capsys):
    """Against a number that is put there, in an update that is damaged otherwise only in its loss."""
    train(tmp_path / "run", "--env-id", "Rewarding-v0")
    tree = load_tree(tmp_path / "run" / "repro")
    first = name or next(iter(tree[part]))
    tree[part][first].reshape(-1)[0] = np.nan
    save_tree(tmp_path / "repro", tree)
    assert main(["doctor", str(tmp_path / "repro")]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith(line)


def test_doctor_explains_an_update_of_continuous_actions(tmp_path, capsys):
    """Actions (16, 2, 1) have an axis more than `valid`. Only the program's own loss is not finite."""
    cfg = proximo.Continuous(
        env_id="Pendulum-v1", num_envs=2, num_steps=16, num_minibatches=2, update_epochs=2, hidden_sizes=(8, 8),
        total_timesteps=32, logger="none", run_dir=str(tmp_path / "run"))
    with pytest.raises(NumbersError):
        proximo.train(cfg, loss_fn=exploding(1, 4))
    assert main(["doctor", str(tmp_path / "run" / "repro")]) == 0
    said = capsys.readouterr().out
    assert "ok    rollout: action (16, 2, 1)" in said and "All is finite with Proximo's own loss" in said


def test_doctor_of_a_folder_without_an_update(tmp_path, capsys):
    assert refused(capsys, "doctor", str(tmp_path))[0].startswith(f"{tmp_path} is not the folder of a failed update.")


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("what", ["proximo.runs.folder.checkpoint.save_file", "proximo.runs.folder.checkpoint._sync", "proximo.runs.watcher.write_json",
                                  "proximo.runs.logs.log.CsvFile.flush", "proximo.runs.logs.log.CsvFile.write"])
def test_a_full_disk_leaves_the_last_checkpoint(what, capsys, tmp_path, monkeypatch):
    """From iteration 4 on nothing can be written: exit code 5; once there is room, the run ends as the whole one."""
    assert train(tmp_path / "whole") == 0
    with monkeypatch.context() as patch:
        at_iteration(patch, 4, lambda: patch.setattr(what, full if what != "proximo.runs.watcher.write_json" else full_json))
        assert train(tmp_path / "full") == 5
    said = capsys.readouterr().err
    assert "No space left on device" in said and "Traceback" not in said
    assert re.search(rf"The newest checkpoint is of iteration \d+\. Resume with: proximo resume {tmp_path / 'full'}\n", said)
    whole = checkpoints(tmp_path / "full")
    assert whole and all(load_tree(path) for path in whole)
    assert main(["resume", str(tmp_path / "full")]) == 0 and same_weights(tmp_path / "whole", tmp_path / "full")


def full_json(path, content, otherwise=""):
    raise FilesError(f"{path} could not be written (No space left on device)")


def test_a_folder_that_vanishes_ends_the_run(capsys, tmp_path, monkeypatch):
    at_iteration(monkeypatch, 4, lambda: shutil.rmtree(tmp_path / "run"))
    assert train(tmp_path / "run") == 5
    said = capsys.readouterr().err
    assert str(tmp_path / "run") in said and "Traceback" not in said and not (tmp_path / "run").exists()


def test_a_folder_that_another_run_has_taken_is_left_to_it(capsys, tmp_path, monkeypatch):
    """The folder was removed, and a second run was started in it, which this one neither noticed nor left alone."""
    folder, other = tmp_path / "run", tmp_path / "other"
    assert train(other, "--seed", "2") == 0

    def take():
        shutil.rmtree(folder)
        shutil.copytree(other, folder)

    at_iteration(monkeypatch, 4, take)
    assert train(folder) == 5
    said = capsys.readouterr().err
    assert f"{folder / 'metrics.csv'} was replaced by another file" in said and "Traceback" not in said
    assert same_weights(folder, other) and same_logs(folder, other)
    names = [sorted(str(path.relative_to(one)) for path in one.rglob("*")) for one in (folder, other)]
    assert names[0] == names[1]


def test_a_folder_that_cannot_be_made(capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert train(tmp_path / "file" / "run") == 5
    assert "could not be written" in capsys.readouterr().err


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
                                   RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), MemoryError()])
def test_a_full_memory_is_no_fault_of_a_checkpoint(error, capsys):
    """The advice to remove the newest checkpoint would be wrong. Every other error of reading has it."""
    @reading_checkpoint()
    def read(fault):
        raise fault

    assert exit_code(lambda: read(error)) == 2
    assert "The memory is full" in (said := capsys.readouterr().err) and "Remove" not in said
    assert exit_code(lambda: read(RuntimeError("sizes differ"))) == 5
    assert "move the newest folder of checkpoints/ to another place" in capsys.readouterr().err


def test_processes_end_with_the_same_codes():
    """A process of its own: the code reaches the shell, and standard error holds one sentence and no traceback."""
    command = [sys.executable, "-m", "proximo", "train", "ppo", "--gamma", "2"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (found.returncode, found.stderr, found.stdout) == (2, "proximo: gamma=2.0 must be between 0 and 1\n", "")


def test_ctrl_c_twice_ends_at_once(capsys, monkeypatch):
    def interrupted(name, words):
        raise KeyboardInterrupt

    monkeypatch.setattr("proximo.cli.main.command", interrupted)
    assert main(["train"]) == 130 and "interrupted" in capsys.readouterr().err


def test_a_signal_that_ends_a_command_gives_its_exit_code(monkeypatch, capsys):
    """As watch does, while ffmpeg writes; 128 plus the number of the signal."""
    def killed(name, words):
        with interrupt_on_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    monkeypatch.setattr("proximo.cli.main.command", killed)
    assert main(["watch", "RUN"]) == 143 and "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("error,said", [
    (OSError(errno.ENOSPC, "No space left"), "A file could not be written: No space left. Free disk space."),
    (OSError(errno.ENOSPC, "No space left", "/a/b"), "/a/b: No space left. Free disk space."),
    (OSError(errno.EIO, "Input/output error", "/a/b"), "/a/b: Input/output error.")])
def test_a_full_disk_that_nobody_expected_is_one_sentence(error, said, capsys):
    def act():
        raise error

    assert exit_code(act) == 5 and capsys.readouterr().err == f"proximo: {said}\n"


@pytest.mark.parametrize("call,sentence", [
    (lambda: proximo.train("ppo", exp_name="a\nb", env_id="Cart\nPole", gamma="x"),
     "env_id='Cart\\nPole' is not allowed. Write it on one line.\ngamma='x' is not allowed. Use a number.\n"
     "exp_name='a\\nb' is not allowed. Write it on one line."),
    (lambda: proximo.train(run_dir="a\u2028b"), "run_dir='a\\u2028b' is not allowed. Write it on one line."),
    (lambda: proximo.train("p\npo"), "p\\npo is not a variant. Did you mean ppo?"),
    (lambda: proximo.train("ppo", **{"gam\nma": 1}), "gam\\nma is not a field of this variant. Did you mean gamma?"),
    (lambda: proximo.load("no\nrun"), "no\\nrun is not a run: there is no such folder."),
    (lambda: proximo.resume("no\nrun"), "no\\nrun is not a run: there is no such folder."),
    (lambda: proximo.preset("no\npreset"), "There is no preset no\\npreset."),
    (lambda: proximo.load(__file__), f"{__file__} is not a run: it is a file. Files of other libraries: docs/coming-from.md (Trained models).")])
def test_a_name_with_a_line_break_splits_no_message(call, sentence):
    """A message has one problem a line; env_kwargs may have line breaks in their values."""
    with pytest.raises(UsageError) as error:
        call()
    assert str(error.value).startswith(sentence) and len(str(error.value).splitlines()) == len(sentence.splitlines())
    assert not config_problems(proximo.Config(env_kwargs={"text": "a\nb"}))


def test_the_place_of_an_exception_is_the_innermost_line_of_the_users_code():
    """Not that of the library which it calls. A message of several lines is one; what was never raised has no place."""
    def caught(function):
        try:
            function()
        except Exception as error:
            return with_place(error)

    def fails():
        raise RuntimeError("no\nserver")

    line = fails.__code__.co_firstlineno
    assert caught(lambda: fails()) == rf"RuntimeError: no\nserver ({__file__}, line {line + 1})"
    assert caught(lambda: np.zeros(2).reshape(3)).endswith(f"({__file__}, line {line + 5})")
    assert caught(lambda: gymnasium.make("CartPole-v1").step(0)).endswith(f"({__file__}, line {line + 6})")
    assert with_place(ValueError("no")) == "ValueError: no" and with_place(AssertionError()) == "AssertionError"


def test_a_reset_without_a_seed_is_told():
    """As environments for gym have it; other wrong arguments are not."""
    class Old:
        def reset(self):
            pass

    def fault(**given):
        with pytest.raises(TypeError) as caught:
            Old().reset(**given)
        return with_place(caught.value)

    assert "reset(seed=None, options=None)" in fault(seed=1) and "Gymnasium" not in fault(size=1)
