"""A benchmark file: which variants are trained in which environments, and with which other settings."""

import hashlib
import reprlib
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PureWindowsPath
from typing import Any

from proximo.bench.names import ASIDE, clashes, folder_of, setting_text
from proximo.bench.records import RunTable, SetFile
from proximo.bench.tables import read_tables
from proximo.catalog import VARIANTS, variants_with
from proximo.config import Config
from proximo.envs.custom.imports import check_imports, split_file
from proximo.errors import UsageError, nearest
from proximo.facts import Facts, converted, facts, facts_of_all, type_problems
from proximo.problems import config_problems
from proximo.runs.presets import named_preset, presets
from proximo.runs.settings.peer_names import ADVICE

FILE_KEYS = tuple(SetFile.__annotations__)
RUN_KEYS = ("variant", "env_ids", "steps", "overrides", "label", "processes", "seeds", "deterministic")
PRESET_KEYS = ("presets", "env_ids", "steps", "overrides", "label", "seeds", "deterministic")
MOST_SEEDS = 10_000
MOST_PROCESSES = 1024  # of one run, on this machine
SET_BY_BENCH = ("env_id", "seed", "total_timesteps", "run_dir")


@dataclass(frozen=True)
class Row:
    """One [[run]] of a benchmark file, or one preset of a [[run]] that lists presets."""

    variant: str
    env_ids: tuple[str, ...]
    steps: int
    overrides: dict[str, object] = field(default_factory=dict)
    """settings that differ from the variant's defaults"""
    label: str = ""
    """name of the runs; empty: the variant and the overrides"""
    processes: int = 1
    seeds: tuple[int, ...] = ()
    """empty: those of the file"""
    deterministic: bool = True
    """whether evaluations take the most likely actions instead of sampling them"""


@dataclass(frozen=True)
class BenchSet:
    """A whole benchmark file."""

    name: str
    title: str
    seeds: tuple[int, ...]
    evaluate: bool
    """whether every trained agent is evaluated"""
    extra: str
    """the pip extra that its environments need; empty: none"""
    rows: tuple[Row, ...]


def every_field() -> dict[str, Facts]:
    """Return the facts of the fields of all variants."""
    return facts_of_all(variant.config for variant in VARIANTS.values())


def logging_fields() -> set[str]:
    """Return the fields that only watch a run: they do not count in its name, nor in what makes two runs the same."""
    return {name for name, fact in every_field().items() if fact.group == "logging"}


def label_of(variant: str, overrides: Mapping[str, object]) -> str:
    """Return a name such as ppo-gamma=0.9,norm_adv=none; a hash shortens names that are too long for a folder."""
    counted = sorted(overrides.keys() - logging_fields())
    parts = ",".join(f"{name}={setting_text(overrides[name])}" for name in counted)
    if len(parts) > 120:
        parts = f"{parts[:100]}~{hashlib.sha256(parts.encode()).hexdigest()[:8]}"
    return f"{variant}-{parts}" if parts else variant


def load_set(path: str | Path) -> BenchSet:
    """Read and check a benchmark file.

    Raises:
        UsageError: The file cannot be read or has problems; the message has one line for each.
    """
    path = Path(path)
    tables = read_tables(path, SetFile, "benchmarks", "bench")
    content = tables.content
    problems = [*tables.problems, *(f"{key} is unknown. A file has {', '.join(FILE_KEYS[:-1])} and [[run]]."
                                    for key in content if key not in FILE_KEYS)]
    seeds = read_seeds(content.get("seeds", 3), problems)
    if not content.get("run") and ("run",) not in tables.dropped:
        problems.append("there is no [[run]]. Add one with variant, env_ids and steps.")
    shared = content.get("overrides", {})
    rows = tuple(row for number, table in enumerate(content.get("run", []), 1)
                 for row in _read_rows(table, shared, number, problems, tables.dropped_from("run", number - 1)))
    problems += [] if tables.dropped else clashes(folder_of(env_id, row.label or label_of(row.variant, row.overrides))
                                                  for row in rows for env_id in row.env_ids)
    if problems:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    return BenchSet(name=path.stem, title=content.get("title", path.stem), seeds=seeds, rows=rows,
                    evaluate=content.get("evaluate", False), extra=content.get("extra", ""))


