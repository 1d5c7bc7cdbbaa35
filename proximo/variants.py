"""All variants on one page: each class names only the defaults that differ from those of its base class."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from proximo.config import Config
from proximo.errors import notify
from proximo.facts import Engine, Framework, Limits, Model, NormAdv, Recurrent, Schedule, Sizes, setting


@dataclass(frozen=True)
class Atari(Config):
    """ppo_atari: images of Atari games, a shared Nature-CNN, the nine Atari details (14-22)."""

    limits: ClassVar[Limits] = Limits(engines=("ale", "gym", "envpool"), worker_default="cores", emulator=True)
    env_id: str = "BreakoutNoFrameskip-v4"
    total_timesteps: int = 10_000_000
    num_envs: int = 8
    clip_coef: float = 0.1
    model: Model = "cnn"
    shared_network: bool = True
    checkpoint_every: int = 500
    noop_max: int = setting(30, group="environment", minimum=0, maximum=10_000, detail="14", ablated=0, task=True)
    """a game begins with up to this many no-op actions, a random number"""
    frame_skip: int = 4
    max_pool: bool = setting(True, group="environment", detail="15", ablated=False, task=True)
    """each pixel is the maximum over the last two frames"""
    end_on_life_loss: bool = setting(True, group="environment", detail="16", ablated=False)
    """the loss of a life ends the episode for the learner, but not the game"""
    fire_reset: bool = setting(True, group="environment", detail="17", ablated=False)
    """press FIRE after a reset if the game needs it"""
    screen_size: int = setting(84, group="environment", minimum=1, maximum=10_000, detail="18", task=True)
    """frames are resized to squares with sides of this many pixels"""
    grayscale: bool = True
    clip_rewards: bool = setting(True, group="environment", detail="19", ablated=False)
    """replace each reward by its sign"""
    frame_stack: int = 4
    sticky: float | None = setting(None, group="environment", minimum=0, maximum=1, task=True, chosen=True)
    """probability that the last action is repeated; unset: as the id says (NoFrameskip-v4: 0, ALE/...-v5: 0.25)"""


@dataclass(frozen=True)
class AtariLSTM(Atari):
    """ppo_atari_lstm: single frames, and an LSTM instead of stacked frames (details 32-36)."""

    frame_stack: int = 1
    recurrent: Recurrent = "lstm"


@dataclass(frozen=True)
class AtariEnvpool(Atari):
    """ppo_atari_envpool: EnvPool's Atari games, which reset one step late."""

    limits: ClassVar[Limits] = Limits(engines=("envpool",), emulator=True, advice="ppo_atari plays with other engines.")
    env_id: str = "Breakout-v5"
    engine: Engine = "envpool"


@dataclass(frozen=True)
class AtariXLA(AtariEnvpool):
    """ppo_atari_envpool_xla_jax: EnvPool's XLA handle inside JAX's compiled functions."""

    limits: ClassVar[Limits] = Limits(engines=("envpool",), frameworks=("jax",), inside_only=True, emulator=True,
                                      advice="ppo_atari_envpool trains with torch, ppo_atari plays with other engines.")
    framework: Framework = "jax"
    clip_vloss: bool = False
    unroll: bool = setting(True, group="machine")
    """compile loops as repeated code, which takes long to compile; off: as scans"""

    @property
    def unrolls(self) -> bool:  # type: ignore[override]
        return self.unroll


@dataclass(frozen=True)
class AtariXLAScan(AtariXLA):
    """ppo_atari_envpool_xla_jax_scan: the same with loops as scans, which compile faster."""

    unroll: bool = False


@dataclass(frozen=True)
class AtariMultiGPU(Atari):
    """ppo_atari_multigpu: ppo_atari in several processes, which torchrun starts."""

    local_num_envs: int | None = 8


@dataclass(frozen=True)
class Continuous(Config):
    """ppo_continuous_action: MuJoCo and dm_control, the nine details of continuous actions (23-31).

    rpo_continuous_action differs in one line: docs/results.md compares both, docs/details.md says where it is worse.
    """

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


# Tasks on which the published runs of RPO with 0.5 fell far behind PPO, or were made with 0.01 (docs/details.md).
SMALL_ALPHA = ("Ant", "InvertedDoublePendulum", "Reacher", "Pusher", "Hopper", "HalfCheetah", "Swimmer")


@dataclass(frozen=True)
class RPO(Continuous):
    """rpo_continuous_action: robust policy optimization (Rahman & Xue 2022, arXiv 2212.07536)."""

    limits: ClassVar[Limits] = Config.limits._replace(own_distribution=True)
    total_timesteps: int = 8_000_000
    rpo_alpha: float | None = setting(None, group="training", minimum=0, resume="free", chosen=True)
    """largest random shift of the mean during updates; unset: 0.5, or 0.01 for tasks on which 0.5 is known to hurt"""

    def resolved(self) -> Self:
        cfg = super().resolved()
        if cfg.rpo_alpha is not None:
            return cfg
        task = cfg.env_id.removeprefix("gymnasium:").partition("-v")[0]  # an id without a version is the newest one
        alpha = 0.01 if task in SMALL_ALPHA else 0.5
        if alpha == 0.01:
            notify(f"rpo_alpha = 0.01 for {cfg.env_id}, where 0.5 is known to hurt (use --rpo-alpha to choose a value)")
        return replace(cfg, rpo_alpha=alpha)


