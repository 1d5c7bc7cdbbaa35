"""SIGTERM ends a command as Ctrl-C does: environments are closed, and with them what they have started."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from proximo.cli.main import main
from tests.support.runs import SMALL

GAME = """import subprocess, sys, time
from pathlib import Path
from tests.support.probes import Probe


class Game(Probe):
    def __init__(self, slow=0.0):
        self.slow = slow
        self.engine = subprocess.Popen(["sleep", "300"], start_new_session=True)
        with open(Path(__file__).parent / "engines", "a") as file:
            file.write(f"{self.engine.pid}\\n")

    def step(self, action):
        time.sleep(self.slow)
        return super().step(action)

    def close(self):
        self.engine.kill()
        self.engine.wait()
"""


@pytest.mark.parametrize("command", ["eval", "check-env"])
def test_commands_close_environments_on_sigterm(command, tmp_path):
    (tmp_path / "game.py").write_text(GAME)
    words = ["check-env", "--env-file", str(tmp_path / "game.py")]
    if command == "eval":
        assert main(["train", "ppo", *SMALL, "--env-file", str(tmp_path / "game.py"), "--run-dir", str(tmp_path / "run")]) == 0
        words = ["eval", str(tmp_path / "run"), "--allow-import", str(tmp_path / "game.py")]
        (tmp_path / "engines").unlink()
    process = subprocess.Popen([sys.executable, "-m", "proximo", *words, "--env-kwargs", "slow=0.1"],
                               stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "engines").exists() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 143 and "proximo: interrupted" in said, said
    engines = [int(line) for line in (tmp_path / "engines").read_text().split()]
    assert engines
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in engines)
