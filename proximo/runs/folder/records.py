"""What the JSON files of runs contain. folder/files.py compares a file with these types; further keys are allowed."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic needs it below Python 3.12

Array = TypedDict("Array", {"__array__": str})  # in tree.json: the name of a tensor in tensors.safetensors
Arrays = dict[str, Array]
Sums = TypedDict("Sums", {"tensors.safetensors": str, "tree.json": str})
Dtype = Literal["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
                "float64"]
# One number where all are equal, or nested lists. JSON has no infinite numbers. Version 0.2.0.dev0 wrote booleans.
Numbers = float | bool | Literal["inf", "-inf"] | list[Any]


class SpaceRecord(TypedDict):
    """A space of a model; SPACES has its other keys."""

    type: Literal["Discrete", "MultiDiscrete", "MultiBinary", "Box", "Tuple", "Dict"]


class Discrete(TypedDict):
    n: int
    start: int


class MultiDiscrete(TypedDict):
    nvec: list[Any]
    start: list[Any]
    dtype: NotRequired[Dtype]  # absent: int64


class MultiBinary(TypedDict):
    n: list[int]


class Box(TypedDict):
    low: Numbers
    high: Numbers
    shape: NotRequired[list[int]]  # absent in version 0.1.0: that of the bounds
    dtype: Dtype


class Tuple(TypedDict):
    parts: list[dict[str, Any]]


class Dict(TypedDict):
    parts: list[list[Any]]


SPACES: dict[str, Any] = {"Discrete": Discrete, "MultiDiscrete": MultiDiscrete, "MultiBinary": MultiBinary, "Box": Box,
                          "Tuple": Tuple, "Dict": Dict}


class Manifest(TypedDict):
    """manifest.json of a checkpoint or a model."""

    format: Literal[1]
    sha256: Sums


class RunConfig(TypedDict, total=False):
    """The fields of a configuration that are read without its class; facts.type_problems() compares all others."""

    env_id: str
    seed: int
    total_timesteps: int
    num_envs: int
    num_steps: int


class SummaryFile(TypedDict):
    """summary.json of a finished run, as a resume reads it."""

    steps: int


class RunFile(TypedDict):
    """config.json of a run."""

    variant: str
    config: RunConfig
    versions: NotRequired[dict[str, str]]
    resume_with: NotRequired[str]
    own_parts: NotRequired[dict[str, str]]
    processes: NotRequired[int]
    command: NotRequired[str]
    machine: NotRequired[str]


class SweepFile(TypedDict):
    """sweep.json, in the folder of several runs that one command trains."""

    members: list[str]


class ClockState(TypedDict, total=False):
    """What runs/clock.py continues from."""

    seconds: float
    first_seconds: float
    first_steps: int
    steps: int


class LogState(TypedDict, total=False):
    """What runs/logs/log.py continues from."""

    metrics_bytes: int
    episodes_bytes: int
    clock: ClockState | None
    step: int
    episodes: int
    evaluated: float | None
    last_returns: list[float]
    last_lengths: list[float]
    tracker_ids: dict[str, str]


class TrainingState(TypedDict):
    """What training continues from, without what only the environments know."""

    iteration: int
    steps: int
    adam: Arrays
    statistics: Arrays | None
    buffers: NotRequired[Arrays]
    parameters: NotRequired[list[str]]
    latest: NotRequired[Arrays]
    carry: NotRequired[dict[str, Any]]
    fixed: NotRequired[dict[str, Any]]
    set_attributes: NotRequired[list["SetAttribute"]]


class SetAttribute(TypedDict):
    """An attribute of the environments that a program has set (envs/state/kept_attributes.py)."""

    name: str
    value: Any
    force: bool | None


class FixedFields(TypedDict, total=False):
    """The fields that a resume reads from a checkpoint; it compares all others."""

    num_envs: int
    iteration_shift: int


class CallbackState(TypedDict):
    """The state of a callback (runs/folder/callback_state.py)."""

    name: str
    state: Any


class Checkpoint(TypedDict):
    """tree.json of a checkpoint."""

    state: TrainingState
    log: LogState
    versions: dict[str, str]
    fixed: FixedFields
    cpu: NotRequired[str]
    processes: NotRequired[int]
    callbacks: NotRequired[list[CallbackState]]


class BestRecord(TypedDict):
    """How the best model of the evaluations during training was found."""

    return_mean: float
    iteration: int
    steps: int


class MomentArrays(TypedDict):
    """Statistics of normalisation."""

    mean: Array
    var: Array
    count: Array


class ModelFile(TypedDict):
    """tree.json of a model."""

    variant: str
    config: RunConfig
    obs_shape: list[int]
    obs_dtype: Dtype
    action_space: dict[str, Any]  # models/spaces.py
    observation_space: NotRequired[dict[str, Any] | None]  # absent in version 0.1.0
    masked: NotRequired[bool]
    weights: Arrays
    obs_moments: NotRequired[MomentArrays]
    ret_moments: NotRequired[MomentArrays]
    own_parts: NotRequired[dict[str, str]]
    best: NotRequired[BestRecord]


class ReproFile(ModelFile):
    """tree.json of an update that failed."""

    iteration: int
    rollout: Arrays
    state: Arrays


class CardFile(TypedDict):
    """eval.json of a model with a card."""

    env_id: str
    deterministic: bool
    seed: int
    episodes: int
    episodes_asked: int
    max_steps: int
    episodic_return_mean: float
    returns: list[float]
    interval: list[float]
    weights_sha256: str
