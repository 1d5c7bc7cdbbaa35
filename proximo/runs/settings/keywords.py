"""The keyword arguments of proximo.train and its like, for type checkers and editors only.

Written by tools/keywords.py.
"""

from collections.abc import Collection
from os import PathLike
from typing import Literal

from proximo.facts import Arguments, Framework, Logger, NormAdv, Schedule, Sizes
from proximo.protocols import SetUp
from proximo.runs.settings.keywords_envs import EnvsAndNetworks


class _Shared(EnvsAndNetworks, total=False):
    num_seeds: int
    """agents that are trained together, with seeds seed, seed+1, ... (JAX, with environments written in JAX)"""
    init_from: str | PathLike[str]
    """folder of a run, checkpoint or model whose weights and statistics of normalisation the run begins with"""
    total_timesteps: float
    """total environment steps over all environments, rounded down to whole iterations"""
    anneal_lr: Schedule
    """how the learning rate decreases towards 0; --anneal-lr alone means linear, --no-anneal-lr means none"""
    bootstrap_truncated: bool
    """bootstrap from the value of the last observation at a time limit; off: treat it as a terminal state"""
    num_minibatches: int
    """minibatches per epoch"""
    update_epochs: int
    """E: passes over each batch"""
    norm_adv: NormAdv
    """rows over which advantages are normalised; --norm-adv alone means minibatch, --no-norm-adv means none"""
    anneal_clip: Schedule
    """how epsilon decreases towards 0; --anneal-clip alone means linear, --no-anneal-clip means none"""
    clip_vloss: bool
    """clip the value to the old value +- clip_coef, and use the larger of the clipped and unclipped squared errors"""
    anneal_ent: Schedule
    """how the weight of the entropy bonus decreases towards 0; --anneal-ent alone means linear, --no-anneal-ent none"""
    desired_kl: float | None
    """divide the learning rate by 1.5 after an epoch with approx_kl above twice this value; below half: multiply it"""
    target_kl: float | None
    """stop after an epoch whose mean approx_kl exceeds this value; unset: run all epochs"""
    overlap: bool
    """collect the next rollout during the update, with weights one update old, which may cost learning (torch)"""
    checkpoint_every: int
    """iterations between checkpoints; environments without a saved state restart there, which affects the results"""
    exp_name: str
    """name of the experiment, a part of the run's name; empty: the name of the variant"""
    run_dir: str | PathLike[str]
    """folder of the run; empty: runs/ENV__NAME__SEED__TIME"""
    log_every: int
    """iterations per line of metrics.csv, TensorBoard and trackers, which has their means (episodes.csv: every one)"""
    keep_checkpoints: int
    """number of newest checkpoints to keep, of which at most one a second is written; 0: write and keep all"""
    require_same_cpu: bool
    """refuse a resume on another type of CPU, where results can differ in the last bits (otherwise: a warning)"""
    logger: Logger
    """where progress is shown: console, a tracker (Weights & Biases, MLflow, Trackio) in addition, or nowhere"""
    track: bool
    """log to Weights & Biases (the same as --logger wandb)"""
    wandb_project_name: str
    """project of Weights & Biases or Trackio, experiment of MLflow"""
    wandb_entity: str
    """entity (team) of Weights & Biases"""
    capture_video: bool
    """record a video of the first environment at each checkpoint and at the end"""
    eval_every: float
    """environment steps between two evaluations (deterministic actions, RUN/model-best is kept); 0: none"""
    eval_episodes: int
    """episodes of each evaluation"""
    eval_num_envs: int
    """most environments of an evaluation that are open at once, never more than episodes; other numbers play others"""
    eval_max_steps: int
    """longest episode of an evaluation, in steps; a longer one leaves the evaluation without a result"""
    eval_env_kwargs: Arguments
    """arguments of the environments of evaluations, key=value; they take precedence over those of env_kwargs"""
    framework: Framework
    """array library"""
    device: str
    """cpu, cuda, cuda:N or auto: a GPU for convolutions or at least 1024 environments, otherwise the CPU"""
    cuda: bool
    """off: --device auto does not use a GPU"""
    torch_deterministic: bool
    """use deterministic kernels only (GPUs; with torch only those of cuDNN: others may differ between two runs)"""
    threads: int
    """threads of the array library; 0: one for each run with a small network, otherwise one per core"""
    precision: Literal["float32", "bf16"]
    """bf16: convolutions and products of the networks in bfloat16 (torch; CPUs with AVX512-BF16 or AMX, GPUs)"""
    compile: bool
    """compile acting and the minibatch step (10 to 70 s once, then cached); faster on CPUs, but not for images"""
    compile_with: Literal["auto", "aot", "inductor"]
    """aot: ahead of time, for CPUs; inductor: torch.compile; auto: aot on CPUs, CUDA graphs on GPUs"""
    backend: Literal["gloo", "nccl"]
    """communication between processes that torchrun started"""
    collective_timeout: float
    """seconds that a process waits for the others before the run ends; longer than an evaluation or a video"""
    local_num_envs: int | None
    """environments of each process; num_envs becomes this number times the number of processes"""
    device_ids: Sizes
    """GPU of each process, in order of rank; empty: the GPU with the number of the local rank"""
    record_video_step_frequency: int
    """steps of each environment between two videos (with --capture-video)"""
    unroll: bool
    """compile loops as repeated code, which takes long to compile; off: as scans"""
    rpo_alpha: float | None
    """largest random shift of the mean during updates; unset: 0.5, or 0.01 for tasks on which 0.5 is known to hurt"""


class PresetFields(_Shared, total=False):
    """What proximo.preset takes: all fields of the configurations, but for env_id."""

    seed: int
    """seed of every random draw: weights, environments, actions, minibatches"""
    learning_rate: float
    """step size of Adam"""
    adam_eps: float
    """epsilon of Adam"""
    gamma: float
    """discount factor"""
    gae_lambda: float
    """lambda of generalized advantage estimation; 1: discounted returns minus values"""
    clip_coef: float
    """epsilon: no gradient where the ratio has left [1 - epsilon, 1 + epsilon] in the direction of the advantage"""
    ent_coef: float
    """weight of the entropy bonus"""
    vf_coef: float
    """weight of the value loss"""
    max_grad_norm: float
    """largest norm of the gradient of all weights together"""


class Fields(PresetFields, total=False):
    """All fields of the configurations of all variants."""

    env_id: str
    """id of the environment; `module:Env-v0` imports the module first"""


class TrainArguments(Fields, total=False):
    """What proximo.train takes besides its parameters."""

    set_up: SetUp | None
    """(cfg, make_envs, make_agent, loss_fn, state) -> a proximo.on_torch.setup.Setup"""


class Changes(TrainArguments, total=False):
    """What proximo.resume takes."""

    allow_import: str | PathLike[str] | Collection[str | PathLike[str]]
    """modules and scripts that may be imported because the run names them"""


class SweepFields(_Shared, total=False):
    """What proximo.sweep takes: some fields may have several values."""

    env_id: str
    """id of the environment; `module:Env-v0` imports the module first"""
    seed: int | Collection[int]
    learning_rate: float | Collection[float]
    adam_eps: float | Collection[float]
    gamma: float | Collection[float]
    gae_lambda: float | Collection[float]
    clip_coef: float | Collection[float]
    ent_coef: float | Collection[float]
    vf_coef: float | Collection[float]
    max_grad_norm: float | Collection[float]
