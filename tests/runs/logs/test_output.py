"""Standard streams that are closed, full or without a reader: training ends with 0, and all of its files are there."""

import fcntl
import io
import os
import shlex
import subprocess
import sys

import pytest

import proximo
from proximo.cli.main import main
from proximo.on_torch.loss import ppo_loss
from proximo.runs.folder.checkpoint import checkpoints
from proximo.runs.logs.output import return_text
from tests.support.runs import SMALL, rows, train, weights

WORDS = [word for word in SMALL if word not in ("--logger", "none")]
STREAMS = {
    "reader leaves": "| true", "reader takes one line": "| head -1", "errors into a pipe without reader": "2>&1 | true",
    "full output": "> /dev/full", "full errors": "2> /dev/full", "all full": "> /dev/full 2>&1",
    "closed output": ">&-", "closed errors": "2>&-", "all closed": "<&- >&- 2>&-"}


def shell(command):
    return subprocess.run(["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("redirection", STREAMS.values(), ids=STREAMS)
def test_output_can_neither_end_nor_prevent_training(redirection, tmp_path):
    """The files hold what was meant for them: no line of a message, of which a closed stream's number was taken."""
    run = tmp_path / "run"
    done = shell(f"{sys.executable} -m proximo train ppo {' '.join(WORDS)} --run-dir {run} {redirection}")
    assert done.returncode == 0 and "Traceback" not in done.stderr + done.stdout
    assert [int(row["iteration"]) for row in rows(run, "metrics.csv")] == list(range(1, 11))
    assert (run / "summary.json").exists() and weights(run)
    assert "proximo" not in (run / "metrics.csv").read_text() + (run / "episodes.csv").read_text()


class Written:
    """A stream with write() alone."""

    def write(self, text):
        return len(text)


@pytest.mark.parametrize("stream", [io.StringIO, Written])
def test_streams_of_a_program_cannot_end_training(stream, tmp_path, monkeypatch):
    """One that was closed, and one without flush(): both ended training after the first iteration."""
    stream = stream()
    if hasattr(stream, "close"):
        stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    run = proximo.train("ppo", env_id="CartPole-v1", num_envs=2, num_steps=16, total_timesteps=64, run_dir=tmp_path / "run")
    monkeypatch.undo()
    assert (run / "summary.json").exists() and len(rows(run, "metrics.csv")) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have pipes of other sizes")
def test_output_that_does_not_block_is_written_as_a_whole():
    """A program that shares a terminal may make it non-blocking. Python left out what did not fit, with exit code 0."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write, False)
    listed = subprocess.Popen([sys.executable, "-m", "proximo", "list", "presets"], stdout=write)
    os.close(write)
    with pytest.raises(subprocess.TimeoutExpired):  # it waits for somebody who reads
        listed.wait(5)
    with open(read, encoding="utf-8") as pipe:
        text = pipe.read()
    assert listed.wait(60) == 0 and len(text) > 5000 and text.endswith("the defaults of a variant.\n")


def test_a_result_that_cannot_be_written_is_told(tmp_path):
    """The output of other commands is what they are for."""
    done = shell(f"{sys.executable} -m proximo --version > /dev/full; {sys.executable} -m proximo list presets > /dev/full")
    assert done.returncode == 5 and "Traceback" not in done.stderr
    assert "proximo: The output could not be written (No space left on device)." in done.stderr


def test_output_has_an_encoding_without_the_characters_of_a_name(tmp_path):
    """They are escaped, as on standard error."""
    picture = tmp_path / "Bild-ü.png"
    assert train(tmp_path / "run", "--total-timesteps", "32") == 0
    done = shell(f"PYTHONIOENCODING=ascii {sys.executable} -m proximo plot {tmp_path / 'run'} --out {picture}")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/Bild-\\xfc.png\n") and picture.exists(), done.stderr


def test_what_to_do_next_is_said(tmp_path, capsys):
    assert train(tmp_path / "run", "--total-timesteps", "32") == 0
    run = tmp_path / "run"
    assert capsys.readouterr().err.endswith(
        f"proximo: Done: {run}\nproximo: Next: proximo eval {run}, proximo watch {run}, proximo plot {run}\n")
    spaces = tmp_path / "my runs" / "it's"
    assert train(spaces, "--total-timesteps", "32") == 0
    commands = capsys.readouterr().err.rpartition("Next: ")[2].split(", ")
    assert [shlex.split(one) for one in commands] == [["proximo", name, str(spaces)] for name in ("eval", "watch", "plot")]


@pytest.mark.parametrize(("error", "part"), [(SystemExit(0), r"called sys.exit\(0\)"), (SystemExit(7), r"called sys.exit\(7\)"),
                                             (KeyboardInterrupt(), "raised KeyboardInterrupt")])
def test_a_part_that_exits_does_not_end_with_its_code(error, part, tmp_path):
    """A loss of one's own, without a signal from the user; environments are tested in tests/envs."""
    def leave(*_):
        raise error

    with pytest.raises(proximo.EnvError, match=rf"{part} while it trained. Resume with: proximo.resume"):
        proximo.train("ppo", loss_fn=leave, run_dir=tmp_path / "run", total_timesteps=512, logger="none")
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ZeroDivisionError()])
def test_finished_iterations_are_saved_whatever_a_callback_raises(error, tmp_path, monkeypatch):
    """After a KeyboardInterrupt that no signal has caused they were lost."""
    monkeypatch.setattr("proximo.runs.interrupts.recent.LEAST_SECONDS", 1e9)  # of the three iterations, the first is copied

    def leave(it):
        if it.iteration == 3:
            raise error

    with pytest.raises((proximo.EnvError, ZeroDivisionError)):
        proximo.train("ppo", callbacks=[leave], run_dir=tmp_path / "run", total_timesteps=512 * 4, logger="none")
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["00000001"]


