"""A benchmark file: which variants play which environments, with what changed; and the list of runs that follows."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args, get_origin

from proximo.config import Config
from proximo.errors import UsageError
from proximo.variants import (
    RPO,
    Atari,
    AtariEnvpool,
    AtariLSTM,
    AtariMultiGPU,
    AtariXLA,
    AtariXLAScan,
    BatchedHands,
    BatchedSim,
    Compact,
    Continuous,
    Procgen,
    SelfPlay,
)

CONFIGS: dict[str, type[Config]] = {
    "ppo": Config, "ppo_atari": Atari, "ppo_atari_lstm": AtariLSTM, "ppo_atari_envpool": AtariEnvpool,
    "ppo_atari_envpool_xla_jax": AtariXLA, "ppo_atari_envpool_xla_jax_scan": AtariXLAScan,
    "ppo_atari_multigpu": AtariMultiGPU, "ppo_continuous_action": Continuous, "rpo_continuous_action": RPO,
    "ppo_procgen": Procgen, "ppo_pettingzoo_ma_atari": SelfPlay, "ppo_continuous_action_isaacgym": BatchedSim,
    "ppo_continuous_action_isaacgym_hands": BatchedHands, "compact": Compact,
}

FLIP = "flip"
"""in DETAILS: the other value of a switch, on or off"""

DETAILS: dict[str, dict[str, object]] = {
    "norm_adv": {"norm_adv": "none"}, "clip_vloss": {"clip_vloss": FLIP}, "clip_coef": {"clip_coef": 1e9},
    "anneal_lr": {"anneal_lr": FLIP}, "anneal_clip": {"anneal_clip": FLIP},
    "orthogonal_init": {"orthogonal_init": FLIP}, "adam_eps": {"adam_eps": 1e-8}, "gae": {"gae_lambda": 1.0},
    "ent_coef": {"ent_coef": 0.0}, "max_grad_norm": {"max_grad_norm": 1e9}, "target_kl": {"target_kl": 0.01},
    "num_minibatches": {"num_minibatches": 1}, "update_epochs": {"update_epochs": 1},
    "shared_network": {"shared_network": FLIP}, "bootstrap_truncated": {"bootstrap_truncated": FLIP},
    "norm_obs": {"norm_obs": FLIP}, "norm_reward": {"norm_reward": FLIP}, "clip_obs": {"clip_obs": 1e9},
    "clip_norm_reward": {"clip_norm_reward": 1e9}, "noop_max": {"noop_max": 0}, "max_pool": {"max_pool": FLIP},
    "end_on_life_loss": {"end_on_life_loss": FLIP}, "fire_reset": {"fire_reset": FLIP},
    "clip_rewards": {"clip_rewards": FLIP}, "frame_stack": {"frame_stack": 1},
}
"""detail -> what a run without it changes; where a variant has the detail off, its run turns it on"""

WATCHING = ("track", "logger", "wandb_project_name", "wandb_entity", "capture_video", "keep_checkpoints")
"""fields that follow a run and change nothing in it: no part of its name, nor of what makes it the same run"""

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
    """the detail that this run is without; empty: none"""

    @property
    def folder(self) -> Path:
        """ENV/VARIANT-OVERRIDES/SEED, as TensorBoard groups runs."""
        return Path(file_name(self.env_id)) / file_name(self.label) / str(self.seed)

    @property
    def key(self) -> str:
        """The same for runs that learn the same; what merely follows a run does not count."""
        kept = {name: value for name, value in self.overrides.items() if name not in WATCHING}
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


def file_name(text: str) -> str:
    """text as the name of one folder, on every system."""
    return re.sub(r"[^A-Za-z0-9_.,=+-]+", "_", text)


def label_of(variant: str, overrides: Mapping[str, object]) -> str:
    """ppo-gamma=0.9,norm_adv=none; shortened by a hash where it grows too long for a folder."""
    parts = ",".join(f"{name}={value}".lower() for name, value in sorted(overrides.items()) if name not in WATCHING)
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


def jobs_of(bench_set: BenchSet, seeds: Iterable[int], ablate: Sequence[str] = (),
            overrides: Mapping[str, object] | None = None) -> tuple[list[Job], list[str]]:
    """All runs, and what is to be said of those left out: a detail whose absence changes nothing.

    overrides come last and hold for every run. Raises UsageError for unknown details and impossible configurations.
    """
    unknown = [detail for detail in ablate if detail not in DETAILS]
    if unknown:
        raise UsageError(f"unknown details {', '.join(unknown)}; there are {', '.join(DETAILS)}")
    jobs, notes, wrong = [], [], []
    for row in bench_set.rows:
        base = row.overrides | dict(overrides or {})
        wrong += override_problems(row.variant, base)
        if wrong:
            continue
        versions = [("", base)]
        for detail in ablate:
            without = _without(row, base, detail)
            if without is None:
                notes.append(f"{row.label or row.variant}: no run without {detail}, which changes nothing there")
            else:
                versions.append((detail, without))
        for detail, changed in versions:
            label = f"{row.label or label_of(row.variant, base)}-without_{detail}" if detail \
                else row.label or label_of(row.variant, base)
            wrong += [f"{label}: {problem}" for problem in _config(row, changed).problems()]
            jobs += [Job(row.variant, env_id, seed, row.steps, label, changed, row.processes, bench_set.evaluate,
                         detail) for env_id in row.env_ids for seed in seeds]
    if wrong:
        raise UsageError("\n".join(dict.fromkeys(wrong)))
    return jobs, notes


def override_problems(variant: str, overrides: Mapping[str, object]) -> list[str]:
    """What is wrong with these flags of a variant: unknown names, values of another kind."""
    known = {f.name: f for f in fields(CONFIGS[variant])}
    wrong = []
    for name, value in overrides.items():
        if name in _OWN:
            wrong.append(f"{name} is set by the benchmark itself, not by overrides")
        elif name not in known:
            wrong.append(f"{variant} has no {name}")
        elif not _fits(value, known[name].type, known[name].default):
            wrong.append(f"{name}={value!r} does not fit; it is like {known[name].default!r}")
    return wrong


def _fits(value: object, kind: object, default: object) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(default, (bool, str)):
        return isinstance(value, type(default))
    if isinstance(default, tuple):
        return isinstance(value, (list, tuple))
    if isinstance(default, int):
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, (int, float)) or default is None


def _row(table: dict, shared: dict, where: str, wrong: list[str]) -> Row | None:
    before = len(wrong)
    wrong += [f"{where}: {key} is unknown; a run has variant, env_ids, steps, overrides, label and processes"
              for key in table.keys() - {"variant", "env_ids", "steps", "overrides", "label", "processes"}]
    variant, env_ids, steps = table.get("variant"), table.get("env_ids"), table.get("steps")
    if variant not in CONFIGS:
        wrong.append(f"{where}: variant={variant!r} is unknown; there are {', '.join(CONFIGS)}")
    if not (isinstance(env_ids, list) and env_ids and all(isinstance(env_id, str) for env_id in env_ids)):
        wrong.append(f"{where}: env_ids={env_ids!r} must be a list of ids")
    if type(steps) is not int or steps < 1:
        wrong.append(f"{where}: steps={steps!r} must be a number of at least 1")
    if len(wrong) > before:
        return None
    row = Row(variant, tuple(env_ids), steps, shared | table.get("overrides", {}), table.get("label", ""),
              table.get("processes", 1))
    unfit = override_problems(variant, row.overrides)
    wrong += [f"{where}: {problem}" for problem in unfit or _config(row, row.overrides).problems()]
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


def _config(row: Row, overrides: Mapping[str, object]) -> Config:
    known = {name: tuple(value) if isinstance(value, list) else value for name, value in overrides.items()}
    return CONFIGS[row.variant](env_id=row.env_ids[0], total_timesteps=row.steps, **known)


def _without(row: Row, base: Mapping[str, object], detail: str) -> dict[str, object] | None:
    """The overrides of a run without this detail; None where the variant lacks the field or nothing changes."""
    present = vars(_config(row, base))
    changed = {}
    for name, value in DETAILS[detail].items():
        if name not in present:
            return None
        changed[name] = (not present[name]) if value == FLIP else value
    return None if all(present[name] == value for name, value in changed.items()) else dict(base) | changed
