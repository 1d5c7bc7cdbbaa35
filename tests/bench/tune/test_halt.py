"""What a search does at a signal."""

import subprocess
import sys

PROGRAM = """
import signal, sys
from proximo.bench.tune.halt import halt_on_signals

def send_again(frame, event, _):
    if event == "call" and frame.f_code.co_name in ("set", "notify_all"):
        sys.setprofile(None)
        signal.raise_signal(signal.SIGTERM)
        sys.setprofile(send_again)

with halt_on_signals() as halt:
    sys.setprofile(send_again)
    signal.raise_signal(signal.SIGINT)
    sys.setprofile(None)
    assert halt.is_set() and halt.wait(60)
"""


def test_a_second_signal_during_the_first():
    """`timeout` sends two. With an event of threading, the search waited for ever for the lock of that event."""
    assert subprocess.run([sys.executable, "-c", PROGRAM], timeout=60).returncode == 0
