"""proximo sweep: train every combination of some values at once, and print how each of them did."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import numpy as np

from proximo.bench.files import read_record
from proximo.bench.records import Summary
from proximo.bench.text import number_text
from proximo.catalog import config_class
from proximo.cli.commands import HELP_FLAGS, chosen_defaults
from proximo.cli.flags import Flag, field_name, read_flags, split_flags, take_flag
from proximo.config import Config
from proximo.facts import facts
from proximo.processes import world_from_environment
from proximo.runs.restart import start_or_resume
from proximo.runs.run_group import Members

MOST_MEMBERS = 256  # each has open files
SWEEP_HELP = """usage: proximo sweep [VARIANT] [--env-id ID] --FLAG VALUE VALUE ... --seeds 1 2 3 [--run-dir DIR]

Train one run for every combination of the values, all at once in one compiled function of JAX. The environments must be
written in JAX, as CartPole-v1, Acrobot-v1, MountainCar-v0, Pendulum-v1 and those of Brax are.

  proximo sweep ppo --env-id CartPole-v1 --learning-rate 1e-4 3e-4 1e-3 --gamma 0.98 0.99 --seeds 1 2 3 --run-dir DIR

These flags may have several values: {fields}, --seeds.
All other flags of `proximo train` apply to every run. Each run has a folder of its own in DIR, which every command
takes; `proximo report DIR` compares them. `proximo resume DIR` continues all of them, and --resume auto does so where
DIR contains the sweep already."""


def sweep_command(words: list[str]) -> int:
    """Train: `proximo sweep [VARIANT] [--flag value value ...]`; return the exit code."""
    if not words or HELP_FLAGS & {*words}:
        print(SWEEP_HELP.format(fields=", ".join(f"--{name.replace('_', '-')}" for name in swept_fields(Config))))
        return 0 if words else 2
    variant = words[0] if not words[0].startswith("-") else ""
    mode, flags = take_flag(words[1:] if variant else words, "resume")
    variant, flags, defaults = chosen_defaults(variant, flags)
    kind = config_class(variant)
    lists, flags, wrong = take_lists(kind, flags)
    values, more = read_flags(kind, flags)
    cfg = kind(**{**defaults, "framework": "jax", **values})
    lists = {name: given for name, given in lists.items() if given} or {"seed": [cfg.seed]}
    count = prod(map(len, lists.values()))
    members = members_of(lists) if count <= MOST_MEMBERS else {}
    session = start_or_resume(cfg, variant, wrong=[*wrong, *more, *_problems(cfg, count)], mode=mode, sweep=members)
    code = session.play()
    if code == 0:
        print(sweep_table(session.folder, members))
    return code


def swept_fields(kind: type[Config]) -> list[str]:
    """Return the fields, besides the seed, of which a sweep takes several values."""
    return [name for name, fact in facts(kind).items() if fact.sweep]


def take_lists(kind: type[Config], words: Sequence[str]) -> tuple[dict[str, list[Any]], list[str], list[str]]:
    """Separate the flags that may have several values from the others.

    Args:
        kind: The class of the configuration.
        words: The words of the command line after the variant.

    Returns:
        The values of each field, the other words, and one sentence for each mistake.
    """
    lists: dict[str, list[Any]] = {}
    rest, wrong = list[str](), list[str]()
    hints = get_type_hints(kind)
    for flag in split_flags(words):
        name = "seed" if field_name(flag.word) == "seeds" else field_name(flag.word)
        if name == "seed" or name in swept_fields(kind):
            found, mistakes = _values(kind, name, flag)
            lists.setdefault(name, []).extend(found)
            wrong += mistakes
            continue
        several = flag.inline is None and len(flag.words) > 1 and name in hints and get_origin(hints[name]) is not tuple
        if several:
            wrong.append(f"{flag.word} {' '.join(flag.words)}: a sweep cannot have several values of {name}. Use one "
                         f"value, or several of {', '.join(swept_fields(kind))} or seeds.")
        word = flag.word if flag.inline is None else f"{flag.word}={flag.inline}"
        rest += [word] * bool(word) + flag.words[:1 if several else None]
    wrong += [f"{name} has a value twice: {' '.join(map(str, given))}. Name each value once."
              for name, given in lists.items() if len({*given}) < len(given)]
    return lists, rest, wrong


def members_of(lists: Mapping[str, Sequence[Any]]) -> Members:
    """Return every combination of values, by the name of its folder."""
    combinations = [dict(zip(lists, values)) for values in product(*lists.values())]
    shown = [name for name, given in lists.items() if len(given) > 1 or name == "seed"] or [*lists]
    return {",".join(f"{name}={one[name]}" for name in shown) or "run": one for one in combinations}


def sweep_table(folder: Path, members: Members) -> str:
    """Return a table of the mean returns at the end, over seeds, one line per combination of values, best first."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    names = [name for name in next(iter(members.values())) if name != "seed"]
    for name, changes in members.items():
        summary = read_record(folder / name / "summary.json", Summary)
        groups.setdefault(tuple(changes[each] for each in names), []).append(summary)
    lines = []
    for values, summaries in groups.items():
        scores = [one["episodic_return_mean"] for one in summaries if one.get("episodic_return_mean") is not None]
        ends = (np.mean(scores), np.min(scores), np.max(scores)) if scores else (None, None, None)
        lines.append((-np.inf if ends[0] is None else ends[0],
                      [*map(str, values), str(len(summaries)), *(number_text(end) for end in ends)]))
    rows = [[*names, "seeds", "return", "lowest", "highest"],
            *(row for _, row in sorted(lines, key=lambda line: line[0], reverse=True))]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def _values(kind: type[Config], name: str, flag: Flag) -> tuple[list[Any], list[str]]:
    """Return the values of a flag, and one sentence for each word that is not allowed, or if there is none."""
    given = flag.words if flag.inline is None else [flag.inline, *flag.words]
    read = [read_flags(kind, [f"--{name.replace('_', '-')}", *word]) for word in [[x] for x in given] or [[]]]
    return [values[name] for values, _ in read if values], [mistake for _, wrong in read for mistake in wrong]


def _problems(cfg: Config, count: int) -> list[str]:
    wrong = []
    if cfg.framework != "jax":
        wrong.append(f"framework={cfg.framework} was given. A sweep trains all runs in one compiled function of JAX. "
                     "Leave --framework out.")
    if cfg.num_seeds > 1:
        wrong.append(f"num_seeds={cfg.num_seeds} was given. Name the seeds of a sweep: --seeds 1 2 3.")
    if world_from_environment().size > 1:
        wrong.append("A sweep trains all runs in one process. Start it without torchrun.")
    if count > MOST_MEMBERS:
        wrong.append(f"{count} combinations of values were given. A sweep has at most {MOST_MEMBERS} runs.")
    return wrong
