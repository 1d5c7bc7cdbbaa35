"""What the wheel and the source distribution contain, against the files that git knows."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

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
    assert {"proximo/py.typed", "proximo/presets/classic.toml", "proximo/bench/live/live.js"} < package

    installed = set(zipfile.ZipFile(wheel).namelist())
    metadata = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info/"
    assert {name for name in installed if not name.startswith(metadata)} == package
    assert {f"{metadata}licenses/LICENSE", f"{metadata}entry_points.txt"} < installed

    with tarfile.open(sdist) as archive:
        inside = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    assert {name for name in inside if not name.startswith("proximo.egg-info/")} == package | {
        "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
