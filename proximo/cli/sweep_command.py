"""proximo sweep: train every combination of some values at once, and print their results."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, get_origin, get_type_hints

from proximo.catalog import VARIANTS
from proximo.cli.commands import HELP_FLAGS, chosen_defaults, named_class
from proximo.cli.flags import Flag, field_name, read_flags, split_flags, take_flag
from proximo.cli.sweep_table import train_and_print
from proximo.config import Config
from proximo.envs.custom.env_file import function_in_file
from proximo.envs.inside import control_inside
from proximo.facts import type_problems
from proximo.problems import engine_of
from proximo.runs.settings.choice import played_env
from proximo.runs.sweep import start_sweep, swept_fields

TASKS = "CartPole-v1, Acrobot-v1, MountainCar-v0, MountainCarContinuous-v0, Pendulum-v1"  # of the engine jax
SWEEP_HELP = """usage: proximo sweep [VARIANT] [--env-id ID] --FLAG VALUE VALUE ... --seeds 1 2 3 [--run-dir DIR]

Train one run for every combination of the values, all at once in one compiled function of JAX. The environments must be
written in JAX: """ + TASKS + """, those of Brax, and
your own (--env-file FILE, where the file has make_envs = from_func_env(MyFuncEnv())).

  proximo sweep ppo --env-id CartPole-v1 --learning-rate 1e-4 3e-4 1e-3 --gamma 0.98 0.99 --seeds 1 2 3 --run-dir DIR

These flags may have several values: {fields}, --seeds.
All other flags of `proximo train` apply to every run. Each run has a folder of its own in DIR, which every command
takes; `proximo report DIR` compares them. `proximo resume DIR` continues all of them, and --resume auto does so where
DIR contains the sweep already."""


def sweep_command(words: list[str]) -> int:
    """Train: `proximo sweep [VARIANT] [--flag value value ...]`; return the exit code."""
    if HELP_FLAGS & {*words}:
        print(SWEEP_HELP.format(fields=", ".join(f"--{name.replace('_', '-')}" for name in swept_fields(Config))))
        return 0
    variant = words[0] if not words[0].startswith("-") else ""
    mode, flags = take_flag(words[1:] if variant else words, "resume")
    variant, flags, defaults = chosen_defaults(variant, flags)
    kind = named_class(variant, "sweep")
    lists, flags, wrong = take_lists(kind, flags)
    if not (lists or wrong):
        wrong.append(f"a sweep needs several values of a flag: --seeds, or {', '.join(swept_fields(kind))}. "
                     "proximo train takes one value of each.")
    values, more = read_flags(kind, flags)
    cfg = kind(**{**defaults, "framework": "jax", **values})
    wrong += [*more, *outside_problems(cfg, variant)]
    return train_and_print(start_sweep(cfg, variant, lists, wrong, mode)[0])


def outside_problems(cfg: Config, variant: str) -> list[str]:
    """Return why the environments of a variant are not simulated inside the compiled function, before they are made.

    Args:
        cfg: The configuration as given, whose types may be wrong.
        variant: Its name.
    """
    engines = cfg.limits.engines
    inside = [engine for engine in engines if engine in ("jax", "brax")]
    if find_spec("jax") is None or type_problems(cfg) or cfg.engine not in ("auto", *engines):
        return []  # other sentences say so
    if function_in_file(cfg) is not None:
        return []  # what it makes is checked where it is called
    if not inside:
        others = [name for name, one in VARIANTS.items() if {"jax", "brax"} & {*one.config.limits.engines}]
        return [f"{cfg.env_id} is not simulated inside the compiled function, and no environment of {variant} is. Use "
                f"an environment that is written in JAX, with one of {', '.join(others)}."]
    played: dict[str, Any] = dict(played_env(cfg))
    cfg = replace(cfg, **played).resolved()
    if engine_of(cfg) == "brax" or control_inside(cfg):
        return []
    if cfg.env_id in TASKS.split(", "):
        return [f"{cfg.env_id} is not simulated inside the compiled function with these settings, such as "
                f"engine={cfg.engine}. Use --engine jax, which says what it does not have."]
    return [f"{cfg.env_id} is not simulated inside the compiled function. Use an environment of {variant} that is "
            f"written in JAX: {TASKS}."]


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
    return lists, rest, wrong


def _values(kind: type[Config], name: str, flag: Flag) -> tuple[list[Any], list[str]]:
    """Return the values of a flag, and one sentence for each word that is not allowed, or if there is none."""
    given = flag.words if flag.inline is None else [flag.inline, *flag.words]
    word = f"--{name.replace('_', '-')}"
    read = [read_flags(kind, [word, *one]) for one in [[x] for x in given] or [[]]]
    mistakes = [mistake.replace(word, flag.word, 1) for _, wrong in read for mistake in wrong]
    return [values[name] for values, _ in read if values], mistakes
