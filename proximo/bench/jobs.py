"""The runs that follow from a benchmark file: names, flags, and one more set of runs for each detail changed."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proximo.bench.sets import FOLLOWING_FIELDS, BenchSet, Row, config_of, file_name, label_of, override_problems
from proximo.errors import UsageError

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
"""detail -> what its run changes: off where a variant has the detail on, on where it is off"""


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
        kept = {name: value for name, value in self.overrides.items() if name not in FOLLOWING_FIELDS}
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
    """The overrides of a run with this detail changed; None where the variant lacks the field or nothing changes."""
    present = vars(config_of(row, base))
    changed = {}
    for name, value in DETAILS[detail].items():
        if name not in present:
            return None
        changed[name] = (not present[name]) if value == FLIP else value
    return None if all(present[name] == value for name, value in changed.items()) else dict(base) | changed
