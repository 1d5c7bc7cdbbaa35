"""Signals during an import: against a module that takes half a second, interrupted in its middle."""

import importlib
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from proximo.runs.interrupts.signals import Signals
from proximo.runs.interrupts.unbroken import TRACER, Unbroken, unbroken_imports

SLOW = """
import os, signal, time
os.kill(os.getpid(), {number})
time.sleep({seconds})
whole = True
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """Return the name of a module that sends a signal to its process while it is imported."""
    def write(number, seconds=0.2):
        (tmp_path / "slow_module.py").write_text(SLOW.format(number=int(number), seconds=seconds))
        return "slow_module"

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield write
    sys.modules.pop("slow_module", None)


@pytest.fixture(autouse=True)
def python_handler():
    """Ctrl-C is a KeyboardInterrupt, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def import_and_wait(name):
    module = importlib.import_module(name)
    time.sleep(60)
    return module


def test_an_import_is_not_broken_and_the_interrupt_follows(slow):
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), unbroken_imports():
        import_and_wait(slow(signal.SIGINT))
    assert sys.modules["slow_module"].whole and time.monotonic() - begin < 30
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_import_outside_of_the_block_is_broken(slow):
    """Otherwise the tests above would pass without the block."""
    with pytest.raises(KeyboardInterrupt):
        import_and_wait(slow(signal.SIGINT))
    assert "slow_module" not in sys.modules


def test_a_program_that_is_imported_itself_is_interrupted_at_once(tmp_path, monkeypatch):
    """Its module level calls the function that is not to be broken."""
    (tmp_path / "slow_module.py").write_text("import os, signal, time\nfrom proximo.runs.interrupts.unbroken import unbroken_imports\n"
                                             "with unbroken_imports():\n    os.kill(os.getpid(), signal.SIGINT)\n"
                                             "    time.sleep(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("slow_module")
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_is_interrupted_after_the_import(number, slow, monkeypatch):
    """The other thread, which ends a process that does not leave, waits for the import, and until the signal is sent again."""
    ended = []
    monkeypatch.setattr("proximo.runs.interrupts.unbroken.LOOKS", 2.0)  # that is a second after the import
    monkeypatch.setattr("proximo.runs.interrupts.signals.os._exit", ended.append)
    monkeypatch.setattr("proximo.runs.interrupts.signals.LEAVE_SECONDS", 0.5)
    with Signals() as signals:
        with pytest.raises(KeyboardInterrupt):
            import_and_wait(slow(number, seconds=1.0))
        assert signals.received == number and sys.modules["slow_module"].whole
    assert ended == []


def test_one_signal_in_an_iteration_is_one_signal(slow):
    """It is sent again after the import, and must not count as a second one, which would end the process."""
    with Signals() as signals:
        signals.iteration_ended()
        importlib.import_module(slow(signal.SIGINT))
        for _ in range(100):
            time.sleep(0.01)
        assert signals.received == signal.SIGINT  # and no KeyboardInterrupt was raised


def test_a_program_is_not_ended_by_one_interrupt(monkeypatch, caplog):
    """Native code that returns after a second; a command would be ended."""
    monkeypatch.setattr("proximo.runs.interrupts.signals.LEAVE_SECONDS", 0.1)
    ended = []
    monkeypatch.setattr("proximo.runs.interrupts.signals.os._exit", ended.append)
    for ends_process in (False, True):
        with Signals(lambda number: None, ends_process) as signals:
            monkeypatch.setattr(signals, "_note", None)
            signal.signal(signal.SIGINT, lambda *_: None)  # native code: nothing is raised
            os.kill(os.getpid(), signal.SIGINT)
            deadline = time.monotonic() + 10
            while not (ended or "Interrupt again" in caplog.text) and time.monotonic() < deadline:
                time.sleep(0.05)
        assert ended == [130] * ends_process and ("Interrupt again" in caplog.text) != ends_process
        caplog.clear()


def test_another_thread_is_left_alone():
    """Python delivers signals to the main thread only."""
    found = []

    def work():
        with unbroken_imports():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_a_call_within_a_callback_counts_one_signal_once(slow, monkeypatch):
    """proximo.check_env and others have a block of their own, within the handlers of the run."""
    ended = []
    monkeypatch.setattr("proximo.runs.interrupts.signals.os._exit", ended.append)
    monkeypatch.setattr("proximo.runs.interrupts.signals.LEAVE_SECONDS", 0.1)
    with Signals() as signals:
        signals.iteration_ended()
        with unbroken_imports():
            importlib.import_module(slow(signal.SIGINT))
            time.sleep(0.5)
        assert signals.received == signal.SIGINT
    assert ended == []


def test_an_import_that_does_not_end_is_broken_at_last(tmp_path, monkeypatch):
    """After MOST_SECONDS, or by another signal a second after the first."""
    monkeypatch.setattr("proximo.runs.interrupts.unbroken.MOST_SECONDS", 0.3)
    (tmp_path / "slow_module.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), unbroken_imports():
        importlib.import_module("slow_module")
    assert 0.2 < time.monotonic() - begin < 30


def test_tracing_is_not_broken():
    """A frame of torch's tracer, at the end of whose C++ callers the process would be aborted."""
    names = {}
    exec(compile("def trace(work):\n    work()\n", f"/site-packages/{TRACER}", "exec"), names)
    done = []

    def work():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        done.append(True)

    with pytest.raises(KeyboardInterrupt), unbroken_imports():
        names["trace"](work)
        time.sleep(60)
    assert done


def test_another_signal_a_second_after_the_first_breaks_the_import(monkeypatch):
    """So that a second Ctrl-C of somebody who does not want to wait counts at once. One that is sent again is the first one."""
    now, scope = [0.0], {}
    monkeypatch.setattr("proximo.runs.interrupts.unbroken.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Unbroken, "_send_again", lambda self, number: None)
    exec(compile("import sys\ndef frame():\n    return sys._getframe()", "<frozen importlib._bootstrap>", "exec"), scope)
    unbroken = Unbroken()
    postponed = []
    for now[0], unbroken._sent in ((0.0, False), (0.5, False), (1.5, True), (1.5, False)):
        postponed.append(unbroken.postpones(signal.SIGINT, scope["frame"]()))
    assert postponed == [True, True, True, False]
