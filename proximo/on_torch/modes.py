"""Checks of a user's network before training, its evaluation mode while it acts, and copies of one that is in use."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from proximo.config import Config
from proximo.errors import ProximoError, UsageError, is_out_of_memory, one_line, warn_once, with_place
from proximo.on_torch.device import check_defaults
from proximo.on_torch.noise import GLOBAL_GENERATOR
from proximo.on_torch.snapshot import saved_buffers
from proximo.part_checks import check_acted, check_rows, compare_sequence
from proximo.processes import World
from proximo.types import Carry

LEARNED = {"float32", "float64"}  # dtypes of parameters
IN_USE: WeakSet[nn.Module] = WeakSet()  # the modules of networks that train or act


@contextmanager
def acting(agent: nn.Module) -> Iterator[None]:
    """Put every module of a network into evaluation mode: BatchNorm then uses its running statistics.

    Afterwards each learns in the mode in which it was made, so that a frozen encoder may stay in evaluation mode.

    Raises:
        UsageError: The default dtype or device of torch is another one, or autocast is on.
    """
    check_defaults()
    learning = [module for module in agent.modules() if module.training]
    for module in learning:
        module.training = False
    try:
        yield
    finally:
        for module in learning:
            module.training = True


def keep_gradients_off() -> None:
    """Switch gradients off again, which an environment may have switched on. Asking first takes a tenth of the time."""
    if torch.is_grad_enabled():
        torch.set_grad_enabled(False)


def copy_if_in_use(agent: Any) -> Any:
    """Return a network whose modules nothing else uses: a copy, if make_agent returned what it returned before.

    Raises:
        UsageError: It cannot be copied.
    """
    if any(module in IN_USE for module in agent.modules()):
        try:
            agent = deepcopy(agent)
        except Exception as error:
            raise UsageError("make_agent returned a network, or parts of one, that it returned before, and they cannot "
                             f"be copied ({one_line(error)}). Make a new network at every call.") from error
    IN_USE.update(agent.modules())
    return agent


def check_network(agent: Any, world: World, cfg: Config) -> None:
    """Check a network before its weights become one vector.

    Raises:
        UsageError: It cannot be trained, or the processes would learn with different networks; all problems are listed.
    """
    if not isinstance(agent, nn.Module):
        raise UsageError(f"make_agent returned {one_line(agent)[:60]}, which is not a torch.nn.Module. Return one, or "
                         "use framework=jax for a flax.nnx.Module.")
    named = dict(agent.named_parameters())
    lazy = [name for name, p in named.items() if nn.parameter.is_lazy(p)]
    wrong = [f"The parameters {', '.join(lazy)} of the network have no shape yet. Give layers their sizes (nn.Linear "
             "instead of nn.LazyLinear), or call the network once in make_agent."] if lazy else []
    kinds = {str(p.dtype).removeprefix("torch."): name for name, p in named.items()}  # with an example of each
    if len(kinds) > 1:
        found = ", ".join(f"{name} is {kind}" for kind, name in kinds.items())
        wrong.append(f"The network has parameters of several dtypes: {found}. Use one, such as network.float().")
    elif not kinds.keys() <= LEARNED:
        wrong.append(f"The parameters of the network are {', '.join(kinds)}, in which Adam loses small steps. Use "
                     "network.float(); --precision bf16 computes in bfloat16.")
    if not any(p.requires_grad for p in named.values()):
        wrong.append("The network has no parameter that learns. Leave requires_grad on for at least one.")
    if drawing := [name for name, module in agent.named_modules() if draws(module)]:
        wrong.append(f"The layers {', '.join(drawing)} of the network draw random numbers (dropout), so that a resume "
                     "would not be exact. Set their p or dropout to 0, or leave them out.")
    if hidden := unregistered(agent):
        wrong.append(f"Layers in {', '.join(hidden)} are in a list, tuple or dict of Python, which torch does not see: "
                     "they would be neither trained nor saved. Use nn.ModuleList, nn.ModuleDict or nn.ParameterList, "
                     "or call requires_grad_(False) on them if they are not to learn.")
    if getattr(agent, "recurrent", False) and (own := cfg.num_envs // world.size) % cfg.num_minibatches:
        wrong.append(f"The network is recurrent: a minibatch has whole environments, and {own} of them are not "
                     f"divisible by num_minibatches={cfg.num_minibatches}. Use another number.")
    if world.size > 1 and (names := list(saved_buffers(agent))):
        wrong.append(f"The network has the buffers {', '.join(names)}, which would differ between {world.size} "
                     "processes. Use one process, a layer without running statistics such as LayerNorm, or "
                     "register_buffer(..., persistent=False) for a constant.")
    if wrong:
        raise UsageError("\n".join(wrong))
    IN_USE.update(agent.modules())
    if norms := [name for name, module in agent.named_modules() if takes_batch_statistics(module)]:
        warn_once(f"The layers {', '.join(norms)} of the network normalise by the statistics of a minibatch while they "
                  "learn, and by running ones while they act. The ratio of old and new probabilities is therefore not "
                  "1 before the first step, and clip_coef, target_kl and desired_kl see that. LayerNorm does not "
                  "differ.")


@torch.no_grad()
def check_calls(agent: Any, carry: Carry) -> None:
    """Call a network once as training does, for the first observations. Its buffers stay as they are.

    Raises:
        UsageError: It raises an exception, returns arrays of other shapes, changes the observations or draws random
            numbers.
    """
    with GLOBAL_GENERATOR:  # other threads that draw first weights would look like draws of the network
        _check_calls(agent, carry)


def _check_calls(agent: Any, carry: Carry) -> None:
    rows, device = carry.first.shape, carry.obs.device
    join_rows = torch.stack if agent.recurrent else torch.cat

    def twice(x: Tensor) -> Tensor:  # (2, N, ...) or (2 N, ...): BatchNorm cannot learn from one row
        return join_rows([x, x])

    noise = agent.head.noise(torch.Generator(), 1, *rows)[0].to(device)
    row = np.empty((*rows, *agent.head.action_shape), agent.head.action_dtype)
    obs, batch = carry.obs.clone(), twice(carry.obs)
    kept, before = {name: x.clone() for name, x in agent.named_buffers()}, generator_states(device)
    with naming_calls("The network", f"observations of shape {tuple(batch.shape)}, as learning calls it"):
        agent(batch, None if carry.mask is None else twice(carry.mask), twice(carry.first), carry.state)
    for name, buffer in agent.named_buffers():
        buffer.copy_(kept[name])
    with acting(agent), naming_calls("act() of the network", f"observations of shape {tuple(obs.shape)}"):
        check_acted(agent.act(obs, carry.mask, carry.first, carry.state, noise), agent.evaluates_later, row)
    with acting(agent), naming_calls("value() of the network", f"observations of shape {tuple(obs.shape)}"):
        check_rows(rows, "a step", value=agent.value(obs, carry.first, carry.state))
    if not (torch.equal(obs, carry.obs) and torch.equal(batch, twice(carry.obs))):
        raise UsageError("The network changes the observations that it is given, which are those of the rollout: "
                         "learning would see others. Use x = x / 2 instead of x /= 2 or x.div_(2).")
    if any(not torch.equal(*states) for states in zip(before, generator_states(device), strict=True)):
        raise UsageError("The network draws random numbers (such as torch.nn.functional.dropout or torch.rand), so "
                         "that a resume would not be exact. Leave them out; a head draws its noise in Head.noise and "
                         "Head.learning_noise.")
    if agent.recurrent and not agent.evaluates_later:
        check_sequence(agent, carry)


@torch.no_grad()
def check_sequence(agent: Any, carry: Carry) -> None:
    """Warn if a recurrent network gives other results for a sequence, as it learns, than step by step, as it acts.

    The sequence begins with a state that is not zero. In its second step an episode begins in every other row.
    """
    never = torch.zeros_like(carry.first)
    often = torch.arange(len(never), device=never.device) % 2 == 0
    first = torch.stack([carry.first, never, often, never])
    noise = agent.head.noise(torch.Generator(), len(first), len(never)).to(never.device)
    states, played = [carry.state], list[Any]()
    with acting(agent):
        for t in range(len(first)):
            played.append(agent.act(carry.obs, carry.mask, first[t], states[-1], noise[t]))
            states.append(played[-1].state)
        obs, mask = (None if x is None else torch.stack([x] * 3) for x in (carry.obs, carry.mask))
        dist, value, _ = agent(obs, mask, first[1:], states[1])
    learned = {"value": value, "logprob": dist.logprob(torch.stack([one.action for one in played[1:]]))}
    acted = {name: torch.stack([getattr(one, name) for one in played[1:]]) for name in learned}
    compare_sequence(*({name: x.float().cpu().numpy() for name, x in rows.items()} for rows in (learned, acted)))


@contextmanager
def naming_calls(what: str, given: str) -> Iterator[None]:
    """Raise UsageError, with the line of the user's code, if the call of a network raises an exception."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ProximoError) or is_out_of_memory(error):
            raise
        raise UsageError(f"{what} raised {with_place(error)} for {given}. Correct make_agent.") from error


