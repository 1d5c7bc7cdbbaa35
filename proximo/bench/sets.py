"""A benchmark file: which variants play which environments, with what changed; and the list of runs that follows."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from proximo.catalog import VARIANTS
from proximo.config import Config
from proximo.errors import UsageError
from proximo.facts import Facts, facts, facts_of_all, fits, wanted

_OWN = ("env_id", "seed", "total_timesteps", "run_dir")


@dataclass(frozen=True)
class Row:
    """One [[run]] of a file."""

    variant: str
    env_ids: tuple[str, ...]
    steps: int
    overrides: dict[str, object] = field(default_factory=dict)
    label: str = ""
    processes: int = 1


@dataclass(frozen=True)
class BenchSet:
    """A whole file."""

    name: str
    title: str
    seeds: tuple[int, ...]
    evaluate: bool
    extra: str
    """the pip extra that its environments need; empty: none"""
    rows: tuple[Row, ...]


def every_field() -> dict[str, Facts]:
    """Return the facts of the fields of all variants."""
    return facts_of_all(variant.config for variant in VARIANTS.values())


def logging_fields() -> set[str]:
    """Return the fields that only watch a run: they do not count in its name, nor in what makes two runs the same."""
    return {name for name, fact in every_field().items() if fact.group == "logging"}


def file_name(text: str) -> str:
    """text as the name of one folder, on every system."""
    return re.sub(r"[^A-Za-z0-9_.,=+-]+", "_", text)


def label_of(variant: str, overrides: Mapping[str, object]) -> str:
    """ppo-gamma=0.9,norm_adv=none; shortened by a hash where it grows too long for a folder."""
    skipped = logging_fields()
    parts = ",".join(f"{name}={value}".lower() for name, value in sorted(overrides.items()) if name not in skipped)
    if len(parts) > 120:
        parts = f"{parts[:100]}~{hashlib.sha256(parts.encode()).hexdigest()[:8]}"
    return f"{variant}-{parts}" if parts else variant


def load_set(path: str | Path) -> BenchSet:
    """Reads and checks a benchmark file. Raises UsageError with every problem in it, one a line."""
    path = Path(path)
    content = read_toml(path)
    wrong = [f"{key} is unknown; a file has title, seeds, evaluate, extra, overrides and [[run]]"
             for key in content.keys() - {"title", "seeds", "evaluate", "extra", "overrides", "run"}]
    seeds = seeds_of(content.get("seeds", 3), wrong)
    shared = content.get("overrides", {})
    tables = content.get("run", [])
    if not isinstance(tables, list) or not tables:
        wrong.append("there is no [[run]]; each has variant, env_ids and steps")
        tables = []
    rows = [_row(table, shared, f"run {number}", wrong) for number, table in enumerate(tables, 1)]
    rows = [row for row in rows if row is not None]
    wrong += _clashes(rows)
    if wrong:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in wrong))
    return BenchSet(path.stem, content.get("title", path.stem), seeds, bool(content.get("evaluate", False)),
                    content.get("extra", ""), tuple(rows))


def read_toml(path: Path) -> dict:
    """The tables of a file. Raises UsageError where there is none or it is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise UsageError(f"{path} cannot be read: {fault.strerror}; the shipped sets lie in benchmarks/") from fault
    except tomllib.TOMLDecodeError as fault:
        raise UsageError(f"{path} is no TOML: {fault}") from fault


def seeds_of(given: object, wrong: list[str]) -> tuple[int, ...]:
    """3 -> (1, 2, 3); a list stays. What cannot be seeds is added to wrong."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return tuple(range(1, given + 1))
    if isinstance(given, (list, tuple)) and given and all(type(seed) is int and seed >= 0 for seed in given):
        if len(set(given)) < len(given):
            wrong.append(f"seeds={list(given)} names a seed twice")
        return tuple(given)
    wrong.append(f"seeds={given!r} must be how many (at least 1) or a list of numbers from 0")
    return ()


def override_problems(variant: str, overrides: Mapping[str, object]) -> list[str]:
    """What is wrong with these flags of a variant: unknown names, values of another kind."""
    hints = get_type_hints(VARIANTS[variant].config)
    wrong = []
    for name, value in overrides.items():
        if name in _OWN:
            wrong.append(f"{name} is set by the benchmark itself, not by overrides")
        elif name not in facts(VARIANTS[variant].config):
            wrong.append(f"{variant} has no {name}")
        elif not fits(value, hints[name]):
            wrong.append(f"{name}={value!r} is not allowed. Use {wanted(hints[name])}.")
    return wrong


def _row(table: dict, shared: dict, where: str, wrong: list[str]) -> Row | None:
    before = len(wrong)
    wrong += [f"{where}: {key} is unknown; a run has variant, env_ids, steps, overrides, label and processes"
              for key in table.keys() - {"variant", "env_ids", "steps", "overrides", "label", "processes"}]
    variant, env_ids, steps = table.get("variant"), table.get("env_ids"), table.get("steps")
    if variant not in VARIANTS:
        wrong.append(f"{where}: variant={variant!r} is unknown; there are {', '.join(VARIANTS)}")
    if not (isinstance(env_ids, list) and env_ids and all(isinstance(env_id, str) for env_id in env_ids)):
        wrong.append(f"{where}: env_ids={env_ids!r} must be a list of ids")
    if type(steps) is not int or steps < 1:
        wrong.append(f"{where}: steps={steps!r} must be a number of at least 1")
    if len(wrong) > before:
        return None
    row = Row(variant, tuple(env_ids), steps, shared | table.get("overrides", {}), table.get("label", ""),
              table.get("processes", 1))
    unfit = override_problems(variant, row.overrides)
    wrong += [f"{where}: {problem}" for problem in unfit or config_of(row, row.overrides).problems()]
    return row


def _clashes(rows: list[Row]) -> list[str]:
    seen, wrong = set(), []
    for row in rows:
        for env_id in row.env_ids:
            place = f"{file_name(env_id)}/{file_name(row.label or label_of(row.variant, row.overrides))}"
            if place in seen:
                wrong.append(f"two runs would both write {place}; give one of them another label")
            seen.add(place)
    return wrong


def config_of(row: Row, overrides: Mapping[str, object]) -> Config:
    """The configuration of a row's first environment."""
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                             for name, value in overrides.items()}
    return VARIANTS[row.variant].config(env_id=row.env_ids[0], total_timesteps=row.steps, **known)
