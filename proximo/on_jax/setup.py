"""What is made before the first step: processes, devices, environments, agent, compiled functions, first state."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from proximo.config import Config
from proximo.envs.arrays.model_fit import announce_images
from proximo.envs.machine.memory_needs import check_memory
from proximo.envs.normalize import Normalizer, make_normalizer
from proximo.envs.state.gym import announce_rebuilds
from proximo.errors import UsageError
from proximo.on_jax.checks import check_agent, check_calls, checked_loss
from proximo.on_jax.distributed import Ranks, check_same_settings, check_same_start, check_same_weights, join, share_of
from proximo.on_jax.gae import estimate_advantages
from proximo.on_jax.learner import Learner, apply_gradient, compute_gradient, start_adam, update
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.mesh import all_reduce_sum
from proximo.on_jax.parameters import initial_weights, make_bind
from proximo.on_jax.play_host import HostPlayer
from proximo.on_jax.play_inside import InsidePlayer
from proximo.on_jax.play_mesh import MeshPlayer
from proximo.on_jax.play_pool import PoolPlayer
from proximo.on_jax.player import Player, SeededEnvs
from proximo.on_jax.train_step import TrainState, stream_keys
from proximo.on_jax.value_norm import find_critics, with_normalized_values
from proximo.part_checks import check_inside, check_value_norm
from proximo.protocols import MakeAgent, MakeEnvs, VecEnv
from proximo.streams import env_seeds, stream_generator
from proximo.types import Carry

# Settings of JAX that decide about dtypes, random numbers, or what an operation accepts; the defaults are first.
NEEDED_SETTINGS = {"jax_enable_x64": (False,), "jax_default_prng_impl": ("threefry2x32",),
                   "jax_threefry_partitionable": (True,), "jax_numpy_rank_promotion": ("allow", "warn"),
                   "jax_numpy_dtype_promotion": ("standard",)}
ChangeLearner = Callable[[Learner], Learner]  # what another update has in the place of the Learner of PPO


def unchanged(learner: Learner) -> Learner:
    """Return the Learner: the update is PPO."""
    return learner


def set_up(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: Callable[..., Any],
           state: dict[str, Any] | None = None, change_learner: ChangeLearner = unchanged) -> tuple[Player, TrainState]:
    """Join the other processes, which must have done as many iterations as the snapshot `state`, and make everything.

    The arguments are those of train(), with `cfg` as checked() returns it. `change_learner` returns the Learner with
    other functions: another update.

    Returns:
        The player, and the state before the first iteration, which Player.place() has not put on the devices yet.

    Raises:
        UsageError: The configuration does not fit this machine, the other processes, or the environments.
    """
    if cfg.framework != "jax":
        raise UsageError(f"framework={cfg.framework}, and this loop trains with JAX. Use the loop of "
                         "proximo/on_torch/train.py, or framework=jax.")
    ranks = join(cfg)
    check_same_start(ranks, state["iteration"] if state else 0)
    check_same_settings(ranks, cfg)
    own, seeded_envs = share_of(cfg, ranks.size), partial(make_seeded_envs, cfg, ranks, make_envs)
    envs = seeded_envs(0)
    try:
        normalizer = make_normalizer(own, envs)
        if envs.play == "host" or jax.default_backend() == "cpu":
            check_memory(own, normalizer.spec, envs.num_envs)
        announce_images(normalizer.spec, cfg)
        agent = make_agent(normalizer.spec, own)
        learner = make_learner(own, agent, loss_fn, ranks.size, change_learner, fills=may_fill(envs))
        player = make_player(ranks, envs, normalizer, learner, seeded_envs)
        if not player.keeps_state:
            announce_rebuilds(cfg, ranks.processes)
        first = first_state(player, cfg.seed, player.begin(0, player.normalizer.start()))
        player.normalizer = normalizer._replace(spec=normalizer.spec._replace(masked=first.carry.mask is not None))
        if ranks.mesh is None:
            check_calls(learner.bind(first.adam.weights), first.carry)
        if ranks.processes > 1 and not state:
            check_same_weights(ranks, first.adam.weights)
        return player, first
    except BaseException:
        envs.close()
        raise


def make_seeded_envs(cfg: Config, ranks: Ranks, make_envs: MakeEnvs, iteration: int) -> VecEnv:
    """Make this process's environments with the seeds of an iteration. Where several of its devices simulate them, make
    those of one device.
    """
    own = share_of(cfg, ranks.processes)
    envs = make_envs(own, env_seeds(cfg.seed, own.num_envs, iteration, ranks.process))
    if envs.play == "inside" and ranks.processes < ranks.size:
        envs.close()
        own = share_of(cfg, ranks.size)
        envs = make_envs(own, env_seeds(cfg.seed, own.num_envs, iteration))
    return envs


def may_fill(envs: VecEnv) -> bool:
    """Return whether rows may be fillers. Environments inside the compiled function may say no (`fills = False`)."""
    return envs.play != "inside" or getattr(envs.pure, "fills", True)  # type: ignore[attr-defined]


def make_learner(cfg: Config, agent: Any, loss_fn: Callable[..., Any], ranks: int = 1,
                 change: ChangeLearner = unchanged, fills: bool = False) -> Learner:
    """Bundle what the update calls, as `change` returns it. `fills`: the environments may have rows that are not valid.

    Raises:
        UsageError: The agent cannot be trained, or a program has changed a setting of JAX that matters.
    """
    check_agent(agent)
    check_settings()
    check_value_norm(len(find_critics(agent)), cfg)
    scaled_loss = with_normalized_values(loss_fn) if cfg.norm_value else loss_fn
    learner = Learner(cfg=cfg, agent=agent, bind=make_bind(agent), loss_fn=partial(checked_loss, scaled_loss),
                      all_reduce_sum=all_reduce_sum if ranks > 1 else lambda x: x,
                      estimate=estimate_advantages, gradient=compute_gradient, apply=apply_gradient, update=update,
                      divisible=loss_fn is ppo_loss and not agent.recurrent, skips=agent.recurrent or fills)
    if change is unchanged:
        return learner
    from proximo.on_jax.another_update import changed_learner  # most runs do not need it

    return changed_learner(learner, change)


def check_settings() -> None:
    """Raise UsageError for settings of JAX that are not those of NEEDED_SETTINGS."""
    found = {name: getattr(jax.config, name, needed[0]) for name, needed in NEEDED_SETTINGS.items()}
    found = {name: getattr(value, "value", value) for name, value in found.items()}  # some are enumerations
    if wrong := [f"JAX is set to {name}={found[name]}, and training needs {needed[0]}. Unset {name.upper()}, or call "
                 f'jax.config.update("{name}", {needed[0]!r}).'
                 for name, needed in NEEDED_SETTINGS.items() if found[name] not in needed]:
        raise UsageError("\n".join(wrong))


def make_player(ranks: Ranks, envs: VecEnv, normalizer: Normalizer, learner: Learner,
                seeded_envs: SeededEnvs) -> Player:
    """Choose how the environments are played; UsageError if they return torch tensors."""
    if envs.arrays == "torch":
        raise UsageError('framework="jax" needs environments that return numpy or JAX arrays; these return torch '
                         'tensors. Use framework="torch".')
    if envs.play == "host":
        return HostPlayer(ranks, envs, normalizer, learner, seeded_envs)
    if envs.play == "pool":
        return PoolPlayer(ranks, envs, normalizer, learner, seeded_envs)
    if ranks.mesh is None:
        return InsidePlayer(envs, normalizer, learner)
    return MeshPlayer(ranks, ranks.mesh, envs, normalizer, learner)


def make_inside_player(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: Callable[..., Any],
                       at_once: int = 1, change_learner: ChangeLearner = unchanged) -> InsidePlayer:
    """Make what plays environments inside the compiled function on one device.

    Args:
        cfg: The hyper-parameters, as checked() returns them.
        make_envs: See train().
        make_agent: See train().
        loss_fn: See train().
        at_once: Number of runs whose rollouts are in memory at the same time.
        change_learner: See set_up().

    Raises:
        UsageError: The environments cannot be there, or the rollouts do not fit into the memory.
    """
    envs = make_envs(cfg, env_seeds(cfg.seed, cfg.num_envs))
    try:
        check_inside(cfg, envs)
        normalizer = make_normalizer(cfg, envs)
        if jax.default_backend() == "cpu":
            check_memory(cfg, normalizer.spec, envs.num_envs, runs=at_once)
        agent = make_agent(normalizer.spec, cfg)
        learner = make_learner(cfg, agent, loss_fn, change=change_learner, fills=may_fill(envs))
        return InsidePlayer(envs, normalizer, learner)
    except BaseException:
        envs.close()
        raise


def first_state(player: Player, seed: int, begun: tuple[Any, Carry], agent: Any = None) -> TrainState:
    """Make the state before the first iteration, with weights of stream "init".

    Args:
        player: Plays the environments.
        seed: Of the run.
        begun: What Player.begin() returned.
        agent: Has the first values of parameters that are not drawn; None: player.agent.
    """
    env_state, carry = begun
    adam = start_adam(initial_weights(agent or player.agent, stream_generator(seed, "init")))
    return TrainState(adam=adam, carry=carry, envs=env_state, keys=stream_keys(seed), iteration=jnp.int32(0))
