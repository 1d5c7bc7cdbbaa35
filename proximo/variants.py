"""All variants on one page: each names only the defaults in which it differs from the one it builds on."""

from dataclasses import dataclass, replace
from typing import Literal

from proximo.config import Config
from proximo.errors import notify


@dataclass(frozen=True)
class Atari(Config):
    """ppo_atari: images of Atari games, a shared Nature-CNN, the nine Atari details (14-22)."""

    env_id: str = "BreakoutNoFrameskip-v4"
    total_timesteps: int = 10_000_000
    num_envs: int = 8
    clip_coef: float = 0.1
    model: Literal["mlp", "cnn", "impala"] = "cnn"
    shared_network: bool = True
    checkpoint_every: int = 500
    noop_max: int = 30
    """up to this many random no-ops begin a game (detail 14)"""
    frame_skip: int = 4
    """frames an action is held (detail 15)"""
    max_pool: bool = True
    """each pixel is the larger of the last two frames (detail 15)"""
    end_on_life_loss: bool = True
    """a lost life ends the episode for the learner, not the game (detail 16)"""
    fire_reset: bool = True
    """press FIRE after a reset where the game needs it (detail 17)"""
    screen_size: int = 84
    """frames are resized to this many pixels square (detail 18)"""
    grayscale: bool = True
    """one luminance channel a frame (detail 18)"""
    clip_rewards: bool = True
    """rewards become their sign (detail 19)"""
    frame_stack: int = 4
    """frames stacked into one observation (detail 20)"""
    sticky: float | None = None
    """chance that the last action is repeated; None: as the id says (0 for NoFrameskip-v4, 0.25 for ALE/...-v5)"""

    def problems(self) -> list[str]:
        wrong = super().problems()
        wrong += [f"{name}={getattr(self, name)} must be at least 1"
                  for name in ("frame_skip", "frame_stack", "screen_size") if getattr(self, name) < 1]
        if self.noop_max < 0:
            wrong.append(f"noop_max={self.noop_max} must not be negative")
        if self.sticky is not None and (self.sticky < 0 or self.sticky > 1):
            wrong.append(f"sticky={self.sticky} must lie between 0 and 1")
        return wrong


@dataclass(frozen=True)
class AtariLSTM(Atari):
    """ppo_atari_lstm: one frame at a time, memory instead of stacked frames (details 32-36)."""

    frame_stack: int = 1
    recurrent: Literal["none", "lstm", "gru"] = "lstm"


@dataclass(frozen=True)
class AtariEnvpool(Atari):
    """ppo_atari_envpool: EnvPool's Atari, which resets one step late."""

    env_id: str = "Breakout-v5"
    engine: Literal["auto", "gym", "envpool", "ale", "brax", "jax"] = "envpool"


@dataclass(frozen=True)
class AtariXLA(AtariEnvpool):
    """ppo_atari_envpool_xla_jax(_scan): EnvPool's XLA handle inside JAX's compiled functions."""

    framework: Literal["torch", "jax"] = "jax"
    clip_vloss: bool = False
    unroll: bool = True
    """write loops out when compiling (slow to compile); off: scan"""

    def problems(self) -> list[str]:
        sentence = "framework=torch: this variant exists for JAX only. Use ppo_atari_envpool."
        return super().problems() + [sentence] * (self.framework == "torch")


@dataclass(frozen=True)
class AtariXLAScan(AtariXLA):
    """ppo_atari_envpool_xla_jax_scan: the same, its loops scanned."""

    unroll: bool = False


@dataclass(frozen=True)
class AtariMultiGPU(Atari):
    """ppo_atari_multigpu: ppo_atari in several processes started by torchrun."""

    local_num_envs: int | None = 8


@dataclass(frozen=True)
class Continuous(Config):
    """ppo_continuous_action: MuJoCo and dm_control, the nine continuous details (23-31).

    rpo_continuous_action differs in one line and does better on many tasks: docs/results.md has both side by side."""

    env_id: str = "HalfCheetah-v4"
    total_timesteps: int = 1_000_000
    learning_rate: float = 3e-4
    num_envs: int = 1
    num_steps: int = 2048
    num_minibatches: int = 32
    update_epochs: int = 10
    ent_coef: float = 0.0
    norm_obs: bool = True
    norm_reward: bool = True


# Where the published runs of RPO at 0.5 fell far behind PPO, or were made at 0.01 (docs/details.md)
SMALL_ALPHA = ("Ant", "InvertedDoublePendulum", "Reacher", "Pusher", "Hopper", "HalfCheetah", "Swimmer")


