"""Digests of what a run of Proximo leaves: equal where every bit of every tensor and every logged number is."""

import csv
import hashlib
from collections.abc import Iterable
from pathlib import Path

from safetensors import deserialize

CLOCK = ("seconds", "sps", "time")  # columns of this name, or ending so, differ between any two runs; so do time/...


def runs_in(folder: Path) -> dict[str, Path]:
    """Return the runs of a command by their names: one, or one for each seed."""
    found = {str(path.parent.relative_to(folder)): path.parent for path in sorted(folder.rglob("config.json"))}
    if not found:
        raise ValueError("no config.json")
    return found


def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())


def digest_run(folder: Path) -> dict[str, list[str]]:
    """Return digests of the weights, of the newest checkpoint's tensors, and of metrics.csv and episodes.csv."""
    runs = runs_in(folder)
    newest = {name: checkpoints(run)[-1] for name, run in runs.items()}
    return {"weights": digest_tensors({name: run / "model" for name, run in runs.items()}, "/weights/"),
            "checkpoint": digest_tensors({f"{name}/{path.name}": path for name, path in newest.items()}),
            "metrics": [digest_tables(runs)]}


def digest_tensors(folders: dict[str, Path], beginning: str = "") -> list[str]:
    """Digest the tensors.safetensors of named folders, whatever the order within the files.

    Args:
        folders: The folders by name.
        beginning: Of the names of the tensors that count. Checkpoints have the statistics that models have, too.

    Returns:
        Two SHA-256: of names, dtypes, shapes and bytes; and of the same without the names.
    """
    named, unnamed = [], []
    for prefix, folder in folders.items():
        for name, tensor in deserialize((folder / "tensors.safetensors").read_bytes()):
            if not name.startswith(beginning):
                continue
            content = f"{tensor['dtype']} {tensor['shape']} {hashlib.sha256(tensor['data']).hexdigest()}"
            named.append(f"{prefix}/{name} {content}")
            unnamed.append(content)
    return [digest_lines(sorted(named)), digest_lines(sorted(unnamed))]


def digest_tables(runs: dict[str, Path]) -> str:
    """Digest the CSV files of runs without the columns that depend on the clock."""
    lines = []
    for name, run in runs.items():
        for path in sorted(run.glob("*.csv")):
            with open(path, newline="") as file:
                for row in csv.DictReader(file):
                    cells = sorted((key, value) for key, value in row.items()
                                   if not key.lower().endswith(CLOCK) and not key.startswith("time/"))
                    lines.append(f"{name}/{path.name} {cells}")
    return digest_lines(lines)


def digest_lines(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines of text."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
