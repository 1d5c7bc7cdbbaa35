"""From the id of a Gymnasium environment to the environment: retired ids, unknown ids, missing extras."""

import os
import re
import sys
from copy import deepcopy
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import parse_env_id, registry

from proximo.envs.arrays.spaces import QuickDiscrete
from proximo.envs.atari_ids import check_meant, games_for_one, is_atari
from proximo.envs.custom.imports import import_named
from proximo.envs.render import draw_without_window, gl_advice, use_egl_when_headless
from proximo.errors import EnvError, UsageError, nearest, warn, with_place


def gym_id(env_id: str, typed: str = "") -> str:
    """Return the id that Gymnasium makes: `env_id`, or with a message the successor of a retired id.

    Args:
        env_id: An id of Gymnasium. `module:Env-v0` imports the module first, also from the working directory.
        typed: The id that the user gave, for the error message, if that is another one.

    Raises:
        UsageError: The id is unknown.
    """
    name = _import_module_of(env_id)
    if name in registry and not _is_retired(name):
        return env_id
    if name.lower() in map(str.lower, games_for_one()):
        check_meant(name, f"env_id={typed or env_id} is unknown.")
    if successor := _successor(name):
        found = env_id.removesuffix(name) + successor  # with the module, which worker processes import too
        has_version = parse_env_id(name)[2] is not None
        warn(f"{name} is retired. Its successor {found} is used instead." if has_version else
             f"{name} has no version. The newest one is used: {found}.")
        return found
    module = env_id.rpartition(":")[0]
    before = (typed or env_id)[:-len(name)]  # MODULE:, if it was typed
    advice = nearest(name, [known for known in registry if not _is_retired(known)], before)
    if name.endswith(".py"):
        advice = f" If it is a file, give its path with --env-file {name}."
    elif os.path.isfile(os.path.join(name, "config.json")):
        advice = " It is a folder of a run: give the id of its environment."
    elif is_atari(name):
        advice = " It is an Atari game: leave the name of the variant out, or use one of Atari, such as ppo_atari."
    elif name == env_id:
        advice += f" If a package registers it, name its module: MODULE:{name}."
    if module and _is_in_gym(name):
        advice = (f" The module {module} registers it with gym, the predecessor of Gymnasium. Write a subclass of "
                  "gymnasium.Env around it, and give its file with --env-file.")
    advice = advice or f" The module {module} does not register it with Gymnasium." + (
        f" To use its class {name}, write --env-file PATH.py:{name} (from Python: env={name})."
        if hasattr(sys.modules.get(module), name) else " If a function of it does, call it in a file, next to a "
        "function that makes the environment, and name this one: --env-file FILE.py:FUNCTION.")
    raise UsageError(f"env_id={typed or env_id} is unknown.{advice}")


def current_gym_id(env_id: str) -> str:
    """Return the id that `gym_id` replaces a retired one by, without a message; any other id as it is."""
    try:
        name = _import_module_of(env_id)
    except UsageError:
        return env_id
    if name == "Pusher-v4" or (name in registry and not _is_retired(name)):  # EnvPool can play Pusher-v4
        return env_id
    successor = _successor(name)
    return env_id.removesuffix(name) + successor if successor else env_id


def _import_module_of(env_id: str) -> str:
    """Import the module that an id names, as worker processes must do too. Return the id without it."""
    module, _, name = env_id.rpartition(":")
    if not module:
        return name
    if module.endswith(".py") or not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"env_id={env_id}: {module} is not the name of a module. If it is a file, give its path with "
                         f"--env-file {module.removesuffix('.py')}.py --env-id {name}.")
    import_named(module, f"env_id={env_id}")
    return name


def _is_retired(name: str) -> bool:
    """Return whether Gymnasium lists an id that it cannot make any more: MuJoCo's v2 and v3, and Pusher-v4."""
    return getattr(registry[name].entry_point, "__name__", "").startswith("_raise") or name == "Pusher-v4"


def _is_in_gym(name: str) -> bool:
    """Return whether a module that was imported has registered an id with gym."""
    ids = getattr(sys.modules.get("gym.envs.registration"), "registry", {})
    return name in getattr(ids, "env_specs", ids)  # up to gym 0.21, the registry was an object


def _successor(name: str) -> str | None:
    """Return the lowest registered version above that of `name`, or the newest one if it has no version."""
    try:
        namespace, bare, version = parse_env_id(name)
    except gym.error.Error:
        return None
    family = {spec.version: spec.id for spec in registry.values()
              if spec.namespace == namespace and spec.name == bare and spec.version is not None
              and not _is_retired(spec.id)}
    if version is None:
        return family[max(family)] if family else None
    later = [known for known in family if known > version]
    return family[min(later)] if later else None


def make_registered(name: str, values: dict[str, Any]) -> gym.Env:
    """Make one environment by its id, without Gymnasium's checker: GymEnvs checks what it returns.

    Args:
        name: The id that `gym_id` returned.
        values: Arguments of the environment, or of gymnasium.make.

    Raises:
        UsageError: A package is missing; the message has the command that installs it. Or an argument is unknown.
        EnvError: Making the environment fails for another reason.
    """
    draw_without_window()
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    use_egl_when_headless()
    name = _import_module_of(name)
    if name not in registry:  # it was in the process that has started this one
        raise EnvError(f"{name} is not registered in a worker process, which imports modules and does not run a "
                       "notebook. Register it in a module (--env-id module:ID), pass env=lambda: ..., or use "
                       "env_workers=0.")
    try:
        spec = deepcopy(registry[name])
        spec.order_enforce = False  # GymEnvs always resets first
        return with_quick_space(gym.make(spec, **{"disable_env_checker": True, **values}))
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise UsageError(f"{name} needs a package that is not installed ({error}). {_install_advice(name)}") from error
    except (Exception, SystemExit) as error:
        check_arguments(name, error)
        kind = UsageError if isinstance(error, TypeError) and values else EnvError
        given = f" with env_kwargs {values}" if values else ""
        raise kind(f"{name} could not be made{given}: {with_place(error)}{gl_advice(error)}") from error


def check_arguments(name: str, error: BaseException) -> None:
    """Raise UsageError if a class or function was called without an argument that has no default.

    Args:
        name: What the message calls it.
        error: What the call raised. That of a call inside has more frames. gym.make raises another one from it.
    """
    if error.__cause__ is not None and "was raised from the environment creator for" in str(error):
        error = error.__cause__
    found = re.search(r"missing \d+ required [\w-]+ arguments?: (.*)", str(error))
    inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
    if not isinstance(error, TypeError) or found is None or inside:
        return
    lacking = re.findall(r"'(\w+)'", found[1])
    raise UsageError(f"{name} needs {' and '.join(lacking)}, and env_kwargs does not have "
                     f"{'it' if len(lacking) == 1 else 'them'}. Use --env-kwargs "
                     f"{' '.join(f'{one}=VALUE' for one in lacking)}, from Python env_kwargs={{"
                     f"{', '.join(f'{one!r}: VALUE' for one in lacking)}}}.") from error


def with_quick_space(env: gym.Env) -> gym.Env:
    """Make the environment's own check of Discrete actions a fast one, and return the environment.

    The space stays the same object, with the random generator that the environment may have seeded.
    """
    space = vars(env.unwrapped).get("action_space")
    if type(space) is spaces.Discrete:
        space.__class__ = QuickDiscrete
    return env


def _install_advice(name: str) -> str:
    entry = str(registry[name].entry_point)
    extra = next((part for part in ("box2d", "mujoco") if part in entry), None)
    return f'Install it: pip install "proximo[{extra}]"' if extra else "Install what the message names."
