"""Repeated runs: two runs with the same settings and seed are not two samples."""

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

from proximo.errors import notify
from proximo.runs.folder.videos import changed_at


class InFolder(Protocol):
    """A run with its folder, whatever else is known of it."""

    @property
    def path(self) -> Path:
        """Return the folder of the run."""


Known = TypeVar("Known", bound=InFolder)


def without_repeats(runs: Iterable[Known], sample: Callable[[Known], Hashable],
                    finished: Callable[[Known], bool]) -> list[Known]:
    """Keep the newest finished run of each sample, or the newest one if none is finished. The others are logged.

    Args:
        runs: The runs; their order stays.
        sample: Returns the settings and the seed of a run.
        finished: Returns whether a run is finished.
    """
    def rank(run: Known) -> tuple[bool, int]:  # exports and evaluations change the folder itself
        return finished(run), max(map(changed_at, (run.path / "summary.json", run.path / "metrics.csv")))

    runs = list(runs)
    kept: dict[Hashable, Known] = {}
    for run in sorted(runs, key=rank):
        if (older := kept.get(sample(run))) is not None:
            notify(f"{older.path} is left out: {run.path} has the same settings and seed.")
        kept[sample(run)] = run
    return [run for run in runs if kept[sample(run)] is run]
