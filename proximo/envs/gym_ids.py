"""From the id of a Gymnasium environment to the environment: retired ids, unknown ids, missing extras."""

import difflib
import importlib
import os
import sys
from copy import deepcopy

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import parse_env_id, registry

from proximo.envs.headless import use_egl_when_headless
from proximo.envs.spaces import QuickDiscrete
from proximo.errors import EnvError, UsageError, notify


def gym_id(env_id: str, typed: str = "") -> str:
    """The id that runs: `env_id` itself, or the successor of a retired one, said aloud.

    `module:Env-v0` imports the module first, also from the working directory. Raises UsageError for an unknown id,
    under the name that the user `typed` where that is another.
    """
    name = _imported(env_id)
    if name in registry and not _retired(name):
        return env_id
    if successor := _successor(name):
        found = env_id.removesuffix(name) + successor  # with the module, which worker processes import too
        has_version = parse_env_id(name)[2] is not None
        notify(f"{name} is retired. Its successor {found} is used instead." if has_version else
               f"{name} has no version. The newest one is used: {found}.")
        return found
    near = difflib.get_close_matches(name, [known for known in registry if not _retired(known)], 3, 0.5)
    advice = f"; near it: {', '.join(near)}" if near else "; write module:Env-v0 to import the module that registers it"
    raise UsageError(f"env_id={typed or env_id} is unknown{advice}")


def current_gym_id(env_id: str) -> str:
    """Return the id that `gym_id` replaces a retired one by, without a message; any other id as it is."""
    try:
        name = _imported(env_id)
    except UsageError:
        return env_id
    if name == "Pusher-v4" or (name in registry and not _retired(name)):  # EnvPool can play Pusher-v4
        return env_id
    successor = _successor(name)
    return env_id.removesuffix(name) + successor if successor else env_id


def _imported(env_id: str) -> str:
    """The bare id, after its module (if it names one) was imported, as worker processes must do too."""
    module, _, name = env_id.rpartition(":")
    if not module:
        return name
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"env_id={env_id}: module {module} cannot be imported: {error}") from error
    return name


def _retired(name: str) -> bool:
    """Gymnasium still lists MuJoCo's v2 and v3 and Pusher-v4, but can only say that they are gone."""
    return getattr(registry[name].entry_point, "__name__", "").startswith("_raise") or name == "Pusher-v4"


def _successor(name: str) -> str | None:
    """The lowest registered version above the one asked for, or the newest where none was named."""
    try:
        namespace, bare, version = parse_env_id(name)
    except gym.error.Error:
        return None
    family = {spec.version: spec.id for spec in registry.values()
              if spec.namespace == namespace and spec.name == bare and spec.version is not None
              and not _retired(spec.id)}
    if version is None:
        return family[max(family)] if family else None
    later = [known for known in family if known > version]
    return family[min(later)] if later else None


def make_one(name: str) -> gym.Env:
    """One environment, without Gymnasium's checker (ours is in GymEnvs).

    Raises UsageError where a package is missing, with the command that installs it; EnvError where making it fails.
    """
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    use_egl_when_headless()
    name = _imported(name)
    try:
        spec = deepcopy(registry[name])
        spec.order_enforce = False  # a suite always resets first
        return with_quick_space(gym.make(spec, disable_env_checker=True))
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise UsageError(f"{name} needs a package that is not installed ({error}); {_command(name)}") from error
    except Exception as error:
        raise EnvError(f"{name} could not be made: {type(error).__name__}: {error}") from error


def with_quick_space(env: gym.Env) -> gym.Env:
    """The same environment; where its actions are plain Discrete, its own check of them costs next to nothing."""
    space = vars(env.unwrapped).get("action_space")
    if type(space) is spaces.Discrete:
        env.unwrapped.action_space = QuickDiscrete(space.n, start=space.start)
    return env


def _command(name: str) -> str:
    entry = str(registry[name].entry_point)
    extra = next((part for part in ("box2d", "mujoco") if part in entry), None)
    return f'pip install "proximo[{extra}]"' if extra else "install what the message names"