def test_a_callback_that_exits_is_named(tmp_path):
    with pytest.raises(proximo.EnvError, match=r"the loss or a callback called sys.exit\(3\) .* proximo.StopTraining"):
        proximo.train("ppo", callbacks=[lambda it: sys.exit(3)], run_dir=tmp_path / "run", total_timesteps=512, logger="none")


def test_a_program_that_failed_before_the_first_iteration_may_use_its_folder_again(tmp_path):
    """Whatever it raised; afterwards the run stays, to be resumed."""
    calls = []

    def fails(batch, cfg):
        calls.append(1)
        if len(calls) == limit:
            raise TypeError("a mistake")
        return ppo_loss(batch, cfg)

    words = {"run_dir": tmp_path / "run", "total_timesteps": 64, "num_envs": 2, "num_steps": 16, "logger": "none"}
    for limit in (3, 30):
        calls.clear()
        with pytest.raises(TypeError, match="a mistake"):
            proximo.train("ppo", loss_fn=fails, **words)
        assert (tmp_path / "run" / "config.json").exists() == (limit == 30)
    call = rf"contains a run already. Resume it with `proximo\.resume\('{tmp_path}/run', loss_fn=\.\.\.\)`"
    with pytest.raises(proximo.UsageError, match=call):
        proximo.train("ppo", loss_fn=ppo_loss, **words)


def test_a_crash_of_native_code_prints_where_it_happened(tmp_path):
    """A segmentation fault in the process itself, with the stack of Python; no summary.json says that the run has finished."""
    crash = tmp_path / "crash.py"
    crash.write_text("import ctypes\nimport gymnasium\nclass Crash(gymnasium.Env):\n    observation_space = gymnasium.spaces.Box(-1, 1)\n"
                     "    action_space = gymnasium.spaces.Discrete(2)\n"
                     "    def reset(self, *, seed=None, options=None):\n        ctypes.string_at(0)\n")
    done = shell(f"{sys.executable} -m proximo train --env-file {crash} --run-dir {tmp_path / 'run'} --logger none")
    assert done.returncode not in (0, 1, 2, 3) and "Segmentation fault" in done.stderr and f'{crash}", line 7' in done.stderr
    assert not (tmp_path / "run" / "summary.json").exists()


def test_the_entity_of_a_recorded_run_is_not_used(tmp_path, capsys, monkeypatch):
    """config.json may be a stranger's: it must not decide where host name and curves are sent."""
    used = []
    monkeypatch.setattr("proximo.runs.logs.log.start_tracker", lambda run, ids: used.append(run.cfg.wandb_entity))
    words = ("--track", "--wandb-entity", "team")
    train(tmp_path / "run", *words)
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "352"]) == 0
    assert "Biases entity 'team'. A resume uses it only if it is given again: --wandb-entity team" in capsys.readouterr().err
    train(tmp_path / "run", *words, "--total-timesteps", "384", "--resume", "auto")
    assert used == ["team", "", "team"]


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0.00"), (-0.0, "-0.00"), (0.0142784, "0.0143"), (-0.00000123456, "-1.23e-06"), (0.1, "0.10"), (500.0, "500.00"),
    (float("nan"), "nan")])
def test_small_returns_keep_three_digits(value, text):
    assert return_text(value) == text


@pytest.mark.parametrize(("code", "module", "waits"), [(130, "jax", False), (143, "jax", False), (3, "jax", True), (130, "jaxtyping", True)])
def test_a_command_that_a_signal_ended_does_not_wait_for_xla(code, module, waits):
    """JAX destroys its backend at exit, while threads of XLA still use it: `proximo eval` ended with exit code 139."""
    program = ("import atexit, sys\nimport proximo.cli.main as cli\natexit.register(print, 'late')\nprint('printed', end=' ')\n"
               f"sys.modules[{module!r}], sys.argv, cli.main = sys, ['proximo', 'eval', 'RUN'], lambda: {code}\ncli.run()")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (code, ["printed", "late"] if waits else ["printed"])
