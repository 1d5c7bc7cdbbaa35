"""Every hyper-parameter, once, with what it means; a variant is a subclass with other defaults (variants.py)."""

import math
from dataclasses import dataclass, fields
from typing import Literal


@dataclass(frozen=True)
class Config:
    """PPO for classic control, and the fields that every variant shares."""

    # What runs, and where
    env_id: str = "CartPole-v1"
    """id of the environment; `module:Env-v0` imports the module first"""
    exp_name: str = ""
    """name of the experiment, part of the run's name; empty: the variant's name"""
    seed: int = 1
    """seed of every random draw: weights, environments, actions, minibatches"""
    total_timesteps: int = 500_000
    """decisions to play over all environments; what does not fill an iteration is not run"""
    framework: Literal["torch", "jax"] = "torch"
    """array library"""
    engine: Literal["auto", "gym", "envpool", "ale", "brax", "jax"] = "auto"
    """who steps the environments; auto: the fastest faithful engine of the variant"""
    device: str = "auto"
    """cpu, cuda, cuda:N or auto (chosen by the size of the network, and said)"""
    cuda: bool = True
    """if off, no GPU is used whatever --device auto finds"""
    torch_deterministic: bool = True
    """use deterministic kernels only (on CPU this costs nothing)"""
    threads: int = 0
    """threads of the array library; 0: one for small networks, all cores for convolutions"""
    compile: bool = False
    """freeze acting and the minibatch step ahead of time (20-60 s once, then cached), several times faster on CPU"""
    run_dir: str = ""
    """folder of the run; empty: runs/ENV__NAME__SEED__TIME"""
    logger: Literal["console", "wandb", "none"] = "console"
    """what else follows the run: console progress, Weights & Biases too, or nothing; files are always written"""
    track: bool = False
    """follow the run with Weights & Biases (the same as --logger wandb)"""
    wandb_project_name: str = "proximo"
    """project of Weights & Biases"""
    wandb_entity: str = ""
    """entity (team) of Weights & Biases"""
    capture_video: bool = False
    """record a video of the first environment at each checkpoint and at the end"""
    checkpoint_every: int = 50
    """iterations between two checkpoints; environments whose state cannot be kept are rebuilt there"""
    keep_checkpoints: int = 2
    """how many of the newest checkpoints stay; 0: all"""

    # The environments
    num_envs: int = 4
    """N: environments stepped in parallel, over all processes (details 1)"""
    num_steps: int = 128
    """T: steps played in each environment between two updates"""
    env_workers: int | None = None
    """worker processes that step the environments and write observations into shared memory; 0: this process; unset:
    one a core for Atari's emulators from the command line, given four cores, else 0"""
    env_timeout: float = 60.0
    """seconds after which a worker that has not answered is called stalled"""
    autoreset: Literal["same-step", "next-step"] = "same-step"
    """when an environment that ended is reset; next-step exists for parity and tests"""
    norm_obs: bool = False
    """normalise observations by running statistics, shared by all environments (detail 28)"""
    clip_obs: float = 10.0
    """normalised observations are clipped to plus and minus this (detail 29)"""
    norm_reward: bool = False
    """divide rewards by the running deviation of the discounted return (detail 30)"""
    clip_norm_reward: float = 10.0
    """scaled rewards are clipped to plus and minus this (detail 31)"""
    bootstrap_truncated: bool = True
    """a time limit is worth the value of the last observation; off: it counts as a death, as in the papers"""

    # The network
    model: Literal["mlp", "cnn", "impala"] = "mlp"
    """trunk: mlp for flat observations, cnn (Nature) or impala for images"""
    recurrent: Literal["none", "lstm", "gru"] = "none"
    """memory between the trunk and the heads (details 32-36)"""
    hidden_size: int = 64
    """units of each of the two layers of the mlp"""
    memory_size: int = 128
    """units of the memory"""
    shared_network: bool = False
    """policy and value share their trunk (detail 13; cnn and recurrent networks always do)"""
    orthogonal_init: bool = True
    """orthogonal weights and zero biases (detail 2); off: the library's own initialisation"""

    # Learning
    learning_rate: float = 2.5e-4
    """step size of Adam"""
    anneal_lr: bool = True
    """the learning rate falls linearly to 0 (detail 4)"""
    adam_eps: float = 1e-5
    """epsilon of Adam (detail 3)"""
    gamma: float = 0.99
    """discount factor"""
    gae_lambda: float = 0.95
    """lambda of generalized advantage estimation (detail 5); 1: returns less values"""
    num_minibatches: int = 4
    """minibatches an epoch (detail 6)"""
    update_epochs: int = 4
    """K: passes over each batch"""
    norm_adv: Literal["minibatch", "batch", "none"] = "minibatch"
    """over which rows advantages are normalised (detail 7); bare --norm-adv means minibatch, --no-norm-adv none"""
    clip_coef: float = 0.2
    """epsilon: how far the ratio may leave 1 before its gradient stops (detail 8)"""
    anneal_clip: bool = False
    """epsilon falls linearly to 0 (detail A1)"""
    clip_vloss: bool = True
    """the value may move by clip_coef only, the larger of both errors counts (detail 9)"""
    ent_coef: float = 0.01
    """weight of the entropy bonus (detail 10)"""
    vf_coef: float = 0.5
    """weight of the value loss (detail 10)"""
    max_grad_norm: float = 0.5
    """the gradient of all weights together is scaled down to this norm (detail 11)"""
    target_kl: float | None = None
    """no further epoch once an epoch's mean approx_kl exceeds this (detail A3)"""

    # Several processes
    backend: Literal["gloo", "nccl"] = "gloo"
    """how processes started by torchrun talk (detail A2)"""
    local_num_envs: int | None = None
    """environments of each process; num_envs becomes this times the number of processes"""
    device_ids: tuple[int, ...] = ()
    """GPU of each process, in order of rank; empty: the local rank's own"""
    num_seeds: int = 1
    """independent agents trained at once, seeds seed, seed+1, ... (JAX with environments written in JAX)"""

    @property
    def batch_size(self) -> int:
        """Rows an iteration: num_envs * num_steps."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_size(self) -> int:
        """Rows a minibatch."""
        return self.batch_size // self.num_minibatches

    @property
    def num_iterations(self) -> int:
        """Iterations that run: total_timesteps // batch_size."""
        return self.total_timesteps // self.batch_size

    def resolved(self) -> "Config":
        """With every default that depends on other fields filled in."""
        return self

    def learning_rate_at(self, iteration: int) -> float:
        """Of iteration 1..num_iterations (detail 4)."""
        return self.learning_rate * (self._remaining(iteration) if self.anneal_lr else 1.0)

    def clip_coef_at(self, iteration: int) -> float:
        """Of iteration 1..num_iterations (detail A1)."""
        return self.clip_coef * (self._remaining(iteration) if self.anneal_clip else 1.0)

    def _remaining(self, iteration: int) -> float:
        return 1.0 - (iteration - 1) / self.num_iterations

    def problems(self) -> list[str]:
        """Everything wrong with this configuration, one sentence each: what was given, what was wanted."""
        wrong = [f"{f.name}={getattr(self, f.name)} is not a finite number" for f in fields(self)
                 if isinstance(getattr(self, f.name), float) and not math.isfinite(getattr(self, f.name))]
        wrong += self._problems_of_ranges()
        if min(self.total_timesteps, self.num_envs, self.num_steps, self.num_minibatches) >= 1:
            wrong += self._problems_of_sizes()
        return wrong

    def _problems_of_ranges(self) -> list[str]:
        at_least_one = ("total_timesteps", "num_envs", "num_steps", "num_minibatches", "update_epochs", "num_seeds",
                        "hidden_size", "memory_size", "checkpoint_every")
        wrong = [f"{name}={getattr(self, name)} must be at least 1" for name in at_least_one if getattr(self, name) < 1]
        wrong += [f"{name}={getattr(self, name)} must lie between 0 and 1" for name in ("gamma", "gae_lambda")
                  if getattr(self, name) < 0 or getattr(self, name) > 1]
        above_zero = ("learning_rate", "adam_eps", "clip_coef", "max_grad_norm", "clip_obs", "clip_norm_reward",
                      "env_timeout")
        wrong += [f"{name}={getattr(self, name)} must be above 0" for name in above_zero if getattr(self, name) <= 0]
        not_negative = ("seed", "ent_coef", "vf_coef", "threads", "keep_checkpoints")
        wrong += [f"{name}={getattr(self, name)} must not be negative" for name in not_negative
                  if getattr(self, name) < 0]
        if min(self.device_ids, default=0) < 0:
            wrong.append(f"device_ids={' '.join(map(str, self.device_ids))} must not be negative")
        if self.env_workers is not None and self.env_workers < 0:
            wrong.append(f"env_workers={self.env_workers} must not be negative")
        if self.keep_checkpoints == 1:
            wrong.append("keep_checkpoints=1 leaves nothing when the newest is damaged; use 2 or more, or 0 for all")
        if self.target_kl is not None and self.target_kl <= 0:
            wrong.append(f"target_kl={self.target_kl} must be above 0; leave it out to run every epoch")
        if not (self.device in ("cpu", "cuda", "auto") or self.device.removeprefix("cuda:").isdigit()):
            wrong.append(f"device={self.device} is unknown; use cpu, cuda, cuda:N or auto")
        return wrong

    def _problems_of_sizes(self) -> list[str]:
        wrong = []
        if self.total_timesteps < self.batch_size:
            wrong.append(f"total_timesteps={self.total_timesteps} is less than one batch of num_envs * num_steps = "
                         f"{self.batch_size}; use at least {self.batch_size}")
        rows, what = (self.num_envs, "num_envs") if self.recurrent != "none" else (self.batch_size, "batch_size")
        if rows % self.num_minibatches:
            valid = ", ".join(str(k) for k in range(1, min(rows, 64) + 1) if rows % k == 0)
            wrong.append(f"{what}={rows} does not divide into num_minibatches={self.num_minibatches}; use {valid}")
        if self.env_workers and self.env_workers > 0 and self.num_envs % self.env_workers:
            valid = ", ".join(str(k) for k in range(1, self.num_envs + 1) if self.num_envs % k == 0)
            wrong.append(f"num_envs={self.num_envs} does not divide into env_workers={self.env_workers}; use {valid}")
        return wrong