def read_seeds(given: int | Sequence[int], problems: list[str]) -> tuple[int, ...]:
    """Return seeds 1, 2, 3 for the number 3, and the seeds of a list. Adds to `problems` what is wrong."""
    if isinstance(given, int) and 1 <= given <= MOST_SEEDS:
        return tuple(range(1, given + 1))
    if not isinstance(given, int) and 1 <= len(given) <= MOST_SEEDS and min(given) >= 0:
        if len(set(given)) < len(given):
            problems.append(f"seeds={list(given)} has a seed twice. Name each seed once.")
        return tuple(given)
    problems.append(f"seeds={reprlib.repr(given)} is neither a number of seeds (1 to {MOST_SEEDS}) nor a list of "
                    "as many seeds (at least 0 each). Use 3, or [1, 2, 3].")
    return ()


def override_problems(variant: str, overrides: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with settings of a variant: unknown names, and values of a wrong type."""
    known, problems = facts(VARIANTS[variant].config), list[str]()
    for name, value in overrides.items():
        if name in SET_BY_BENCH:
            problems.append(f"{name} is set by the benchmark itself. Leave it out of overrides and command line.")
        elif name not in known:
            advice = ADVICE.get(name) or variants_with(name) or nearest(name, known)
            problems.append(f"{variant} has no field {name}.{advice}")
        else:
            problems += type_problems(VARIANTS[variant].config(**{name: value}))
    return problems


def task_problems(table: Mapping[str, Any], dropped: Collection[int | str] = ()) -> list[str]:
    """Return what is wrong with `variant`, `env_ids` and `steps` of a table, but not that dropped ones are missing."""
    variant = table.get("variant")
    problems = []
    if variant not in VARIANTS and "variant" not in dropped:
        problem = f"variant={variant!r} is unknown" if "variant" in table else "variant is missing"
        problems.append(f"{problem}. Use one of {', '.join(VARIANTS)}.")
    if "env_ids" not in {*table, *dropped}:
        problems.append("env_ids is missing. List the ids of environments.")
    if "steps" not in {*table, *dropped}:
        problems.append("steps is missing. Use at least 1.")
    return problems + _value_problems(table, dropped)


def config_of(row: Row, overrides: Mapping[str, object]) -> Config:
    """Return the configuration of a row's first environment, with other overrides."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                              for name, value in overrides.items()}
    values |= {name: converted(value, tuple[str, ...]) for name, value in values.items() if isinstance(value, dict)}
    return VARIANTS[row.variant].config(env_id=row.env_ids[0], total_timesteps=row.steps, **values)


def check_set_imports(rows: Iterable[Row], allowed: Collection[str], source: Path) -> None:
    """Raise UsageError if environments of a file name modules or scripts that the user has not allowed."""
    problems: list[str] = []
    for row in rows:
        for env_id in row.env_ids:
            cfg = replace(config_of(row, row.overrides), env_id=env_id)
            problems += (absent := _absent_script(cfg, allowed, source)).values()
            try:
                check_imports(cfg, {*allowed, *absent}, source)
            except UsageError as error:
                problems += str(error).splitlines()
    if problems:
        raise UsageError("\n".join(dict.fromkeys(problems)))


def _absent_script(cfg: Config, allowed: Collection[str], source: Path) -> dict[str, str]:
    """Return the script that does not exist, unless the user has named that very path, and what to do about it.

    No script of the same name takes its place, as it does for a run: names of runs and studies depend on `env_file`.
    """
    script, member = split_file(cfg.env_file)
    if script.suffix != ".py" or script.is_file() or script.absolute() in [Path(one).absolute() for one in allowed]:
        return {}
    name, suffix = PureWindowsPath(script).name, f":{member}" if member else ""
    same = (Path(one).resolve().as_posix() for one in allowed if Path(one).name == name and Path(one).is_file())
    place = next(same, f"/PATH/{name}")
    return {str(script): f"{source} names the file {script}, but there is no {script.absolute()}. If you have it in "
                         f'another place and trust it, write env_file = "{place}{suffix}" in {source} and add '
                         f"--allow-import {shlex.quote(place)}."}


def _read_rows(table: RunTable, shared: dict[str, Any], number: int, problems: list[str],
               dropped: Collection[int | str]) -> list[Row]:
    """Return the rows of a [[run]]: one, or one for each of its presets. Adds to `problems` what is wrong.

    `dropped` has the keys whose values have wrong types: without one that a row needs, there is no row.
    """
    wrong: list[str] = []
    of_presets = "presets" in {*table, *dropped}
    keys = PRESET_KEYS if of_presets else RUN_KEYS
    wrong += [f"{key} is unknown. A run has {', '.join(keys)}." for key in table if key not in keys]
    seeds = read_seeds(table["seeds"], wrong) if "seeds" in table else ()
    label = table.get("label", "preset" if of_presets else "")
    if label and not label.strip(". "):
        wrong.append(f"label={label!r} is not a name. Use letters and digits.")
    if not 1 <= table.get("processes", 1) <= MOST_PROCESSES:
        wrong.append(f"processes={table['processes']} is not allowed. Use 1 to {MOST_PROCESSES}.")
    wrong += (of_task := _preset_problems(table, dropped) if of_presets else task_problems(table, dropped))
    rows = []
    if not of_task and not {"presets", "variant", "env_ids", "steps"} & {*dropped}:
        overrides = shared | table.get("overrides", {})
        rows = _preset_rows(table, overrides) if "presets" in table else [
            Row(variant=table["variant"], env_ids=tuple(table["env_ids"]), steps=table["steps"], overrides=overrides,
                processes=table.get("processes", 1))]
        rows = [replace(row, label=label, seeds=seeds, deterministic=table.get("deterministic", True)) for row in rows]
        wrong += [f"label={name!r} is not allowed, because reports pass over folders that end in {ASIDE}. Use another "
                  "label." for name in {row.label or label_of(row.variant, row.overrides) for row in rows}
                  if name.endswith(ASIDE)]
        for row in rows:
            good = {name: x for name, x in row.overrides.items() if not override_problems(row.variant, {name: x})}
            wrong += [*override_problems(row.variant, row.overrides), *config_problems(config_of(row, good))]
    problems += [f"run {number}: {problem}" for problem in wrong]
    return rows


def _value_problems(table: Mapping[str, Any], dropped: Collection[int | str]) -> list[str]:
    """Return what is wrong with `env_ids` and `steps` of a table, if it has them."""
    empty = table.get("env_ids") == [] and "env_ids" not in dropped
    problems = ["env_ids=[] names no environment. List the ids of environments."] * empty
    problems += [f"env_ids has {env_id!r}, which is not the id of an environment. Use ids such as CartPole-v1."
                 for env_id in table.get("env_ids", []) if not env_id.strip(". ")]
    problems += [f"env_ids has {env_id!r}, but reports pass over folders that end in {ASIDE}. Register the environment "
                 "under another id." for env_id in table.get("env_ids", []) if env_id.endswith(ASIDE)]
    if table.get("steps", 1) < 1:
        problems.append(f"steps={table['steps']} is not allowed. Use at least 1.")
    return problems


def _preset_problems(table: RunTable, dropped: Collection[int | str]) -> list[str]:
    names, known = table.get("presets", []), presets()
    problems = [f"there is no preset {name}.{nearest(name, known)}" for name in names if name not in known]
    if not names and "presets" not in dropped:
        problems = ["presets=[] is not a list of presets. `proximo list presets` lists all of them."]
    return problems + _value_problems(table, dropped)


def _preset_rows(table: RunTable, overrides: dict[str, Any]) -> list[Row]:
    rows = []
    for name in table["presets"]:
        preset = named_preset(name)
        values = {key: list(value) if isinstance(value, tuple) else value for key, value in preset.values.items()
                  if key != "total_timesteps"}
        rows.append(Row(variant=preset.variant, env_ids=tuple(table.get("env_ids", [preset.env_id])),
                        steps=table.get("steps", preset.config.total_timesteps), overrides=values | overrides))
    return rows
