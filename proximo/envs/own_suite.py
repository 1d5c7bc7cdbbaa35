"""Environments from a function of the user's: whether they have everything that training reads."""

from collections.abc import Callable, Sequence
from typing import Any

from proximo.errors import UsageError
from proximo.protocols import VecEnv

MEMBERS = tuple(name for name in (*VecEnv.__annotations__, *vars(VecEnv)) if not name.startswith("_"))


def make_complete(make_envs: Callable[..., Any], cfg: Any, seeds: Sequence[int]) -> VecEnv:
    """Call make_envs(cfg, seeds).

    Raises:
        UsageError: The result lacks attributes or methods of VecEnv, or has another number of environments.
    """
    envs: VecEnv = make_envs(cfg, seeds)
    missing = [name for name in MEMBERS if not (hasattr(type(envs), name) or hasattr(envs, name))]  # calls no property
    if missing:
        raise UsageError(f"make_envs returned {type(envs).__name__}, which lacks {', '.join(missing)} of VecEnv "
                         "(proximo/protocols.py). Add them: docs/add-an-environment.md says what they are.")
    if envs.num_envs != len(seeds):
        envs.close()
        raise UsageError(f"make_envs returned {envs.num_envs} environments, and not one (or one player) for each of "
                         "the seeds that it was given. Make len(seeds).")
    return envs
