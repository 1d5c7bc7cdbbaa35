"""Methods of environments that a program calls between two iterations (Iteration.call_envs)."""

from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

import gymnasium

from proximo.errors import EnvError, ProximoError, UsageError, nearest, one_line, what_failed
from proximo.protocols import VecEnv

PLAYING = ("reset", "step", "close")  # what training calls itself
ATTRIBUTES = ('To set an attribute, call "set_wrapper_attr" with its name and value; to read one, "get_wrapper_attr" '
              "with its name.")


def call_envs(envs: VecEnv, name: str, /, *arguments: Any, **options: Any) -> list[Any]:
    """Call a method of every environment of this process and of its workers.

    Args:
        envs: The environments. They have a method `call(name, *arguments)`, or are refused.
        name: The method, of the environment or of one of its wrappers.
        arguments: Its arguments, which worker processes receive as copies.
        options: Its keyword arguments.

    Returns:
        What each environment returned, in order.

    Raises:
        UsageError: An environment has no such method, or training calls it, or the environments are no objects with
            methods of their own.
        EnvError: The method of an environment raised an exception.
    """
    if not isinstance(name, str):
        raise UsageError(f"call_envs({name!r:.60}): give the name of a method, as a text.")
    if name in PLAYING:
        raise UsageError(f"call_envs({name!r}) is refused, because training plays the episodes of these environments. "
                         "Call another method.")
    call = getattr(envs, "call", None)
    if call is None:
        other = ("environments in JAX are part of a compiled function: train in stages (init_from), each with its own "
                 "environments" if getattr(envs, "play", "host") == "inside" else
                 "a class that make_envs makes may have a method call(name, *arguments)")
        raise UsageError(f"call_envs({name!r}): these environments are stepped together and have no methods of their "
                         f"own. Single environments of Gymnasium have them (engine=gym), and {other}.")
    found = call(name, *arguments, **options)
    if not isinstance(found, (list, tuple)):
        raise EnvError(f"call({name!r}) of the environments returned {found!r:.60}; it must return a list.")
    return list(found)


def groups_of(envs: VecEnv) -> int:
    """Return in how many groups environments take turns (GroupedVecEnv); 1 if they do not.

    An object around others, which has a step() of its own and hands on everything else by __getattr__, has one group:
    what its step() does would be left out.
    """
    hands_on = hasattr(type(envs), "step") and not hasattr(type(envs), "receive")
    return 1 if hands_on else int(getattr(envs, "groups", 1))


def refuse_call(name: str, /, *arguments: Any, **options: Any) -> list[Any]:
    """Raise UsageError: with `overlap`, the environments play the next rollout while callbacks run."""
    raise UsageError(f"call_envs({name!r}) is not available with overlap=True, which plays the next rollout meanwhile. "
                     "Leave overlap out.")


def call_method(env: gymnasium.Env[Any, Any], fault: Callable[[str], Exception], name: str, /, *arguments: Any,
                **options: Any) -> Any:
    """Call a method of one environment or of one of its wrappers.

    Args:
        env: The environment.
        fault: Makes the error of this environment from its cause.
        name: The method.
        arguments: Its arguments.
        options: Its keyword arguments.

    Raises:
        UsageError: There is no such method, or no such attribute to set.
        Exception: What `fault` makes, if the method raised an exception.
    """
    try:
        method = env.get_wrapper_attr(name)
    except AttributeError:
        method = None
    if not callable(method):
        raise UsageError(f"call_envs({name!r}): {env.unwrapped} has no method {name}. {ATTRIBUTES}")
    try:
        if name == "set_wrapper_attr":
            refuse_new_attribute(env, *arguments, **options)
        return method(*arguments, **options)
    except (ProximoError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise fault(what_failed(error, f"{name}() raised")) from error


def call_object(envs: Any, name: str, /, *arguments: Any, **options: Any) -> list[Any]:
    """Call a method of an object that steps all environments, such as a simulator.

    Args:
        envs: The object.
        name: The method. As for an environment, "get_wrapper_attr" and "set_wrapper_attr" read and set an attribute.
        arguments: Its arguments.
        options: Its keyword arguments.

    Returns:
        A list with what the method returned.

    Raises:
        UsageError: There is no such method, or no such attribute to set.
        EnvError: The method raised an exception.
    """
    own: dict[str, Callable[..., Any]] = {"get_wrapper_attr": getattr, "set_wrapper_attr": _set_attribute}
    method = partial(own[name], envs) if name in own else getattr(envs, name, None)
    if not callable(method):
        raise UsageError(f"call_envs({name!r}): {type(envs).__name__} has no method {name}. {ATTRIBUTES}")
    try:
        return [method(*arguments, **options)]
    except (ProximoError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise EnvError(f"{type(envs).__name__}: {what_failed(error, f'{name}() raised')}") from error


def _set_attribute(envs: Any, name: str, value: Any, force: bool = False) -> bool:
    if not force and not hasattr(envs, name):
        raise no_attribute(f"{type(envs).__name__} has", name, attribute_names(envs))
    setattr(envs, name, value)
    return True


def refuse_new_attribute(env: gymnasium.Env[Any, Any], /, *arguments: Any, **options: Any) -> None:
    """Raise UsageError if `set_wrapper_attr` would make an attribute that nothing reads, as a misspelled one is.

    Args:
        env: The environment.
        arguments: Those of set_wrapper_attr: the name of the attribute and its value.
        options: Those of set_wrapper_attr. With `force`, the caller has decided.
    """
    attribute = arguments[0] if arguments else options.get("name")
    if not isinstance(attribute, str) or "force" in options or env.has_wrapper_attr(attribute):
        return
    names, layer = set(attribute_names(env)), env
    while isinstance(layer, gymnasium.Wrapper):
        layer = layer.env
        names.update(attribute_names(layer))
    raise no_attribute(f"{env.unwrapped} and its wrappers have", attribute, names)


def no_attribute(who_has: str, name: str, names: Iterable[str]) -> UsageError:
    """Return the error for an attribute that does not exist; `names` do."""
    return UsageError(f"call_envs('set_wrapper_attr', {name!r}): {who_has} no attribute {name}."
                      f"{nearest(name, sorted(names))} Name an attribute that exists, or pass force=True to make a new "
                      "one.")


def attribute_names(layer: Any) -> list[str]:
    """Return the public attributes of an environment or of a wrapper that are no methods."""
    methods = {name for kind in type(layer).__mro__ for name, member in vars(kind).items() if callable(member)}
    return [name for name in dir(layer) if not name.startswith("_") and name not in methods]


def check_sent(value: Any, what: str) -> None:
    """Raise UsageError if a value cannot be sent between this process and its workers."""
    try:
        ForkingPickler.dumps(value)
    except Exception as error:
        raise UsageError(f"{what} cannot be sent between processes ({one_line(error)}). With env_workers, pass and "
                         "return numbers, texts, arrays, and lists and dicts of these.") from error
