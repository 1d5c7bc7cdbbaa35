"""Print which extras can be installed on which Python, on Linux x86-64: a table for docs/install.md.

    pip install uv && python tools/resolve_extras.py

Every extra is resolved by uv, which installs nothing: with the pins of constraints.txt, otherwise without them; with
wheels only, otherwise with packages that have to be built. What a cell lacks is explained on standard error.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = {"3.11": "3.11.9", "3.12": "3.12.8", "3.13": "3.13.5", "3.14": "3.14.0"}
WHEELS, PINS = ("--only-binary", ":all:"), ("-c", "constraints.txt")
TRIES = {"yes": (*WHEELS, *PINS), "yes, builds": PINS, "without the pins": WHEELS, "without the pins, builds": ()}


def resolve(extra: str, python: str) -> str:
    """Return how an extra can be installed on a version of Python, "no" if it cannot."""
    for answer, options in TRIES.items():
        words = ["uv", "pip", "compile", "-q", "pyproject.toml", "--extra", extra, "--python-version", python,
                 "--python-platform", "x86_64-manylinux_2_28", "--no-header", "--no-annotate", *options]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0:
            return answer
        print(f"{extra}, Python {python}, not {answer!r}: {done.stderr.strip()}\n", file=sys.stderr)
    return "no"


def main() -> int:
    """Print the table."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = [name for name in tomllib.load(file)["project"]["optional-dependencies"] if name != "all"]
    print(f"| extra | {' | '.join(PYTHONS)} |\n|---|{'---|' * len(PYTHONS)}")
    for extra in extras:
        print(f"| `{extra}` | {' | '.join(resolve(extra, python) for python in PYTHONS.values())} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
