"""Signals while a run trains: it ends within seconds, and the newest finished iteration is saved, also where the next
one never ends."""

import gc
import importlib.util
import inspect
import os
import signal
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

from proximo.cli.main import main
from proximo.config import Config
from proximo.runs.custom_parts import CustomParts
from proximo.runs.folder.checkpoint import checkpoints
from proximo.runs.interrupts.recent import Recent, copied
from proximo.runs.interrupts.signals import ENTERED, Signals, register_fork_handler
from proximo.runs.interrupts.unbroken import COMPILER, KEPT, unbroken_imports
from proximo.runs.settings.arguments import for_programs
from proximo.types import FinishedEpisodes, Iteration
from tests.support.probes import Faulty
from tests.support.runs import SMALL, same_logs, same_weights, train

LATE = ["--env-id", "tests.support.probes:Faulty_hangs-v0", "--env-kwargs", "at=90"]  # in iteration 6; saved are 3, 6, 9


@pytest.fixture
def impatient(monkeypatch):
    """Grace of 0.2 s, and a copy of every iteration."""
    monkeypatch.setattr("proximo.runs.interrupts.signals.GRACE_SECONDS", 0.2)
    monkeypatch.setattr("proximo.runs.interrupts.recent.LEAST_SECONDS", 0.0)
    monkeypatch.setattr("proximo.runs.interrupts.recent.SHARE", 1e9)


def hang(*numbers):
    """What an environment does: send these signals to its process, and sleep."""
    def misbehave(self, answer):
        for number in numbers:
            os.kill(os.getpid(), number)
        time.sleep(100)

    return misbehave


@pytest.mark.parametrize(("numbers", "ended"), [
    ((signal.SIGTERM,), "Stopped by SIGTERM"), ((signal.SIGINT, signal.SIGINT), "Stopped by SIGINT"),
    ((signal.SIGTERM, signal.SIGTERM), "Stopped by SIGTERM")])
