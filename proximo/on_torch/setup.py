"""What is made before the first step: processes, device, environments, agent, optimizer, compiled functions."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from proximo.config import Config
from proximo.envs.arrays.model_fit import announce_images
from proximo.envs.calls import groups_of
from proximo.envs.machine.memory_needs import check_memory
from proximo.envs.normalize import Normalizer, Statistics, make_normalizer
from proximo.envs.state.gym import announce_rebuilds, has_envs
from proximo.errors import UsageError, warn
from proximo.on_torch.compile.compiled import Compiler, compile_collect, compile_gradient, compile_step, usable_compiler
from proximo.on_torch.custom_loss import with_names, with_network
from proximo.on_torch.device import pick_device, set_up_torch
from proximo.on_torch.distributed import (
    all_reduce_sum,
    check_same_settings,
    check_same_start,
    check_same_weights,
    join,
    leave,
)
from proximo.on_torch.frames import FrameStorage, stored_frames
from proximo.on_torch.gae import estimate_advantages
from proximo.on_torch.learner import Adam, Learner, apply_gradient, flat_adam, make_gradient, make_step
from proximo.on_torch.modes import acting, check_calls, check_network
from proximo.on_torch.noise import seeded_agent, seeded_generator
from proximo.on_torch.precision import use_bf16
from proximo.on_torch.rollout import Collected, Storage, collect, make_policy
from proximo.on_torch.rollout_groups import GroupedStorage, collect_in_groups
from proximo.on_torch.snapshot import restore
from proximo.on_torch.value_norm import find_critics
from proximo.part_checks import call_loss, check_loss, check_value_norm
from proximo.processes import World
from proximo.protocols import Agent, LossFn, MakeAgent, MakeEnvs, Spec, VecEnv
from proximo.streams import env_seeds, stream_seed
from proximo.types import Carry, LossInputs, Rollout


class Setup(NamedTuple):
    """The objects that train() works with."""

    world: World
    device: torch.device
    envs: VecEnv
    normalizer: Normalizer
    agent: Any
    adam: Adam
    carry: Carry
    storage: Storage
    compiler: Compiler | None  # of --compile
    collect: Callable[..., Collected]  # (envs, normalizer, carry, storage, noise) -> Collected
    estimate: Callable[[Rollout, Config], Tensor]  # advantages (T, N) of a rollout
    learner: Learner
    statistics: Statistics | None  # of normalisation, equal on all ranks: what each adds from here on is merged
    keeps_state: bool  # the environments are part of a snapshot; otherwise they are rebuilt at every checkpoint
    spec: Spec  # of the normalizer; it says whether there are action masks


def set_up(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: LossFn,
           state: dict[str, Any] | None) -> Setup:
    """Join the other processes, make everything, and restore a snapshot if one is given; `cfg` is that of checked().

    Raises:
        UsageError: The configuration does not fit this loop, the machine, the other processes or the environments.
    """
    if cfg.overlap:
        raise UsageError("overlap=True needs the loop train_overlapped of proximo/on_torch/overlap.py. This one waits "
                         "for every update. Leave --overlap out.")
    if cfg.framework != "torch":
        raise UsageError(f"framework={cfg.framework}, and this loop trains with torch. Use the loop of "
                         "proximo/on_jax/train.py, or framework=torch.")
    world = join(cfg)
    try:
        return make_setup(cfg, world, make_envs, make_agent, loss_fn, state)
    except BaseException:
        leave(world)
        raise


def make_setup(cfg: Config, world: World, make_envs: MakeEnvs, make_agent: MakeAgent,
               loss_fn: LossFn, state: dict[str, Any] | None) -> Setup:
    """Make everything for a process that has joined the others; see set_up."""
    device = pick_device(cfg, world)
    set_up_torch(cfg, world, device)
    check_same_start(world, state["iteration"] if state else 0, device)
    check_same_settings(world, cfg, device)
    envs = seeded_envs(make_envs, cfg, 0, world)
    try:
        normalizer = make_normalizer(cfg, envs)
        if envs.arrays == "numpy" or device.type == "cpu":
            check_memory(cfg, normalizer.spec, envs.num_envs, stored_frames(cfg, envs))
        announce_images(normalizer.spec, cfg)
        agent = seeded_agent(make_agent, normalizer.spec, cfg)
        check_network(agent, world, cfg)
        agent.to(device)
        if cfg.precision == "bf16":
            use_bf16(agent, device)
        adam = flat_adam(agent)
        if not state:
            check_same_weights(world, adam.weights)
        statistics = normalizer.start()
        carry = first_carry(agent, envs, normalizer, statistics, device)
        whole = state is None or has_envs(state, cfg)
        keeps_state = world.size == 1 and whole and envs.keeps_state
        if not keeps_state and not state:
            announce_rebuilds(cfg, world.size)
        if state:
            carry = restore(state, adam, agent, envs, carry, keeps_state, cfg)
            statistics = carry.statistics
        check_groups(envs, cfg)
        check_calls(agent, carry)
        storage = make_storage(cfg, envs, normalizer.spec.obs_dtype, agent, carry, device)
        compiler = usable_compiler(cfg, agent, device)
        learner = make_learner(cfg, world, agent, adam, storage, loss_fn, compiler)
        play = make_collect(agent, adam.weights, storage, carry, cfg, compiler)  # last, because it compiles fastest
        return Setup(world=world, device=device, envs=envs, normalizer=normalizer, agent=agent, adam=adam, carry=carry,
                     storage=storage, compiler=compiler, collect=play, estimate=estimate_advantages, learner=learner,
                     statistics=statistics, keeps_state=keeps_state,
                     spec=normalizer.spec._replace(masked=carry.mask is not None))
    except BaseException:
        envs.close()
        raise


def make_learner(cfg: Config, world: World, agent: Any, adam: Adam, storage: Storage, loss_fn: Callable[..., Any],
                 compiler: Compiler | None) -> Learner:
    """Make the functions that learn, compiled if there is a compiler."""
    names = statistic_names(with_network(loss_fn, agent, storage, cfg), cfg, agent.recurrent, storage.device)
    reduce_sum = all_reduce_sum(world)
    check_value_norm(len(find_critics(agent)), cfg)
    gradient = make_gradient(agent, with_names(loss_fn, names), cfg)

    def apply(flat: torch.Tensor, learning_rate: torch.Tensor) -> torch.Tensor:
        return apply_gradient(adam, flat, learning_rate, cfg.adam_eps, cfg.max_grad_norm)

    step = make_step(gradient, apply, reduce_sum)
    if compiler and agent.recurrent:
        warn("--compile compiles acting only: a recurrent agent learns from segments whose lengths change.")
    elif compiler and world.size == 1:
        step = compile_step(gradient, agent, adam, storage, cfg, compiler)
    elif compiler:
        step = make_step(*compile_gradient(gradient, agent, adam, storage, cfg, compiler), reduce_sum)
    return Learner(step=step, names=names, all_reduce_sum=reduce_sum, scale=adam.scale)


def make_collect(agent: Any, weights: Tensor, storage: Storage, carry: Carry, cfg: Config,
                 compiler: Compiler | None) -> Callable[..., Collected]:
    """Make the function that plays a rollout, with compiled functions of the agent if there is a compiler."""
    play = collect_in_groups if cfg.env_groups > 1 else collect
    if compiler is None:
        return partial(play, make_policy(agent))
    with acting(agent):
        return compile_collect(play, agent, weights, storage, carry, cfg, compiler)


def make_storage(cfg: Config, envs: VecEnv, obs_dtype: Any, agent: Agent, carry: Carry,
                 device: torch.device) -> Storage:
    """Make a rollout buffer. An agent that evaluates whole rollouts afterwards needs whole observations."""
    mask_size = None if carry.mask is None else carry.mask.shape[-1]
    if cfg.env_groups > 1:
        return GroupedStorage(cfg.env_groups, envs, obs_dtype, cfg.num_steps, agent.head, mask_size, device)
    if agent.evaluates_later or stored_frames(cfg, envs) is None:
        return Storage(envs, obs_dtype, cfg.num_steps, agent.head, mask_size, device)
    return FrameStorage(envs, obs_dtype, cfg.num_steps, agent.head, mask_size, device)


def check_groups(envs: VecEnv, cfg: Config) -> None:
    """Raise UsageError if the environments cannot be stepped in groups."""
    if groups_of(envs) != cfg.env_groups:
        raise UsageError(f"env_groups={cfg.env_groups} needs environments that step in groups (GroupedVecEnv in "
                         "proximo/protocols.py), and these do not. Leave --env-groups out.")


@torch.enable_grad()
def statistic_names(loss_fn: Callable[..., Any], cfg: Config, recurrent: bool, device: torch.device) -> list[str]:
    """Return the names of the statistics that a loss function gives, by calling it for a minibatch of ones.

    Args:
        loss_fn: The loss function.
        cfg: The configuration.
        recurrent: Arrays of a minibatch are (T, n) and not (B,).
        device: Of the minibatch.

    Raises:
        UsageError: It does not return a loss and statistics that can be logged, or a setting needs another one.
    """
    ones = 1 * torch.ones(cfg.batch_size // cfg.num_minibatches, device=device, requires_grad=True)  # 1 *: no leaf
    ones = ones.view(cfg.num_steps, -1) if recurrent else ones
    rows: Any = dict.fromkeys(LossInputs._fields, ones) | {"valid": ones.bool(), "count": ones.sum(),
                                                           "clip_coef": ones.mean(), "ent_coef": ones.mean()}
    found = call_loss(loss_fn, LossInputs(**rows), cfg)
    check_loss(found, Tensor, cfg)
    return list(found[1])


def seeded_envs(make_envs: MakeEnvs, cfg: Config, iteration: int, world: World) -> VecEnv:
    """Make this rank's environments with the seeds of an iteration."""
    return make_envs(cfg, env_seeds(cfg.seed, cfg.num_envs // world.size, iteration, world.rank))


def torch_generator(cfg: Config, stream: str, iteration: int, world: World) -> torch.Generator:
    """Make a CPU generator for one stream, so that every device gets the same numbers."""
    return seeded_generator(stream_seed(cfg.seed, stream, iteration, world.rank))


def first_carry(agent: Agent, envs: VecEnv, normalizer: Normalizer, statistics: Statistics | None,
                device: torch.device) -> Carry:
    """Reset the environments. Every row begins an episode, and the recurrent state is zero (detail 33)."""
    statistics, step = normalizer.reset(statistics, envs.reset())
    return Carry(obs=torch.as_tensor(step.obs, device=device).contiguous().clone(),  # as the rows of a rollout are
                 mask=None if step.mask is None else torch.as_tensor(step.mask, device=device).contiguous().clone(),
                 first=torch.as_tensor(step.first, device=device).clone(),
                 state=agent.initial_state(envs.num_envs, device), statistics=statistics)


def rebuild(setup: Setup, statistics: Statistics | None, cfg: Config, make_envs: MakeEnvs,
            iteration: int) -> tuple[VecEnv, Carry]:
    """Make new environments, seeded by the iteration. The statistics of normalisation continue."""
    envs = seeded_envs(make_envs, cfg, iteration, setup.world)
    try:
        return envs, first_carry(setup.agent, envs, setup.normalizer, statistics, setup.device)
    except BaseException:
        envs.close()
        raise
