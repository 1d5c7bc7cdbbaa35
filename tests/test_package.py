"""What the wheel and the source distribution contain, against the files that git knows."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from strangers_path import deploy_program

ROOT = Path(__file__).resolve().parents[1]
DECOYS = ("runs/first/config.json", "build/lib/proximo/gone.py", "proximo/__pycache__/config.pyc", "wandb/log.py", "secret.py")


def known_files() -> list[str]:
    """The files of the working tree that git does not ignore."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in names if name and (ROOT / name).is_file()]


def test_wheel_and_sdist_contain_the_package_and_nothing_else(tmp_path):
    """Built as a release is, the wheel from the sdist, in a copy of the tree with files that belong to no release."""
    source, names = tmp_path / "source", known_files()
    for name in (*names, *DECOYS):
        place = source / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((ROOT / name).read_bytes() if name in names else b"")
    done = subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, source],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    package = {name for name in names if name.startswith("proximo/")}
    assert {"proximo/py.typed", "proximo/runs/presets/classic.toml", "proximo/bench/live/live.js"} < package

    installed = set(zipfile.ZipFile(wheel).namelist())
    metadata = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info/"
    assert {name for name in installed if not name.startswith(metadata)} == package
    assert {f"{metadata}licenses/LICENSE", f"{metadata}entry_points.txt"} < installed

    with tarfile.open(sdist) as archive:
        inside = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    assert {name for name in inside if not name.startswith("proximo.egg-info/")} == package | {
        "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}


def test_the_lock_has_the_pins_of_the_constraints_with_hashes():
    """Every package of constraints.txt at its version; what only torch's build for GPUs needs comes in addition."""
    pins, lock = ((ROOT / name).read_text() for name in ("constraints.txt", "requirements.lock"))
    pinned, locked = ({*re.findall(r"^[^#\s]+==[^\s]+", text, re.M)} for text in (pins, lock))
    assert pinned <= {re.sub(r"\[.*\]", "", one) for one in locked}
    assert lock.count(" \\\n    --hash=sha256:") >= len(locked) and "://" not in lock


def test_the_lock_of_pin_needs_uv(monkeypatch):
    """The sentence where it is missing."""
    monkeypatch.setenv("PATH", "")
    done = subprocess.run([sys.executable, ROOT / "tools" / "pin.py", "--hashes"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "pin: --hashes needs uv. Run: pip install uv\n")


def test_the_program_of_make_stranger_needs_two_packages_and_acts():
    """It is found in docs/deploy.md, which may have other programs with onnxruntime."""
    imported = set(re.findall(r"^(?:import|from) (\w+)", deploy_program(), re.M))
    assert {"numpy", "onnxruntime"} <= imported <= {"numpy", "onnxruntime"} | sys.stdlib_module_names
    assert ".run(" in deploy_program()