def test_an_iteration_that_does_not_end_costs_only_itself(numbers, ended, impatient, tmp_path, monkeypatch, capsys):
    """The checkpoint is that of the iteration before, and continues to the weights of an uninterrupted run."""
    with monkeypatch.context() as patch:
        patch.setattr(Faulty, "misbehave", lambda self, answer: answer)
        assert train(tmp_path / "whole", *LATE) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Faulty, "misbehave", hang(*numbers))
        begin = time.monotonic()
        assert train(tmp_path / "run", *LATE) == 128 + numbers[0]
        assert time.monotonic() - begin < 30
    said = capsys.readouterr().err
    assert f"{ended} before the iteration had ended. The newest checkpoint is of iteration 5. Resume with" in said
    assert [int(path.name) for path in checkpoints(tmp_path / "run")] == [3, 5]
    assert not (tmp_path / "run" / "summary.json").exists() and not (tmp_path / "run" / ".lock").exists()
    monkeypatch.setattr(Faulty, "misbehave", lambda self, answer: answer)
    assert main(["resume", str(tmp_path / "run"), "--allow-import", "tests"]) == 0
    assert same_weights(tmp_path / "whole", tmp_path / "run") and same_logs(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize(("number", "advised"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_an_environment_that_fails_after_a_signal_does_not_hide_it(number, advised, impatient, tmp_path, monkeypatch,
                                                                   capsys):
    """Ctrl-C ends the engine of a game, too. The run ended with exit code 3 and without the reason."""
    def lose_engine(self, answer):
        os.kill(os.getpid(), number)
        raise ConnectionResetError("the engine has ended")

    monkeypatch.setattr(Faulty, "misbehave", lose_engine)
    assert train(tmp_path / "run", *LATE) == 128 + number
    said = capsys.readouterr().err
    assert "ConnectionResetError: the engine has ended" in said and ("start_new_session=True" in said) == advised
    assert f"Stopped by {number.name} before the iteration had ended. The newest checkpoint is of iteration 5." in said


def test_nothing_is_waited_for_before_the_first_iteration_has_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("proximo.runs.interrupts.signals.GRACE_SECONDS", 90.0)
    monkeypatch.setattr(Faulty, "misbehave", hang(signal.SIGTERM))
    begin = time.monotonic()
    assert train(tmp_path / "run", "--env-id", "tests.support.probes:Faulty_hangs-v0", "--env-kwargs", "at=5") == 143
    assert time.monotonic() - begin < 30
    assert "before the iteration had ended. No checkpoint exists: a resume begins with the first iteration. Resume with" in capsys.readouterr().err


def test_native_code_that_never_returns_does_not_keep_the_process(tmp_path):
    """The main thread is stuck in a native call, where no handler of Python runs: another thread saves, and exits."""
    script = ("import sys\nfrom proximo.cli.main import main\nfrom proximo.runs.interrupts import recent, signals\n"
              "from tests.support.probes import Faulty\n"
              "recent.LEAST_SECONDS, recent.SHARE, signals.GRACE_SECONDS = 0.0, 1e9, 0.5\nsys.exit(main(sys.argv[1:]))")
    words = ["train", "ppo", *SMALL, *LATE, "--env-id", "tests.support.probes:Faulty_stuck-v0"]
    process = subprocess.Popen([sys.executable, "-c", script, *words, "--run-dir", str(tmp_path / "run")],
                               stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run" / "checkpoints" / "00000003").exists() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(1)
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 143 and time.monotonic() - begin < 30
    assert "The newest checkpoint is of iteration 5. Resume with" in said and "Traceback" not in said


@pytest.mark.parametrize(("number", "again"), [(signal.SIGINT, "press Ctrl-C again"),
                                               (signal.SIGTERM, "send the signal again")])
def test_a_signal_is_answered_at_once_and_the_second_one_interrupts(number, again, capsys):
    before, fd = signal.getsignal(number), signal.set_wakeup_fd(-1)
    abandoned = []
    with Signals(abandoned.append) as signals:
        signals.iteration_ended()
        os.kill(os.getpid(), number)
        assert signals.received == number
        assert capsys.readouterr().err == f"proximo: Stopping after this iteration; {again} to stop now.\n"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        signals.abandon_once()
        signals.abandon_once()
    assert abandoned == [number]
    assert signal.getsignal(number) == before and signal.set_wakeup_fd(fd) == -1


@pytest.mark.parametrize(("ends_process", "file", "kept"), [(True, "x.py", True), (False, "x.py", False), (False, COMPILER, True)])
def test_what_the_frames_of_an_interrupt_hold_is_kept(ends_process, file, kept):
    """XLA may still read it while it compiles. In a program that goes on only that is kept, and other arrays are freed."""
    held = np.zeros(1)
    gone = weakref.ref(held)
    with Signals(ends_process=ends_process) as signals:
        try:
            interrupted_in(file, held)
        except KeyboardInterrupt as error:
            signals.abandon_once(error)
    del held
    assert (gone() is not None) == kept
    KEPT.clear()


def in_a_call(file, held):
    """As in proximo.evaluate, watch and check_env."""
    with unbroken_imports():
        interrupted_in(file, held)


def in_iterations(file, held):
    """As in proximo.iterations."""
    def training():
        interrupted_in(file, held)
        yield

    next(for_programs(training(), Config(), "ppo", CustomParts()))


@pytest.mark.parametrize(("file", "kept"), [("x.py", False), (COMPILER, True)])
@pytest.mark.parametrize("interrupted", [in_a_call, in_iterations])
def test_what_xla_reads_is_kept_without_signals_too(interrupted, file, kept):
    held = np.zeros(1)
    gone = weakref.ref(held)
    with pytest.raises(KeyboardInterrupt):
        interrupted(file, held)
    del held
    gc.collect()
    assert (gone() is not None) == kept
    KEPT.clear()


def interrupted_in(file, held):
    """Raise KeyboardInterrupt in a function of a file, whose frame holds an array."""
    names = {}
    exec(compile("def raise_with(held):\n    raise KeyboardInterrupt", f"/site-packages/{file}", "exec"), names)
    names["raise_with"](held)


def test_jax_waits_for_xla_in_this_file():
    compiler = pytest.importorskip("jax._src.compiler")
    assert compiler.__file__.endswith(COMPILER) and "compile_and_load(" in inspect.getsource(compiler)


def test_an_iteration_that_ends_in_time_has_time_to_save(impatient):
    """After it, the thread does not interrupt what is written."""
    with Signals() as signals:
        signals.iteration_ended()
        os.kill(os.getpid(), signal.SIGTERM)
        signals.iteration_ended()
        time.sleep(1.5)


def test_ctrl_c_waits_for_the_iteration_and_the_first_signal_is_the_reason(impatient):
    """Only SIGTERM has a time after which the iteration is given up. A second signal, of any kind, ends it at once."""
    with Signals() as signals:
        signals.iteration_ended()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.8)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGINT


def test_signals_to_a_forked_process_are_its_own(impatient):
    """Its SIGTERM ends it, and is not taken for one of this process."""
    with Signals() as signals:
        signals.iteration_ended()
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        time.sleep(1.5)
        assert signals.received is None


def test_many_trainings_register_one_handler_of_forks(monkeypatch):
    """It cannot be removed: after 5,000 trainings a fork took 2.6 times as long."""
    registered = []
    monkeypatch.setattr(os, "register_at_fork", lambda **handlers: registered.append(handlers))
    register_fork_handler.cache_clear()
    for _ in range(3):
        with Signals():
            pass
    register_fork_handler.cache_clear()  # a later test registers the real one again
    assert len(registered) == 1 and not ENTERED


class LogStub:
    def state(self):
        return {"step": 1}


def test_copies_are_rare_where_they_are_expensive(monkeypatch):
    """At most one a second, and at most 1 % of the time: against a clock that only copying moves."""
    now, taken = [0.0], []
    monkeypatch.setattr("proximo.runs.interrupts.recent.time.perf_counter", lambda: now[0])

    def snapshot():
        taken.append(now[0])
        now[0] += cost
        return {"weights": np.zeros(2)}

    nothing = np.zeros(0)
    it = Iteration(iteration=1, steps=1, stats={}, finished=FinishedEpisodes(nothing, nothing, nothing, nothing),
                   snapshot=snapshot, weights=dict, call_envs=list, spec=None, players=(), statistics=None,
                   keeps_state=True)
    for cost, expected in ((0.001, 1.001), (0.05, 5.05)):  # noqa: B007 (snapshot reads it)
        recent, now[0] = Recent(), 0.0
        taken.clear()
        while now[0] < 20:
            recent.offer({0: (it, LogStub(), ())})
            now[0] += 0.01
        assert min(np.diff(taken)) >= expected and max(np.diff(taken)) < expected + 0.011
    recent = Recent()
    recent.offer({0: (it, LogStub(), ()), 1: (it._replace(keeps_state=False), LogStub(), ())})
    assert recent.contents == {}


def test_a_copy_shares_no_array():
    tree = {"a": [np.zeros(2), {"b": np.ones(1)}], "c": "text"}
    other = copied(tree)
    tree["a"][0][:] = tree["a"][1]["b"][:] = 5
    assert other["a"][0].tolist() == [0, 0] and other["a"][1]["b"].tolist() == [1] and other["c"] == "text"


SCRIPT = """
import sys
import proximo
proximo.train("ppo", env_id="CartPole-v1", framework="jax", logger="none", num_seeds=2, run_dir=sys.argv[1])
"""
CAUGHT = SCRIPT.replace("proximo.train", "try:\n    proximo.train") + "except KeyboardInterrupt:\n    pass\n"


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX is not installed")
@pytest.mark.parametrize("words", [["-m", "proximo", "train", "ppo", "--env-id", "CartPole-v1", "--framework", "jax", "--logger", "none",
                                    "--num-seeds", "2", "--run-dir"], ["-c", SCRIPT], ["-c", CAUGHT]], ids=["command", "call", "caught"])
def test_a_signal_while_xla_compiles_ends_the_process_in_order(words, tmp_path):
    """XLA compiles on a thread of its own, here for seconds. The end of the interpreter would wait for it, or crash (exit
    code 139). JAX prints when it begins."""
    expected = {0: -signal.SIGINT, 1: 0}[words[1] is CAUGHT] if words[0] == "-c" else 130  # as other programs in Python
    env = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "XLA_FLAGS": "", "PYTHONPATH": os.getcwd(), "JAX_LOG_COMPILES": "1"}
    process = subprocess.Popen([sys.executable, "-u", *words, str(tmp_path / "run")], env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    before = []
    while not before or (before[-1] and not ("Compiling" in before[-1] and "run_all" in before[-1])):
        before.append(process.stdout.readline())  # "" at the end
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=600)
    assert process.returncode in (expected, 130) and before[-1], "".join([*before, said])[-2000:]  # 130: it did not leave XLA within a second
    assert "Stopped by SIGINT" in said and "Fatal" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="on_exit of glibc")
def test_destructors_of_native_libraries_are_skipped_and_everything_is_written():
    """What is registered first, as libraries do when they are loaded, would be called last, and aborts here."""
    program = ("import ctypes, sys\nfrom proximo.runs.logs.output import skip_destructors\nlibc = ctypes.CDLL(None)\n"
               "libc.__cxa_atexit(libc.abort, None, None)\nskip_destructors()\nlibc.printf(b'of C ')\n"
               "print('of Python')\nsys.exit(3)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 3 and sorted(done.stdout.split()) == ["C", "Python", "of", "of"]
