"""What a network of the user's may contain, and how it acts: in evaluation mode, else as it was made."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from proximo.config import Config
from proximo.errors import UsageError, one_line
from proximo.on_torch.snapshot import saved_buffers
from proximo.problems import check_rows
from proximo.processes import World

LEARNED = {"float32", "float64"}  # dtypes of parameters


@contextmanager
def acting(agent: nn.Module) -> Iterator[None]:
    """Put every module of a network into evaluation mode: BatchNorm then uses its running statistics.

    Afterwards each learns in the mode in which it was made, so that a frozen encoder may stay in evaluation mode.
    """
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
    if getattr(agent, "recurrent", False) and (own := cfg.num_envs // world.size) % cfg.num_minibatches:
        wrong.append(f"The network is recurrent: a minibatch has whole environments, and {own} of them are not "
                     f"divisible by num_minibatches={cfg.num_minibatches}. Use another number.")
    if world.size > 1 and (names := list(saved_buffers(agent))):
        wrong.append(f"The network has the buffers {', '.join(names)}, which would differ between {world.size} "
                     "processes. Use one process, a layer without running statistics such as LayerNorm, or "
                     "register_buffer(..., persistent=False) for a constant.")
    if wrong:
        raise UsageError("\n".join(wrong))


def check_evaluated(logprob: Tensor, value: Tensor, last: Tensor, shape: tuple[int, ...]) -> None:
    """Raise UsageError unless log-probabilities and values are (T, N), a rollout of `shape`, and last values (N,)."""
    check_rows(shape, "a rollout", logprob=logprob, value=value)
    check_rows(shape[1:], "a step", value=last)


def draws(module: nn.Module) -> bool:
    """Return whether a layer of torch draws random numbers while it learns."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.training and module.p > 0
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return module.training and module.dropout > 0
    return isinstance(module, nn.RReLU) and module.training