@dataclass(frozen=True)
class RPO(Continuous):
    """rpo_continuous_action: robust policy optimization (Rahman & Xue 2022, arXiv 2212.07536)."""

    total_timesteps: int = 8_000_000
    rpo_alpha: float | None = None
    """the mean is shifted by up to this when learning; None: 0.5, or 0.01 where 0.5 is known to hurt (said aloud)"""

    def resolved(self) -> "RPO":
        if self.rpo_alpha is not None:
            return self
        task = self.env_id.rpartition("-v")[0]
        alpha = 0.01 if task in SMALL_ALPHA else 0.5
        if alpha == 0.01:
            notify(f"rpo_alpha = 0.01 for {self.env_id}, where 0.5 is known to hurt (set --rpo-alpha to choose)")
        return replace(self, rpo_alpha=alpha)

    def problems(self) -> list[str]:
        negative = self.rpo_alpha is not None and self.rpo_alpha < 0
        return super().problems() + [f"rpo_alpha={self.rpo_alpha} must not be negative"] * negative


@dataclass(frozen=True)
class Procgen(Config):
    """ppo_procgen: Procgen's generated levels, the IMPALA network."""

    env_id: str = "starpilot"
    total_timesteps: int = 25_000_000
    learning_rate: float = 5e-4
    num_envs: int = 64
    num_steps: int = 256
    anneal_lr: bool = False
    gamma: float = 0.999
    num_minibatches: int = 8
    update_epochs: int = 3
    model: Literal["mlp", "cnn", "impala"] = "impala"
    shared_network: bool = True
    norm_reward: bool = True
    engine: Literal["auto", "gym", "envpool", "ale", "brax", "jax"] = "envpool"
    distribution_mode: Literal["easy", "hard"] = "easy"
    """how hard the levels are"""
    num_levels: int = 0
    """how many levels there are; 0: no end of them"""
    start_level: int = 0
    """seed of the first level"""

    def problems(self) -> list[str]:
        return super().problems() + [f"{name}={getattr(self, name)} must not be negative"
                                     for name in ("num_levels", "start_level") if getattr(self, name) < 0]


@dataclass(frozen=True)
class SelfPlay(Atari):
    """ppo_pettingzoo_ma_atari: two or four players of one game, one network for all."""

    env_id: str = "pong_v3"
    total_timesteps: int = 20_000_000
    num_envs: int = 16
    end_on_life_loss: bool = False
    fire_reset: bool = False
    keep_checkpoints: int = 0
    max_cycles: int = 100_000
    """emulated frames after which a game is cut (a time limit)"""

    def problems(self) -> list[str]:
        return super().problems() + [f"max_cycles={self.max_cycles} must be at least 1"] * (self.max_cycles < 1)


@dataclass(frozen=True)
class BatchedSim(Config):
    """ppo_continuous_action_isaacgym: thousands of environments simulated as one batch (Brax)."""

    env_id: str = "Ant"
    total_timesteps: int = 30_000_000
    engine: Literal["auto", "gym", "envpool", "ale", "brax", "jax"] = "brax"
    learning_rate: float = 0.0026
    anneal_lr: bool = False
    num_envs: int = 4096
    num_steps: int = 16
    num_minibatches: int = 2
    update_epochs: int = 4
    clip_vloss: bool = False
    ent_coef: float = 0.0
    vf_coef: float = 2.0
    max_grad_norm: float = 1.0
    hidden_size: int = 256
    reward_scaler: float = 1.0
    """every reward is multiplied by this before learning"""
    record_video_step_frequency: int = 1464
    """steps of an environment between two videos (with --capture-video)"""

    def problems(self) -> list[str]:
        wrong, between = super().problems(), self.record_video_step_frequency
        if self.reward_scaler <= 0:
            wrong.append(f"reward_scaler={self.reward_scaler} must be above 0")
        if between < 1:
            wrong.append(f"record_video_step_frequency={between} must be at least 1")
        return wrong


@dataclass(frozen=True)
class BatchedHands(BatchedSim):
    """ppo_continuous_action_isaacgym_hands: the second column of hyper-parameters, for ShadowHand and AllegroHand."""

    total_timesteps: int = 600_000_000
    num_envs: int = 8192
    num_steps: int = 8
    num_minibatches: int = 4
    update_epochs: int = 5
    reward_scaler: float = 0.01


@dataclass(frozen=True)
class Compact(Atari):
    """compact: the third document's compact PPO; --model mlp for flat observations, cnn for images."""

    env_id: str = "LunarLander-v3"
    model: Literal["mlp", "cnn", "impala"] = "mlp"
    shared_network: bool = False
    num_envs: int = 8
    clip_coef: float = 0.1
    norm_adv: Literal["minibatch", "batch", "none"] = "batch"
    end_on_life_loss: bool = False
    clip_rewards: bool | None = None
    """rewards become their sign; None: with cnn only"""
    norm_obs: bool | None = None
    """normalise observations; None: with mlp only"""
    norm_reward: bool | None = None
    """normalise rewards; None: with mlp only"""

    def resolved(self) -> "Compact":
        flat = self.model == "mlp"
        return replace(self, clip_rewards=not flat if self.clip_rewards is None else self.clip_rewards,
                       norm_obs=flat if self.norm_obs is None else self.norm_obs,
                       norm_reward=flat if self.norm_reward is None else self.norm_reward)
