"""`proximo check-env` against environments that end or stop the process that checks them."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from proximo.cli import check_command
from proximo.cli.check_process import CallClock
from proximo.cli.main import main
from proximo.config import Config

FAILS = """
import os, signal, time
import gymnasium as gym

class Fails(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, how):
        self.how = how

    def reset(self, *, seed=None, options=None):
        if self.how == "exits":
            os._exit(0)
        if self.how == "forks":
            if child := os.fork():
                print("forked", child, flush=True)
                os._exit(0)
            time.sleep(600)
            os._exit(0)
        return 0, {}

    def step(self, action):
        if self.how == "native":  # as a loop in native code: no signal interrupts it
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        if self.how in ("native", "hangs"):
            time.sleep(600)
        if self.how == "leaves":
            raise SystemExit(0)
        return 0, 0.0, True, False, {}

    def close(self):
        if self.how == "crashes":
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("how", "words"), [
    ("exits", "reset() ended the process with exit code 0"), ("native", "step() did not return within 3 s. Increase --env-timeout"),
    ("hangs", "step() did not return within 3 s. Increase --env-timeout if it needs more time"), ("leaves", "step 1: SystemExit: 0"),
    ("crashes", "close() ended the process with signal SIGKILL"), ("import", "importing it did not return within 3 s")])
def test_what_ends_or_stops_the_process_is_an_environment_fault(how, words, tmp_path, monkeypatch, capfd):
    """One sentence names the call, what was found before is printed, and the exit code is 3."""
    monkeypatch.setattr("proximo.cli.check_process.GRACE_SECONDS", 1.0)
    script = tmp_path / "fails.py"
    script.write_text(FAILS + "time.sleep(600)" * (how == "import"))
    limit = "3" if "3 s" in words else "60"
    code = main(["check-env", "--env-file", str(script), "--env-kwargs", f"how={how}", "--env-timeout", limit])
    seen = capfd.readouterr()
    assert code == 3 and words in seen.out and seen.out.count("WRONG") == 1, seen
    assert "Traceback" not in seen.err and ("is supported" in seen.out) == (how != "import")
    assert "Training would stop there too" in seen.out and ("Fix the environment" in seen.out) != ("Increase --env-timeout" in seen.out)


def test_a_process_that_outlives_the_environment_is_not_waited_for(tmp_path, capfd):
    """A forked process holds the pipe of the check; it sleeps when the command has ended, on a slow machine too."""
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    code = main(["check-env", "--env-file", str(script), "--env-kwargs", "how=forks"])
    seen = capfd.readouterr().out
    assert code == 3 and "reset() ended the process with exit code 0" in seen
    os.kill(int(seen.partition("forked ")[2].split()[0]), signal.SIGKILL)  # raises if it has ended


def test_other_faults_and_unknown_ids_have_exit_code_2(capfd):
    """The findings of the process are printed by the command, and so is its error."""
    assert main(["check-env", "tests.support.probes:Spoken-v0"]) == 2
    assert "WRONG" in capfd.readouterr().out
    assert main(["check-env", "CartPol-v1"]) == 2
    seen = capfd.readouterr()
    assert "CartPole-v1" in seen.err and "Traceback" not in seen.err and not seen.out


def test_the_environment_is_named_as_for_train_too(monkeypatch, capsys):
    """Alone, or after --env-id; two names are refused."""
    checked = []
    monkeypatch.setattr(check_command, "findings_of_process", lambda env_id, cfg: checked.append((env_id, cfg.env_id)) or [])
    for words in (["Acrobot-v1"], ["--env-id", "Acrobot-v1"], ["Acrobot-v1", "--env-id", "Acrobot-v1"]):
        assert main(["check-env", *words]) == 0
    assert main(["check-env", "--env-file", __file__]) == 0
    assert checked == [("Acrobot-v1", "Acrobot-v1")] * 3 + [(None, Config().env_id)]
    capsys.readouterr()
    assert main(["check-env", "Acrobot-v1", "--env-id", "CartPole-v1"]) == 2
    assert capsys.readouterr().err == ("proximo: check-env checks one environment, and Acrobot-v1 and --env-id CartPole-v1 were given. "
                                       "Give one of them.\n")
    assert main(["check-env", "--grayscale"]) == 2
    assert capsys.readouterr().err.startswith("proximo: check-env needs an environment: ")


class Returning:
    """A call of another process that returns, which sets its deadline to 0, after `reads` reads of the deadline."""

    def __init__(self, reads):
        self.reads = reads

    @property
    def deadline(self):
        self.reads -= 1
        return time.monotonic() + 60 if self.reads >= 0 else 0.0


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_call_that_returns_while_it_is_looked_at_is_not_overdue(reads):
    clock = CallClock(Returning(reads))
    assert not any(clock.is_overdue() for _ in range(4))
    assert CallClock(SimpleNamespace(deadline=time.monotonic() - 60)).is_overdue()


def test_time_in_which_all_is_stopped_does_not_count_in_a_check(monkeypatch):
    """A call with a limit of 10 s and 5 s to end: looked at every second, but for an hour after the third look (Ctrl-Z)."""
    now = [1000.0]
    monkeypatch.setattr("proximo.cli.check_process.time.monotonic", lambda: now[0])
    call = SimpleNamespace(deadline=now[0] + 10)
    clock, looks = CallClock(call), 0
    while not clock.is_overdue():
        looks += 1
        now[0] += 3600 if looks == 3 else 1
    assert 13 <= looks <= 15
    call.deadline = now[0] + 10  # the next call
    assert not clock.is_overdue()
