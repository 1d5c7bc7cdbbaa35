"""What the files of benchmarks contain: their JSON records, and the tables of benchmark files and search files.

runs/folder/files.py compares a file with these types. Values are checked by those who read them; further keys of
records are allowed.
"""

from math import inf
from typing import Annotated, Any, Literal

from annotated_types import Interval  # pydantic reads it
from typing_extensions import TypedDict  # pydantic needs it below Python 3.12

from proximo.runs.folder.records import RunConfig

Seeds = int | list[int]
Finite = Annotated[float, Interval(gt=-inf, lt=inf)]  # not NaN either, which Python's json reads


class Summary(TypedDict, total=False):
    """summary.json of a finished run."""

    variant: str
    env_id: str
    seed: int
    steps: int
    episodes: int
    episodic_return_mean: Finite | None
    episodic_return_std: Finite | None
    episodic_length_mean: Finite | None
    episodic_length_std: Finite | None
    sps: Finite | None
    compile_seconds: Finite | None
    wall_seconds: Finite


class EvaluationFile(TypedDict, total=False):
    """eval.json of a run."""

    env_id: str
    deterministic: bool
    episodes: int
    episodic_return_mean: Finite | None
    episodic_return_std: Finite | None


class PartialRunFile(TypedDict, total=False):
    """config.json of a run, as reports read it."""

    variant: str
    config: RunConfig
    versions: dict[str, str]
    resume_with: str
    own_parts: dict[str, str]
    command: str
    machine: str


class LostRecord(TypedDict, total=False):
    """How often a run was lost since its newest checkpoint."""

    checkpoint: str
    times: int


class JobRecord(TypedDict, total=False):
    """SEED.job.json, what a benchmark knows of one run."""

    variant: str
    env_id: str
    seed: int
    label: str
    ablates: str
    steps: int
    deterministic: bool
    key: str
    status: str
    stage: str
    task: str
    lost: LostRecord
    exit_code: int | None
    lines: str


class BenchRecord(TypedDict, total=False):
    """bench.json, what a report says about a benchmark."""

    title: str
    command: str
    machine: dict[str, str]
    jobs: list[str]


class RunTable(TypedDict, total=False):
    """A [[run]] of a benchmark file."""

    variant: str
    env_ids: list[str]
    steps: int
    overrides: dict[str, Any]
    label: str
    processes: int
    seeds: Seeds
    deterministic: bool
    presets: list[str]


class SetFile(TypedDict, total=False):
    """A benchmark file."""

    title: str
    seeds: Seeds
    evaluate: bool
    extra: str
    overrides: dict[str, Any]
    run: list[RunTable]


class SearchFile(TypedDict, total=False):
    """A search file."""

    title: str
    variant: str
    env_ids: list[str]
    steps: int
    seeds: Seeds
    trials: int
    metric: Literal["episodic_return", "episodic_length", "evaluation"]
    pruner: str
    storage: str
    sampler_seed: int
    overrides: dict[str, Any]
    space: dict[str, Any]
    target_scores: dict[str, list[Finite]]


class PopulationFile(TypedDict, total=False):
    """A file of population-based training."""

    title: str
    variant: str
    env_id: str
    steps: int
    population: int
    rounds: int
    seed: int
    metric: Literal["episodic_return", "episodic_length", "evaluation"]
    overrides: dict[str, Any]
    space: dict[str, Any]


class MemberRecord(TypedDict):
    """A member of a population in one round, in pbt.json."""

    values: dict[str, Any]
    seed: int
    parent: int | None
    score: Finite | None
    failed: bool


class PopulationRecord(TypedDict):
    """pbt.json, what a population continues from."""

    file: dict[str, Any]
    rounds: list[list[MemberRecord]]
