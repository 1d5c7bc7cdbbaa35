"""Write constraints.txt from the installed packages, or check the installed packages against it.

    python tools/pin.py > constraints.txt
    python tools/pin.py --check
    python tools/pin.py --hashes > requirements.lock

The pinned set is the closure of Proximo's requirements with all extras: every package that
`pip install -e ".[all,dev]"` installs, transitive dependencies included, and nothing else that is in the environment.
Pins come from the Python version and the platform that the script runs on. A package that only other platforms need is
not pinned.

--hashes adds the SHA-256 of every file that the package index offers for the versions of constraints.txt, and the
packages that only torch's build for GPUs needs. uv resolves them and installs nothing; `pip install uv` adds it. The
file is for `pip install --require-hashes` on Linux x86-64 with the Python version that wrote it.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = "proximo"
EXTRAS = ("all", "dev")
CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
ACCELERATOR_PREFIXES = ("cuda-", "nvidia-", "triton")
"""Only builds of torch for GPUs require these packages. torch itself pins them."""

HEADER = """\
# The exact package versions that the tests ran with: every dependency of proximo[all,dev], transitive ones included.
# Written on Linux x86-64 with Python 3.11 by: python tools/pin.py > constraints.txt
# docs/engines.md says why some of these versions matter.
"""

LOCK_HEADER = """\
# The packages of constraints.txt with the SHA-256 of their files, for Linux x86-64 and Python {python}.
# Written by: python tools/pin.py --hashes > requirements.lock
"""


def installed_requirements() -> dict[str, str]:
    """Find the installed version of every package that Proximo requires.

    Returns:
        Canonical package name to public version (without a build label such as `+cpu`), sorted by name.

    Raises:
        LookupError: If a required package is not installed. The message lists all of them.
    """
    versions: dict[str, str] = {}
    missing: set[str] = set()
    visited: set[tuple[str, str]] = set()
    waiting = [(PROJECT, extra) for extra in ("", *EXTRAS)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in visited:
            continue
        visited.add((name, extra))
        try:
            versions[name] = Version(distribution(name).version).public
        except PackageNotFoundError:
            missing.add(name)
            continue
        waiting += _required_by(name, extra)
    if missing:
        raise LookupError(f'not installed: {", ".join(sorted(missing))}. Run: pip install -e ".[all,dev]"')
    return {name: versions[name] for name in sorted(versions)
            if name != PROJECT and not name.startswith(ACCELERATOR_PREFIXES)}


def _required_by(name: str, extra: str) -> Iterator[tuple[str, str]]:
    """Yield (package, extra) for each requirement of `name[extra]` that applies here. An empty extra means none."""
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            for required_extra in ("", *requirement.extras):
                yield canonicalize_name(requirement.name), required_extra


def read_constraints(path: Path) -> dict[str, str]:
    """Read a constraints file that consists of `name==version` lines, comments and empty lines.

    Args:
        path: The file.

    Returns:
        Canonical package name to pinned version.

    Raises:
        ValueError: If a line has another form.
    """
    pins: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text:
            name, separator, version = text.partition("==")
            if not separator:
                raise ValueError(f"{path.name}: {text!r} is not of the form name==version. Write the file again.")
            pins[canonicalize_name(name)] = version
    return pins


def differences(installed: dict[str, str], pinned: dict[str, str]) -> list[str]:
    """Return one line for each package whose installed version and pinned version differ."""
    return [f"{name}: installed {installed.get(name, 'not at all')}, pinned {pinned.get(name, 'not at all')}"
            for name in sorted({*installed, *pinned}) if installed.get(name) != pinned.get(name)]


def hashed_requirements() -> str:
    """Return the content of requirements.lock.

    Raises:
        LookupError: If uv is missing or cannot resolve the pins; the message says why.
    """
    python = ".".join(map(str, sys.version_info[:3]))
    words = ["uv", "pip", "compile", "-q", "pyproject.toml", *(word for extra in EXTRAS for word in ("--extra", extra)),
             "-c", CONSTRAINTS.name, "--generate-hashes", "--no-header", "--no-annotate", "--python-version", python,
             "--python-platform", "x86_64-manylinux_2_28"]
    try:
        done = subprocess.run(words, cwd=CONSTRAINTS.parent, capture_output=True, text=True)
    except FileNotFoundError:
        raise LookupError("--hashes needs uv. Run: pip install uv") from None
    if done.returncode:
        raise LookupError(f"uv cannot resolve the pins:\n{done.stderr}")
    return LOCK_HEADER.format(python=python.rpartition(".")[0]) + done.stdout.rstrip()


def main() -> int:
    """Run the command. Returns the exit code: 0, or 1 if a package is missing or differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with constraints.txt instead of writing pins")
    parser.add_argument("--hashes", action="store_true", help="write the pins with hashes, for requirements.lock")
    args = parser.parse_args()
    check = args.check
    try:
        if args.hashes:
            print(hashed_requirements())
            return 0
        installed = installed_requirements()
        if not check:
            print(HEADER + "\n".join(f"{name}=={version}" for name, version in installed.items()))
            return 0
        found = differences(installed, read_constraints(CONSTRAINTS))
    except (LookupError, OSError, ValueError) as error:
        print(f"pin: {error}", file=sys.stderr)
        return 1
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