@dataclass(frozen=True)
class Procgen(Config):
    """ppo_procgen: the generated levels of Procgen, the IMPALA network."""

    limits: ClassVar[Limits] = Limits(engines=("envpool",))
    env_id: str = "starpilot"
    total_timesteps: int = 25_000_000
    learning_rate: float = 5e-4
    num_envs: int = 64
    num_steps: int = 256
    anneal_lr: Schedule = "none"
    gamma: float = 0.999
    num_minibatches: int = 8
    update_epochs: int = 3
    model: Model = "impala"
    shared_network: bool = True
    norm_reward: bool = True
    engine: Engine = "envpool"
    distribution_mode: Literal["easy", "hard"] = setting("easy", group="environment", task=True)
    """difficulty of the levels"""
    num_levels: int = setting(0, group="environment", minimum=0, task=True)
    """number of levels; 0: unlimited"""
    start_level: int = setting(0, group="environment", minimum=0, task=True)
    """seed of the first level"""


@dataclass(frozen=True)
class SelfPlay(Atari):
    """ppo_pettingzoo_ma_atari: one network plays all sides of a two- or four-player game."""

    limits: ClassVar[Limits] = Limits(engines=("ale",), worker_default="cores", next_step=False, emulator=True,
                                      max_players=4)
    env_id: str = "pong_v3"
    total_timesteps: int = 20_000_000
    num_envs: int = 16
    end_on_life_loss: bool = False
    fire_reset: bool = False
    keep_checkpoints: int = 0
    max_cycles: int = setting(100_000, group="environment", minimum=1, task=True)
    """emulated frames after which a game is cut (a time limit)"""


@dataclass(frozen=True)
class BatchedSim(Config):
    """ppo_continuous_action_isaacgym: thousands of environments that Brax simulates as one batch."""

    limits: ClassVar[Limits] = Limits(engines=("brax",), next_step=False)
    env_id: str = "Ant"
    total_timesteps: int = 30_000_000
    engine: Engine = "brax"
    learning_rate: float = 0.0026
    anneal_lr: Schedule = "none"
    num_envs: int = 4096
    num_steps: int = 16
    num_minibatches: int = 2
    update_epochs: int = 4
    clip_vloss: bool = False
    ent_coef: float = 0.0
    vf_coef: float = 2.0
    max_grad_norm: float = 1.0
    hidden_sizes: Sizes = (256, 256)
    checkpoint_every: int = 100  # 1,600 steps: several processes make environments again, whose episodes have 1,000
    reward_scaler: float = setting(1.0, group="environment", above=0)
    """factor of every reward before learning"""
    record_video_step_frequency: int = setting(1464, group="logging", minimum=1, resume="free")
    """steps of each environment between two videos (with --capture-video)"""

    @property
    def video_steps(self) -> int | None:
        return self.record_video_step_frequency


@dataclass(frozen=True)
class BatchedHands(BatchedSim):
    """ppo_continuous_action_isaacgym_hands: the hyper-parameters published for the tasks ShadowHand and AllegroHand."""

    total_timesteps: int = 600_000_000
    num_envs: int = 8192
    num_steps: int = 8
    num_minibatches: int = 4
    update_epochs: int = 5
    checkpoint_every: int = 200
    reward_scaler: float = 0.01


@dataclass(frozen=True)
class Compact(Atari):
    """compact: a compact PPO that normalises advantages once per batch, for flat observations (mlp) or images (cnn).

    With the mlp it normalises observations and rewards; with the cnn it replaces rewards by their sign.
    """

    histograms: ClassVar[bool] = True
    limits: ClassVar[Limits] = Limits(engines=("gym", "ale", "envpool"), worker_default="cores", gymnasium=True,
                                      emulator=True)
    env_id: str = "LunarLander-v3"
    model: Model = "mlp"
    shared_network: bool = False
    num_envs: int = 8
    clip_coef: float = 0.1
    norm_adv: NormAdv = "batch"
    end_on_life_loss: bool = False
    clip_rewards: bool | None = setting(None, chosen=True)  # type: ignore[assignment]  # a bool after resolved()
    """replace each reward by its sign; unset: with the cnn only"""
    norm_obs: bool | None = setting(None, chosen=True)  # type: ignore[assignment]
    """normalise observations; unset: with the mlp only"""
    norm_reward: bool | None = setting(None, chosen=True)  # type: ignore[assignment]
    """normalise rewards; unset: with the mlp only"""

    def resolved(self) -> Self:
        cfg = super().resolved()
        flat = cfg.model == "mlp"
        return replace(cfg, clip_rewards=not flat if cfg.clip_rewards is None else cfg.clip_rewards,
                       norm_obs=flat if cfg.norm_obs is None else cfg.norm_obs,
                       norm_reward=flat if cfg.norm_reward is None else cfg.norm_reward)
