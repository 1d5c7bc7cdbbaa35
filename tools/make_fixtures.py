"""Write tests/fixtures/VERSION.zip: small runs and models of this version, which every later version has to load.

    python tools/make_fixtures.py

The archive holds two runs with a checkpoint (torch, JAX), models of every kind of network, an exported file, and what
each of them does with a few observations. tests/test_old_files.py compares. Run it once for each release.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

import proximo
from proximo.runs.folder.checkpoint import load_tree, save_tree
from tests.support.old_files import behaviour, sampled_observations

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("--num-envs", "2", "--num-steps", "16", "--num-minibatches", "2", "--update-epochs", "2", "--memory-size", "8",
         "--hidden-sizes", "8", "8", "--total-timesteps", "320", "--checkpoint-every", "20", "--logger", "none",
         "--seed", "3")
NORMALISED = ("ppo", "--norm-obs", "--norm-reward")
PROBE = "tests.support.probes:"
RUNS = {
    "torch": NORMALISED,
    "jax": (*NORMALISED, "--framework", "jax"),
}
MODELS = {
    "continuous": ("ppo_continuous_action", "--env-id", "Pendulum-v1"),
    "squashed": ("ppo_continuous_action", "--env-id", "Pendulum-v1", "--distribution", "squashed"),
    "lstm": ("ppo", "--recurrent", "lstm"),
    "gru": ("ppo", "--recurrent", "gru", "--norm-obs"),
    "dict": ("ppo", "--env-id", f"{PROBE}Rich-v0"),
    "cnn": ("ppo", "--env-id", f"{PROBE}Image-v0", "--resize", "36", "--model", "cnn"),
    "impala": ("ppo", "--env-id", f"{PROBE}Image-v0", "--model", "impala"),
    "jax-lstm": ("ppo", "--framework", "jax", "--recurrent", "lstm"),
    "jax-cnn": ("ppo", "--framework", "jax", "--env-id", f"{PROBE}Image-v0", "--resize", "36", "--model", "cnn"),
}
EXPORTED = "lstm"
LARGE, ONE_OF = 2000, 64  # of an array of at least so many weights, one of so many is kept; zeros need no space
LEFT_OUT = ("tensorboard", ".lock", "videos")


def make_run(place: Path, name: str, words: tuple[str, ...]) -> Path:
    """Train ten iterations in PLACE/NAME, without what a later version does not read."""
    command = [sys.executable, "-m", "proximo", "train", words[0], *SMALL, *words[1:], "--run-dir", name]
    subprocess.run(command, cwd=place, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    for left_out in LEFT_OUT:
        path = place / name / left_out
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return place / name


def make_model(place: Path, name: str, words: tuple[str, ...]) -> Path:
    """Train as `make_run` does, and keep the folder of the model only, with few of the weights of large layers."""
    run = make_run(place, f"{name}-run", words)
    tree = load_tree(run / "model")
    tree["weights"] = {label: thinned(x) for label, x in tree["weights"].items()}
    save_tree(place / name, tree)
    shutil.rmtree(run)
    return place / name


def thinned(weight: np.ndarray) -> np.ndarray:
    """Return a large array with most of its elements 0, and the others larger, so that its archive is small."""
    if weight.size < LARGE:
        return weight
    kept = np.random.default_rng(0).integers(ONE_OF, size=weight.shape) == 0
    return np.where(kept, weight * math.sqrt(ONE_OF), 0).astype(weight.dtype)


def write_expected(folder: Path, exported: bool) -> None:
    """Store observations, and what a model does with them, beside it; also as an exported file, where asked for."""
    model = proximo.load(folder)
    observations = sampled_observations(model)
    expected = {"observations": observations} | behaviour(model, observations)
    (folder / "expected.json").write_text(json.dumps(expected))
    if exported:
        model.export(folder / "agent.onnx")


def write_archive(place: Path, path: Path) -> None:
    """Pack a folder. The same files give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(file for file in place.rglob("*") if file.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(place).as_posix())
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)


def main() -> int:
    """Write the archive of the version that is installed, and print its size."""
    path = ROOT / "tests" / "fixtures" / f"{proximo.__version__}.zip"
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        for name, words in RUNS.items():
            write_expected(make_run(place, name, words), exported=False)
        for name, words in MODELS.items():
            write_expected(make_model(place, name, words), exported=name == EXPORTED)
        path.parent.mkdir(exist_ok=True)
        write_archive(place, path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
