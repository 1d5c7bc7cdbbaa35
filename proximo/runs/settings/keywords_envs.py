"""Keyword arguments of proximo.train about environments and networks, for type checkers and editors only.

Written by tools/keywords.py.
"""

from os import PathLike
from typing import Literal, TypedDict

from proximo.facts import Arguments, Engine, Model, Recurrent, Sizes, Texts


class EnvsAndNetworks(TypedDict, total=False):
    """Fields of the configurations in the groups environment and policy, but for env_id."""

    env_file: str | PathLike[str]
    """Python file with the environment: my_env.py or my_env.py:MyEnv, a class, a registered id or make_envs"""
    env_kwargs: Arguments
    """arguments of the environment, key=value with Python literals or text: size=5 continuous=False"""
    env_wrappers: Texts
    """wrappers around each environment, module:Wrapper, the innermost first"""
    frame_skip: int
    """environment steps (Atari: frames) for which an action is repeated"""
    grayscale: bool
    """one luminance channel per image"""
    resize: int | None
    """resize images to squares with sides of this many pixels"""
    frame_stack: int
    """observations stacked into one, the newest last"""
    engine: Engine
    """library that steps the environments; auto: the fastest one that is faithful to the original environments"""
    num_envs: int
    """N: environments that are stepped in parallel, over all processes"""
    scale_envs: int
    """multiply num_envs and num_minibatches by this; minibatch size and learning rate stay (arXiv 2603.06009)"""
    num_steps: int
    """T: steps in each environment between two updates"""
    env_workers: int | None
    """worker processes that step environments; 0: none; unset: one per core for Atari (command line, 4+ cores)"""
    env_groups: int
    """groups of environments that take turns: the policy acts for one while worker processes step the others"""
    env_timeout: float
    """seconds without an answer after which a worker process counts as stalled"""
    restart_envs: int
    """how many worker processes that died or stalled are replaced before the run ends; 0: none"""
    info_metrics: Texts
    """entries of info that are numbers, such as is_success: charts/NAME is their mean over the ends of episodes"""
    autoreset: Literal["same-step", "next-step"]
    """when an environment resets after the end of an episode; next-step exists for comparisons and tests"""
    norm_obs: bool
    """normalise observations by running statistics, which all environments share"""
    clip_obs: float
    """clip normalised observations to [-value, value]"""
    norm_reward: bool
    """divide rewards by the running standard deviation of the discounted return"""
    clip_norm_reward: float
    """clip normalised rewards to [-value, value]"""
    model: Model
    """network below the heads: mlp for flat observations, cnn (Nature-CNN) or impala for images"""
    recurrent: Recurrent
    """recurrent layer between the network and the heads"""
    hidden_sizes: Sizes
    """units of each hidden layer of the mlp"""
    policy_sizes: Sizes
    """units of each hidden layer of the policy, where it has its own mlp; empty: hidden_sizes"""
    value_sizes: Sizes
    """units of each hidden layer of the value function, where it has its own mlp; empty: hidden_sizes"""
    critic_obs: str
    """key of a Dict observation that only the value function sees (asymmetric actor-critic); empty: both see all"""
    norm_value: bool
    """the value function learns returns in their running standard deviations, from their running mean"""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"]
    """activation of the hidden layers of the mlp"""
    layer_norm: bool
    """normalise the outputs of each hidden layer of the mlp before its activation"""
    log_std_init: float
    """initial logarithm of the standard deviation of continuous actions"""
    distribution: Literal["gaussian", "squashed", "beta", "gsde"]
    """continuous actions: gaussian (clipped to the bounds), squashed or beta (inside them), or gsde (smooth noise)"""
    state_dependent_std: bool
    """the standard deviation of continuous actions is an output of the network, too"""
    sde_sample_freq: int
    """steps between two draws of the exploration of gsde; 0: one draw per rollout"""
    memory_size: int
    """units of the recurrent layer"""
    shared_network: bool
    """policy and value share their network below the heads (cnn and recurrent networks always do)"""
    orthogonal_init: bool
    """initialise with orthogonal weights and zero biases; off: the library's own initialisation"""
    noop_max: int
    """a game begins with up to this many no-op actions, a random number"""
    max_pool: bool
    """each pixel is the maximum over the last two frames"""
    end_on_life_loss: bool
    """the loss of a life ends the episode for the learner, but not the game"""
    fire_reset: bool
    """press FIRE after a reset if the game needs it"""
    screen_size: int
    """frames are resized to squares with sides of this many pixels"""
    clip_rewards: bool
    """replace each reward by its sign"""
    sticky: float | None
    """probability that the last action is repeated; unset: as the id says (NoFrameskip-v4: 0, ALE/...-v5: 0.25)"""
    reward_scaler: float
    """factor of every reward before learning"""
    max_cycles: int
    """emulated frames after which a game is cut (a time limit)"""
    distribution_mode: Literal["easy", "hard"]
    """difficulty of the levels"""
    num_levels: int
    """number of levels; 0: unlimited"""
    start_level: int
    """seed of the first level"""
