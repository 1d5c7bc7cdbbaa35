"""How the campaign of faults (tests/faults/) starts commands, and what it asks of every end of a command.

A fault may be anything; the end of the command is always one of few: an exit code that says what kind of fault it was,
one sentence for each problem, each on a line that begins with `proximo: `, and no traceback.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, settings

from proximo.cli.main import main

DEEP = os.environ.get("PROXIMO_FAULTS") == "all"  # set by tools/faults.py: every row, and more examples of each
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MUJOCO_GL")


class End(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    lines: list[str]  # of standard error, without `proximo: `


def examples(fast: int, deep: int) -> settings:
    """Return the settings of a fuzzer: so many examples in `make test`, and so many in `make faults`."""
    return settings(max_examples=deep if DEEP else fast, deadline=None, database=None, derandomize=not DEEP,
                    suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate, Phase.shrink))


def few(fast: int, deep: int) -> int:
    """Return how many rows of a generated table are tried."""
    return deep if DEEP else fast


def end_of(capsys, *words) -> End:
    """Run a command in this process, and check that every line of its messages is a sentence of Proximo."""
    capsys.readouterr()
    code = main([*map(str, words)])
    said = capsys.readouterr()
    return End(code, said.out, sentences(said.err))


def end_of_process(*words, timeout: float = 60, cwd: Path | None = None, env: dict[str, str] | None = None,
                   stdin: int = subprocess.DEVNULL) -> End:
    """Run a command in a process of its own, with few environment variables; fails if it does not end in time."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | (env or {})
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), kept.get("PYTHONPATH", "")]))
    found = subprocess.run([sys.executable, "-m", "proximo", *map(str, words)], capture_output=True, text=True,
                           timeout=timeout, cwd=cwd, env=kept, stdin=stdin)
    return End(found.returncode, found.stdout, sentences(found.stderr))


def sentences(text: str) -> list[str]:
    """Return the messages on standard error; fails at a traceback and at a line of someone else."""
    assert "Traceback" not in text, text
    lines = text.splitlines()
    assert all(line.startswith("proximo: ") for line in lines), text
    return [line.removeprefix("proximo: ") for line in lines]


def check_end(end: End, code: int, *parts: str) -> None:
    """Check the exit code, and that each of `parts` is in one of the sentences; none is longer than a screen."""
    assert end.code == code, end
    for part in parts:
        assert any(part in line for line in end.lines), (part, end.lines)
    assert all(len(line) <= 2000 for line in end.lines), [len(line) for line in end.lines]
