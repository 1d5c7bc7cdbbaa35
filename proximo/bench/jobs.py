"""The runs that follow from a benchmark file: names, flags, and one more set of runs for each detail changed."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proximo.bench.sets import (
    BenchSet,
    Row,
    config_of,
    every_field,
    file_name,
    label_of,
    logging_fields,
    override_problems,
)
from proximo.errors import UsageError


@dataclass(frozen=True)
class Job:
    """One run: a process and a run directory of its own."""

    variant: str
    env_id: str
    seed: int
    steps: int
    label: str
    overrides: dict[str, object]
    processes: int = 1
    evaluate: bool = False
    ablates: str = ""
    """the detail that this run changes; empty: none"""

    @property
    def folder(self) -> Path:
        """ENV/VARIANT-OVERRIDES/SEED, as TensorBoard groups runs."""
        return Path(file_name(self.env_id)) / file_name(self.label) / str(self.seed)

    @property
    def key(self) -> str:
        """The same for runs that learn the same; what merely follows a run does not count."""
        skipped = logging_fields()
        kept = {name: value for name, value in self.overrides.items() if name not in skipped}
        text = json.dumps([self.variant, self.env_id, self.seed, self.steps, kept, self.processes], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def flags(self) -> list[str]:
        """The overrides as the command line has them."""
        return flags_of(self.overrides)


def flags_of(overrides: Mapping[str, object]) -> list[str]:
    """{"clip_vloss": False, "gamma": 0.9} -> ["--no-clip-vloss", "--gamma", "0.9"]."""
    words: list[str] = []
    for name, value in overrides.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        elif isinstance(value, (list, tuple)):
            words += [f"--{dashed}", *map(str, value)]
        else:
            words += [f"--{dashed}", str(value)]
    return words


def jobs_of(bench_set: BenchSet, seeds: Iterable[int], ablate: Sequence[str] = (),
            overrides: Mapping[str, object] | None = None) -> tuple[list[Job], list[str]]:
    """All runs, and what is to be said of those left out: a detail whose change changes nothing.

    overrides come last and hold for every run. Raises UsageError for unknown details and impossible configurations.
    """
    details = [name for name, fact in every_field().items() if fact.off is not ...]
    if unknown := [detail for detail in ablate if detail not in details]:
        raise UsageError(f"unknown details {', '.join(unknown)}; there are {', '.join(details)}")
    jobs, notes, wrong = [], [], []
    for row in bench_set.rows:
        base = row.overrides | dict(overrides or {})
        wrong += override_problems(row.variant, base)
        if wrong:
            continue
        versions = [("", base)]
        for detail in ablate:
            overridden = _changed(row, base, detail)
            if overridden is None:
                notes.append(f"{row.label or row.variant}: no run with {detail} changed, since nothing would differ")
            else:
                versions.append((detail, overridden))
        for detail, changed in versions:
            label = f"{row.label or label_of(row.variant, base)}-changed_{detail}" if detail \
                else row.label or label_of(row.variant, base)
            wrong += [f"{label}: {problem}" for problem in config_of(row, changed).problems()]
            jobs += [Job(row.variant, env_id, seed, row.steps, label, changed, row.processes, bench_set.evaluate,
                         detail) for env_id in row.env_ids for seed in seeds]
    if wrong:
        raise UsageError("\n".join(dict.fromkeys(wrong)))
    return jobs, notes


def _changed(row: Row, base: Mapping[str, object], detail: str) -> dict[str, object] | None:
    """Return the overrides of a run with a detail off, or on where the variant has that switch off; None if nothing
    changes."""
    present = vars(config_of(row, base))
    if detail not in present:
        return None
    off = every_field()[detail].off
    changed = not present[detail] if off is False else off
    return None if present[detail] == changed else dict(base) | {detail: changed}
