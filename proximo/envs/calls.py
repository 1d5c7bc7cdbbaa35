"""Methods of environments that a program calls between two iterations (Iteration.call_envs)."""

from collections.abc import Callable
from typing import Any

import gymnasium

from proximo.errors import ProximoError, UsageError, what_failed
from proximo.protocols import VecEnv

PLAYING = ("reset", "step", "close")  # what training calls itself


def call_envs(envs: VecEnv, name: str, *arguments: Any) -> list[Any]:
    """Call a method of every environment of this process and of its workers.

    Args:
        envs: The environments. They have a method `call(name, *arguments)`, or are refused.
        name: The method, of the environment or of one of its wrappers.
        arguments: Its arguments, which worker processes receive as copies.

    Returns:
        What each environment returned, in order.

    Raises:
        UsageError: An environment has no such method, or training calls it, or the environments are no objects with
            methods of their own.
        EnvError: The method of an environment raised an exception.
    """
    if name in PLAYING:
        raise UsageError(f"call_envs({name!r}) is refused, because training plays the episodes of these environments. "
                         "Call another method.")
    call = getattr(envs, "call", None)
    if call is None:
        raise UsageError(f"call_envs({name!r}): these environments are stepped together and have no methods of their "
                         "own. Single environments of Gymnasium have them (engine=gym), and a class that make_envs "
                         "makes may have a method call(name, *arguments).")
    return list(call(name, *arguments))


def refuse_call(name: str, *arguments: Any) -> list[Any]:
    """Raise UsageError: with `overlap`, the environments play the next rollout while callbacks run."""
    raise UsageError(f"call_envs({name!r}) is not available with overlap=True, which plays the next rollout meanwhile. "
                     "Leave overlap out.")


def call_method(env: gymnasium.Env[Any, Any], fault: Callable[[str], Exception], name: str, *arguments: Any) -> Any:
    """Call a method of one environment or of one of its wrappers.

    Args:
        env: The environment.
        fault: Makes the error of this environment from its cause.
        name: The method.
        arguments: Its arguments.

    Raises:
        UsageError: There is no such method.
        Exception: What `fault` makes, if the method raised an exception.
    """
    try:
        method = env.get_wrapper_attr(name)
    except AttributeError:
        method = None
    if not callable(method):
        raise UsageError(f"call_envs({name!r}): {env.unwrapped} has no method {name}. To set an attribute, call "
                         "\"set_wrapper_attr\" with its name and value.")
    try:
        return method(*arguments)
    except (ProximoError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise fault(what_failed(error, f"{name}() raised")) from error