def generator_states(device: torch.device) -> list[Tensor]:
    """Return the states of torch's own generators, of the CPU and of a GPU."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def unregistered(agent: nn.Module) -> list[str]:
    """Return the attributes whose lists or dicts hold modules or parameters that learn, and that torch does not see."""
    seen = {id(x) for x in (*agent.modules(), *agent.parameters())}

    def is_hidden(part: Any) -> bool:
        own = [part] if isinstance(part, nn.Parameter) else part.parameters() if isinstance(part, nn.Module) else []
        return any(x.requires_grad for x in own) and id(part) not in seen

    return [f"{name}.{attribute}".lstrip(".") for name, module in agent.named_modules()
            for attribute, value in vars(module).items() if attribute not in vars(nn.Module())
            and any(map(is_hidden, value.values() if isinstance(value, dict) else
                        value if isinstance(value, (list, tuple)) else ()))]


def takes_batch_statistics(module: nn.Module) -> bool:
    """Return whether a layer normalises by a minibatch while it learns and by running statistics while it acts."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training and module.track_running_stats


def draws(module: nn.Module) -> bool:
    """Return whether a layer of torch draws random numbers while it learns."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.training and module.p > 0
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return module.training and module.dropout > 0
    return isinstance(module, nn.RReLU) and module.training
