"""Every hyper-parameter, once, with its meaning; a variant is a subclass with other defaults (variants.py)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from proximo import facts
from proximo.facts import Engine, Framework, Limits, Model, Recurrent, Schedule, converted_fields, setting, with_switch


@dataclass(frozen=True)
class Config:
    """PPO for classic control and any other Gymnasium environment."""

    limits: ClassVar[Limits] = Limits(engines=("gym", "envpool", "jax"), gymnasium=True)
    histograms: ClassVar[bool] = False  # TensorBoard gets histograms of the returns and lengths of episodes
    video_steps: ClassVar[Any] = None  # steps of each environment between two videos; None: one at every checkpoint
    unrolls: ClassVar[bool] = False  # whether JAX compiles the loops over epochs and minibatches as repeated code
    # Environment: the state, the shapes and the statistics of the environments depend on these fields
    env_id: str = setting("CartPole-v1", group="environment")
    """id of the environment; `module:Env-v0` imports the module first"""
    env_file: str = setting("", group="environment", resume="moved")
    """Python file with the environment: my_env.py or my_env.py:MyEnv, a class, a registered id or make_envs"""
    env_kwargs: facts.Arguments = setting((), group="environment", task=True)
    """arguments of the environment, key=value with Python literals or text: size=5 continuous=False"""
    env_wrappers: facts.Texts = setting((), group="environment", task=True)
    """wrappers around each environment, module:Wrapper, the innermost first"""
    frame_skip: int = setting(1, group="environment", minimum=1, maximum=10_000, detail="15", task=True)
    """environment steps (Atari: frames) for which an action is repeated"""
    grayscale: bool = setting(False, group="environment", detail="18", task=True)
    """one luminance channel per image"""
    resize: int | None = setting(None, group="environment", minimum=1, maximum=10_000)
    """resize images to squares with sides of this many pixels"""
    frame_stack: int = setting(1, group="environment", minimum=1, maximum=10_000, detail="20", ablated=1)
    """observations stacked into one, the newest last"""
    engine: Engine = setting("auto", group="environment", chosen=True)
    """library that steps the environments; auto: the fastest one that is faithful to the original environments"""
    num_envs: int = setting(4, group="environment", minimum=1, detail="1")
    """N: environments that are stepped in parallel, over all processes"""
    scale_envs: int = setting(1, group="environment", minimum=1)
    """multiply num_envs and num_minibatches by this; minibatch size and learning rate stay (arXiv 2603.06009)"""
    num_steps: int = setting(128, group="environment", minimum=1, detail="1")
    """T: steps in each environment between two updates"""
    env_workers: int | None = setting(None, group="environment", minimum=0, chosen=True)
    """worker processes that step environments; 0: none; unset: one per core for Atari (command line, 4+ cores)"""
    env_groups: int = setting(1, group="environment", minimum=1)
    """groups of environments that take turns: the policy acts for one while worker processes step the others"""
    env_timeout: float = setting(60.0, group="environment", above=0, maximum=1e9, resume="free")
    """seconds without an answer after which a worker process counts as stalled"""
    restart_envs: int = setting(0, group="environment", minimum=0, resume="free")
    """how many worker processes that died or stalled are replaced before the run ends; 0: none"""
    info_metrics: facts.Texts = setting((), group="environment", resume="free")
    """entries of info that are numbers, such as is_success: charts/NAME is their mean over the ends of episodes"""
    autoreset: Literal["same-step", "next-step"] = setting("same-step", group="environment")
    """when an environment resets after the end of an episode; next-step exists for comparisons and tests"""
    norm_obs: bool = setting(False, group="environment", detail="28", ablated=False)
    """normalise observations by running statistics, which all environments share"""
    clip_obs: float = setting(10.0, group="environment", above=0, detail="29", ablated=1e9)
    """clip normalised observations to [-value, value]"""
    norm_reward: bool = setting(False, group="environment", detail="30", ablated=False)
    """divide rewards by the running standard deviation of the discounted return"""
    clip_norm_reward: float = setting(10.0, group="environment", above=0, detail="31", ablated=1e9)
    """clip normalised rewards to [-value, value]"""
    # Policy: the shapes of the weights depend on these fields
    model: Model = setting("mlp", group="policy", detail="21")
    """network below the heads: mlp for flat observations, cnn (Nature-CNN) or impala for images"""
    recurrent: Recurrent = setting("none", group="policy", detail="34")
    """recurrent layer between the network and the heads"""
    hidden_sizes: facts.Sizes = setting((64, 64), group="policy", minimum=1, detail="13, 26")
    """units of each hidden layer of the mlp"""
    policy_sizes: facts.Sizes = setting((), group="policy", minimum=1)
    """units of each hidden layer of the policy, where it has its own mlp; empty: hidden_sizes"""
    value_sizes: facts.Sizes = setting((), group="policy", minimum=1)
    """units of each hidden layer of the value function, where it has its own mlp; empty: hidden_sizes"""
    critic_obs: str = setting("", group="policy", ablated="")
    """key of a Dict observation that only the value function sees (asymmetric actor-critic); empty: both see all"""
    norm_value: bool = setting(False, group="policy", ablated=False)
    """the value function learns returns in their running standard deviations, from their running mean"""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = setting("tanh", group="policy", detail="13, 26")
    """activation of the hidden layers of the mlp"""
    layer_norm: bool = setting(False, group="policy")
    """normalise the outputs of each hidden layer of the mlp before its activation"""
    log_std_init: float = setting(0.0, group="policy", detail="24")
    """initial logarithm of the standard deviation of continuous actions"""
    distribution: Literal["gaussian", "squashed", "beta", "gsde"] = setting("gaussian", group="policy", detail="23, 27")
    """continuous actions: gaussian (clipped to the bounds), squashed or beta (inside them), or gsde (smooth noise)"""
    state_dependent_std: bool = setting(False, group="policy", detail="24")
    """the standard deviation of continuous actions is an output of the network, too"""
    sde_sample_freq: int = setting(0, group="policy", minimum=0)
    """steps between two draws of the exploration of gsde; 0: one draw per rollout"""
    memory_size: int = setting(128, group="policy", minimum=1, detail="33")
    """units of the recurrent layer"""
    shared_network: bool = setting(False, group="policy", detail="13", ablated=False)
    """policy and value share their network below the heads (cnn and recurrent networks always do)"""
    orthogonal_init: bool = setting(True, group="policy", detail="2, 32", ablated=False)
    """initialise with orthogonal weights and zero biases; off: the library's own initialisation"""
    # Training, and from exp_name on logging: the shapes of the weights do not depend on these fields
    seed: int = setting(1, group="training", minimum=0)
    """seed of every random draw: weights, environments, actions, minibatches"""
    num_seeds: int = setting(1, group="training", minimum=1, maximum=10_000)
    """agents that are trained together, with seeds seed, seed+1, ... (JAX, with environments written in JAX)"""
    init_from: str = setting("", group="training", resume="moved")
    """folder of a run, checkpoint or model whose weights and statistics of normalisation the run begins with"""
    total_timesteps: int = setting(500_000, group="training", minimum=1, maximum=2**63 - 1, resume="free")
    """total environment steps over all environments, rounded down to whole iterations"""
    learning_rate: float = setting(2.5e-4, group="training", above=0, resume="free", sweep=True)
    """step size of Adam"""
    anneal_lr: Schedule = setting("linear", resume="free", detail="4", ablated="none", switch=("none", "linear"))
    """how the learning rate decreases towards 0; --anneal-lr alone means linear, --no-anneal-lr means none"""
    adam_eps: float = setting(1e-5, group="training", above=0, resume="free", detail="3", ablated=1e-8, sweep=True)
    """epsilon of Adam"""
    gamma: float = setting(0.99, group="training", minimum=0, maximum=1, resume="free", detail="5", sweep=True)
    """discount factor"""
    gae_lambda: float = setting(0.95, resume="free", minimum=0, maximum=1, detail="5", ablated=1.0, sweep=True)
    """lambda of generalized advantage estimation; 1: discounted returns minus values"""
    bootstrap_truncated: bool = setting(True, group="training", resume="free", ablated=False)
    """bootstrap from the value of the last observation at a time limit; off: treat it as a terminal state"""
    num_minibatches: int = setting(4, group="training", minimum=1, resume="free", detail="6, 35", ablated=1)
    """minibatches per epoch"""
    update_epochs: int = setting(4, group="training", minimum=1, maximum=10_000, resume="free", detail="6", ablated=1)
    """E: passes over each batch"""
    norm_adv: facts.NormAdv = setting("minibatch", resume="free", detail="7", ablated="none",
                                      switch=("none", "minibatch"))
    """rows over which advantages are normalised; --norm-adv alone means minibatch, --no-norm-adv means none"""
    clip_coef: float = setting(0.2, group="training", above=0, resume="free", detail="8", ablated=1e9, sweep=True)
    """epsilon: no gradient where the ratio has left [1 - epsilon, 1 + epsilon] in the direction of the advantage"""
    anneal_clip: Schedule = setting("none", resume="free", detail="A1", ablated="none", switch=("none", "linear"))
    """how epsilon decreases towards 0; --anneal-clip alone means linear, --no-anneal-clip means none"""
    clip_vloss: bool = setting(True, group="training", resume="free", detail="9", ablated=False)
    """clip the value to the old value +- clip_coef, and use the larger of the clipped and unclipped squared errors"""
    ent_coef: float = setting(0.01, group="training", minimum=0, resume="free", detail="10", ablated=0.0, sweep=True)
    """weight of the entropy bonus"""
    anneal_ent: Schedule = setting("none", resume="free", switch=("none", "linear"))
    """how the weight of the entropy bonus decreases towards 0; --anneal-ent alone means linear, --no-anneal-ent none"""
    vf_coef: float = setting(0.5, group="training", minimum=0, resume="free", detail="10", sweep=True)
    """weight of the value loss"""
    max_grad_norm: float = setting(0.5, group="training", above=0, resume="free", detail="11", ablated=1e9, sweep=True)
    """largest norm of the gradient of all weights together"""
    desired_kl: float | None = setting(None, group="training", above=0, resume="free")
    """divide the learning rate by 1.5 after an epoch with approx_kl above twice this value; below half: multiply it"""
    target_kl: float | None = setting(None, group="training", above=0, resume="free", detail="A3", ablated=0.01)
    """stop after an epoch whose mean approx_kl exceeds this value; unset: run all epochs"""
    overlap: bool = setting(False, group="training")
    """collect the next rollout during the update, with weights one update old, which may cost learning (torch)"""
    checkpoint_every: int = setting(50, group="training", minimum=1, resume="free")
    """iterations between checkpoints; environments without a saved state restart there, which affects the results"""
    exp_name: str = setting("", group="logging", resume="free", chosen=True)
    """name of the experiment, a part of the run's name; empty: the name of the variant"""
    run_dir: str = setting("", group="logging")
    """folder of the run; empty: runs/ENV__NAME__SEED__TIME"""
    log_every: int = setting(1, group="logging", minimum=1, resume="free")
    """iterations per line of metrics.csv, TensorBoard and trackers, which has their means (episodes.csv: every one)"""
    keep_checkpoints: int = setting(2, group="logging", minimum=0, resume="free")
    """number of newest checkpoints to keep, of which at most one a second is written; 0: write and keep all"""
    require_same_cpu: bool = setting(False, group="logging", resume="free")
    """refuse a resume on another type of CPU, where results can differ in the last bits (otherwise: a warning)"""
    logger: facts.Logger = setting("console", group="logging", resume="free")
    """where progress is shown: console, a tracker (Weights & Biases, MLflow, Trackio) in addition, or nowhere"""
    track: bool = setting(False, group="logging", resume="free")
    """log to Weights & Biases (the same as --logger wandb)"""
    wandb_project_name: str = setting("proximo", group="logging", resume="free")
    """project of Weights & Biases or Trackio, experiment of MLflow"""
    wandb_entity: str = setting("", group="logging", resume="free")
    """entity (team) of Weights & Biases"""
    capture_video: bool = setting(False, group="logging", resume="free")
    """record a video of the first environment at each checkpoint and at the end"""
    eval_every: int = setting(0, group="logging", minimum=0, resume="free")
    """environment steps between two evaluations (deterministic actions, RUN/model-best is kept); 0: none"""
    eval_episodes: int = setting(8, group="logging", minimum=1, resume="free")
    """episodes of each evaluation"""
    eval_num_envs: int = setting(8, group="logging", minimum=1, resume="free")
    """most environments of an evaluation that are open at once, never more than episodes; other numbers play others"""
    eval_max_steps: int = setting(50_000, group="logging", minimum=1, resume="free")
    """longest episode of an evaluation, in steps; a longer one leaves the evaluation without a result"""
    eval_env_kwargs: facts.Arguments = setting((), group="logging", resume="free")
    """arguments of the environments of evaluations, key=value; they take precedence over those of env_kwargs"""
    # Machine: libraries, devices and processes; the arithmetic depends on all but device_ids
    framework: Framework = setting("torch", group="machine")
    """array library"""
    device: str = setting("auto", group="machine", chosen=True)
    """cpu, cuda, cuda:N or auto: a GPU for convolutions or at least 1024 environments, otherwise the CPU"""
    cuda: bool = setting(True, group="machine")
    """off: --device auto does not use a GPU"""
    torch_deterministic: bool = setting(True, group="machine")
    """use deterministic kernels only (GPUs; with torch only those of cuDNN: others may differ between two runs)"""
    threads: int = setting(0, group="machine", minimum=0, maximum=1024, chosen=True)
    """threads of the array library; 0: one for each run with a small network, otherwise one per core"""
    precision: Literal["float32", "bf16"] = setting("float32", group="machine")
    """bf16: convolutions and products of the networks in bfloat16 (torch; CPUs with AVX512-BF16 or AMX, GPUs)"""
    compile: bool = setting(False, group="machine")
    """compile acting and the minibatch step (10 to 70 s once, then cached); faster on CPUs, but not for images"""
    compile_with: Literal["auto", "aot", "inductor"] = setting("auto", group="machine")
    """aot: ahead of time, for CPUs; inductor: torch.compile; auto: aot on CPUs, CUDA graphs on GPUs"""
    backend: Literal["gloo", "nccl"] = setting("gloo", group="machine", detail="A2")
    """communication between processes that torchrun started"""
    collective_timeout: float = setting(300.0, group="machine", above=0, maximum=1e9, resume="free")
    """seconds that a process waits for the others before the run ends; longer than an evaluation or a video"""
    local_num_envs: int | None = setting(None, group="machine", minimum=1, detail="A2")
    """environments of each process; num_envs becomes this number times the number of processes"""
    iteration_shift: int = setting(0, group="machine", chosen=True)
    """additional iterations (negative: fewer) because a resume has changed num_envs; set by the resume"""
    device_ids: facts.Sizes = setting((), group="machine", minimum=0, resume="free", detail="A2")
    """GPU of each process, in order of rank; empty: the GPU with the number of the local rank"""

    def __post_init__(self) -> None:
        vars(self).update(with_switch(self))  # replaces True and False in fields with choices instead of a switch

    @property
    def batch_size(self) -> int:
        """Rows per iteration: num_envs * num_steps."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_size(self) -> int:
        """Rows per minibatch."""
        return self.batch_size // self.num_minibatches

    @property
    def num_iterations(self) -> int:
        """Iterations of the run: total_timesteps // batch_size, except where num_envs has changed."""
        return self.total_timesteps // self.batch_size + self.iteration_shift

    def resolved(self) -> Self:
        """Return the configuration with harmless types converted and defaults filled in that depend on other fields."""
        return converted_fields(self)

    def learning_rate_at(self, iteration: Any) -> Any:
        """Return the learning rate in iteration 1..num_iterations, a number or an array (detail 4)."""
        return self.learning_rate * (1 if self.anneal_lr == "none" else self._annealed(self.anneal_lr, iteration))

    def clip_coef_at(self, iteration: Any) -> Any:
        """Return epsilon in iteration 1..num_iterations, a number or an array (detail A1)."""
        return self.clip_coef * (1 if self.anneal_clip == "none" else self._annealed(self.anneal_clip, iteration))

    def ent_coef_at(self, iteration: Any) -> Any:
        """Return the weight of the entropy bonus in iteration 1..num_iterations, a number or an array."""
        return self.ent_coef * (1 if self.anneal_ent == "none" else self._annealed(self.anneal_ent, iteration))

    def _annealed(self, schedule: str | bool, iteration: Any) -> Any:
        """Return the factor of a schedule, from 1 towards 0. The cosine is that of SGDR (Loshchilov & Hutter 2017)."""
        remaining = 1.0 - (iteration - 1 - self.iteration_shift) / (self.total_timesteps // self.batch_size)
        return remaining if schedule == "linear" else 0.5 - 0.5 * (
            math if isinstance(remaining, float) else remaining.__array_namespace__()).cos(math.pi * remaining)

    def adapted_scale(self, scale: Any, approx_kl: Any) -> Any:
        """Return the next factor of learning_rate, (); both multiplied are 1e-6 to 1e-2 (as in rl_games, skrl)."""
        if self.desired_kl is None:
            return scale
        power = 1.0 * (approx_kl < self.desired_kl / 2) - 1.0 * (approx_kl > 2 * self.desired_kl)
        return (scale * 1.5**power).clip(1e-6 / self.learning_rate, 1e-2 / self.learning_rate)
