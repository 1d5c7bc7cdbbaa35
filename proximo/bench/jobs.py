"""The runs of a benchmark: one for each variant, environment and seed, and more for each changed detail."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proximo.bench.names import clashes, folder_of
from proximo.bench.sets import (
    BenchSet,
    Row,
    config_of,
    every_field,
    label_of,
    logging_fields,
    override_problems,
)
from proximo.envs.custom.imports import import_flags
from proximo.errors import UsageError
from proximo.facts import converted
from proximo.problems import config_problems


@dataclass(frozen=True)
class Job:
    """One run: it has its own process and its own folder."""

    variant: str
    env_id: str
    seed: int
    steps: int
    label: str
    """name of the runs that differ from this one in the seed only"""
    overrides: dict[str, object]
    processes: int = 1
    evaluate: bool = False
    deterministic: bool = True
    """whether it is evaluated with the most likely actions instead of sampled ones"""
    ablates: str = ""
    """the detail that this run changes; empty: none"""

    @property
    def folder(self) -> Path:
        """ENV/LABEL/SEED, below the folder of the benchmark."""
        return Path(folder_of(self.env_id, self.label)) / str(self.seed)

    @property
    def key(self) -> str:
        """A hash of everything that the result depends on; logging settings do not count."""
        skipped = logging_fields()
        kept = {name: value for name, value in self.overrides.items() if name not in skipped}
        text = json.dumps([self.variant, self.env_id, self.seed, self.steps, kept, self.processes], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def flags(self) -> list[str]:
        """Return the overrides as flags of the command line."""
        return flags_of(self.overrides)

    def import_flags(self) -> list[str]:
        """Return the flags that allow a later command on this run to import what the job names."""
        row = Row(variant=self.variant, env_ids=(self.env_id,), steps=self.steps)
        return import_flags(config_of(row, self.overrides))


def flags_of(overrides: Mapping[str, object]) -> list[str]:
    """Convert {"clip_vloss": False, "gamma": 0.9} to ["--no-clip-vloss", "--gamma", "0.9"]."""
    words: list[str] = []
    for name, value in overrides.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        elif isinstance(value, (dict, list, tuple)):
            texts = converted(value, tuple[str, ...]) if isinstance(value, dict) else map(str, value)
            words += [f"--{dashed}", *texts]
        else:
            words += [f"--{dashed}", str(value)]
    return words


def jobs_of(bench_set: BenchSet, seeds: Sequence[int] | None = None, ablate: Sequence[str] = (),
            overrides: Mapping[str, object] | None = None) -> tuple[list[Job], list[str]]:
    """List all runs of a benchmark.

    Args:
        bench_set: The benchmark file.
        seeds: The seeds of each environment; None: those of the file.
        ablate: Implementation details; for each there is one more set of runs, in which it is changed.
        overrides: Settings of every run; they take precedence over those of the file.

    Returns:
        The runs, and one sentence for each detail whose change would change nothing in a row.

    Raises:
        UsageError: A detail is unknown, a configuration is impossible, or two runs have one folder.
    """
    details = [name for name, fact in every_field().items() if fact.ablated is not ...]
    if unknown := [detail for detail in ablate if detail not in details]:
        raise UsageError(f"unknown details: {', '.join(unknown)}. Use some of {', '.join(details)}.")
    jobs: list[Job] = []
    folders: list[str] = []
    notes: list[str] = []
    problems: list[str] = []
    for row in bench_set.rows:
        base = row.overrides | dict(overrides or {})
        wrong = override_problems(row.variant, base)
        problems += wrong
        if wrong:
            continue
        label = row.label or label_of(row.variant, base)
        changes = {detail: _change_detail(row, base, detail) for detail in ablate}
        notes += [f"{row.label or row.variant}: there is no run with {detail} changed, because nothing would differ"
                  for detail, changed in changes.items() if changed is None]
        sets = [("", label, base)] + [(detail, f"{label}-changed_{detail}", changed)
                                      for detail, changed in changes.items() if changed is not None]
        for detail, name, settings in sets:
            problems += [f"{name}: {problem}" for problem in config_problems(config_of(row, settings))]
            jobs += [Job(variant=row.variant, env_id=env_id, seed=seed, steps=row.steps, label=name, overrides=settings,
                         processes=row.processes, evaluate=bench_set.evaluate,
                         deterministic=row.deterministic, ablates=detail)
                     for env_id in row.env_ids for seed in seeds or row.seeds or bench_set.seeds]
            folders += [folder_of(env_id, name) for env_id in row.env_ids]
    if problems := problems + clashes(folders):
        raise UsageError("\n".join(dict.fromkeys(problems)))
    return jobs, notes


def _change_detail(row: Row, base: Mapping[str, object], detail: str) -> dict[str, object] | None:
    """Return the overrides with a detail switched off, or on where the variant has it off; None if nothing changes."""
    present = vars(config_of(row, base))
    if detail not in present:
        return None
    ablated = every_field()[detail].ablated
    changed = not present[detail] if ablated is False else ablated
    return None if present[detail] == changed else dict(base) | {detail: changed}
