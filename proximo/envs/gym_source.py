"""What a configuration says about one Gymnasium environment: its id or file, arguments, wrappers, image settings."""

import ast
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import registry

from proximo.config import Config
from proximo.envs.atari_ids import is_atari
from proximo.envs.custom.env_file import name_in_file
from proximo.envs.custom.imports import import_named, load_script, split_file
from proximo.envs.gym_checks import not_an_env
from proximo.envs.gym_ids import check_arguments, gym_id, make_registered, with_quick_space
from proximo.envs.images import PLAIN, ImageSettings, with_image_settings
from proximo.errors import EnvError, ProximoError, UsageError, metric_name_problem, warn_once, with_place
from proximo.facts import range_problems, type_problems

ENV_FIELDS = ("env_file", "env_kwargs", "env_wrappers")  # fields that choose, configure and wrap the environment
SINGLE = (*ENV_FIELDS, "eval_env_kwargs", "info_metrics")  # fields that only single Gymnasium environments have
IMAGES = ImageSettings._fields
ADVICE = " Put it into a module, pass env=lambda: WRAPPER(gymnasium.make(ID)), or use env_workers=0."
EMULATOR = ("noop_max", "frame_skip", "max_pool", "end_on_life_loss", "fire_reset", "screen_size", "grayscale",
            "frame_stack", "sticky")  # what a variant for emulators and Gymnasium has for Atari games only


class EnvSource(NamedTuple):
    """How one environment is made. Worker processes receive it."""

    name: str  # id, with the module that registers it, or a name of the file
    file: str = ""  # path of a script that registers the id, or has a class or function of this name
    kwargs: Collection[str] = ()  # key=value
    wrappers: Collection[str] = ()  # module:Wrapper
    images: ImageSettings = PLAIN
    metrics: Collection[str] = ()  # entries of the info of last steps that are logged


def env_source(cfg: Config, find_id: Callable[[str], str] = gym_id) -> EnvSource:
    """Return how the environments of a configuration are made.

    Args:
        cfg: Its `env_id` and the fields of ENV_FIELDS and IMAGES are read.
        find_id: Returns the id that Gymnasium makes from `env_id`.

    Raises:
        UsageError: The id is unknown, or the file does not have the environment.
    """
    return named_source(cfg, *(name_in_file(cfg) if cfg.env_file else (find_id(cfg.env_id), "")))


def named_source(cfg: Config, name: str, file: str = "") -> EnvSource:
    """Return the same for environments whose name and file are known. Warns of arguments in JSON, which are texts."""
    warn_of_json(cfg.env_kwargs)
    return EnvSource(name=name, file=file, kwargs=cfg.env_kwargs, wrappers=cfg.env_wrappers,
                     images=image_settings(cfg), metrics=cfg.info_metrics)


def image_settings(cfg: Config) -> ImageSettings:
    """Return the image settings of a configuration; those that change nothing for emulators."""
    return PLAIN if cfg.limits.emulator else ImageSettings(cfg.frame_skip, cfg.grayscale, cfg.resize, cfg.frame_stack)


def preprocessing(cfg: Config) -> dict[str, Any]:
    """Return the settings that change the observations of the environment before the network gets them."""
    nothing: dict[str, Any] = {"env_wrappers": (), "frame_skip": 1, "frame_stack": 1, "grayscale": False,
                               "resize": None}
    nothing |= {"screen_size": None, "max_pool": False} if cfg.limits.emulator else {}
    return {name: getattr(cfg, name) for name, value in nothing.items() if getattr(cfg, name, value) != value}


def changed_fields(cfg: Config) -> list[str]:
    """Return the fields of ENV_FIELDS and IMAGES that differ from the variant's defaults."""
    return [name for name in (*ENV_FIELDS, *IMAGES) if getattr(cfg, name) != getattr(type(cfg), name)]


def make_from_source(source: EnvSource) -> gym.Env:
    """Make one environment with its arguments, its wrappers and its image settings.

    Raises:
        UsageError: A package is missing, the environment does not take its arguments, or a wrapper or a setting does
            not suit it.
        EnvError: Making the environment fails for another reason.
    """
    values = kwargs_of(source.kwargs)
    module = load_script(split_file(source.file)[0]) if source.file else None
    if module is None or source.name in registry:
        return finish_env(make_registered(source.name, values), source)
    env = call_maker(getattr(module, source.name), source, values)
    if not isinstance(env, gym.Env):
        raise UsageError(f"{source.name} in {source.file} made {not_an_env(env)}")
    return finish_env(with_quick_space(env), source)


def call_maker(make: Callable[..., Any], source: EnvSource, values: dict[str, Any]) -> Any:
    """Call a class or a function that makes an environment; a fault becomes one sentence."""
    try:
        return make(**values)
    except ProximoError:
        raise
    except (Exception, SystemExit) as error:
        check_arguments(source.name, error)
        kind = UsageError if isinstance(error, TypeError) and values else EnvError
        given = f" with env_kwargs {' '.join(source.kwargs)}" if source.kwargs else ""
        raise kind(f"{source.name} could not be made{given}: {with_place(error)}") from error


def finish_env(env: gym.Env, source: EnvSource) -> gym.Env:
    """Apply the wrappers, then the image settings."""
    for text in source.wrappers:
        module, _, name = text.rpartition(":")
        wrapper = getattr(import_named(module, f"env_wrappers={text}"), name, None)
        if not callable(wrapper):
            where = "worker processes do not have" if module == "__main__" else f"the module {module} has no"
            raise UsageError(f"env_wrappers={text}: {where} {name}.{ADVICE * (module == '__main__')}")
        try:
            env = wrapper(env)
        except (Exception, SystemExit) as error:
            raise UsageError(f"env_wrappers={text} cannot wrap {source.name}: {with_place(error)}. Use a "
                             "class or function of one argument, the environment.") from error
        if not isinstance(env, gym.Env):
            raise UsageError(f"env_wrappers={text} returned a {type(env).__name__}; a gymnasium.Env is needed.")
    return with_image_settings(env, source.images, source.name)


def kwargs_of(texts: Collection[str]) -> dict[str, Any]:
    """Return key=value texts as arguments. A value is read as a Python literal; if it is none, it is text."""
    found = {}
    for text in texts:
        key, _, value = text.partition("=")
        try:
            found[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            found[key] = value
    return found


def warn_of_json(texts: Collection[str]) -> None:
    """Warn of values that look like JSON, such as {"a": true}: they are passed as text."""
    for text, (key, value) in zip(texts, kwargs_of(texts).items()):
        if isinstance(value, str) and text.partition("=")[2] == value and re.match(r"[{\[]|(true|false|null)$", value):
            warn_once(f"env_kwargs: {key}={value:.60} is not a Python literal and is passed as text. Write True, False "
                      f"and None in place of true, false and null, or quote the text: {key}={value!r:.60}.")


def joined_kwargs(*texts: str) -> tuple[str, ...]:
    """Return arguments of an environment, key=value, each once: later ones take precedence."""
    return tuple({text.partition("=")[0]: text for text in texts}.values())


def source_problems(cfg: Config) -> list[str]:
    """Return one sentence for each text of env_kwargs, eval_env_kwargs and env_wrappers that has another form."""
    wrong = []
    for name, flag in (("env_kwargs", "--env-kwargs"), ("eval_env_kwargs", "--eval-env-kwargs")):
        keys = [text.partition("=")[0] for text in getattr(cfg, name)]
        wrong += [f"{name}: {text!r} is not key=value. Write it like {flag} size=5 continuous=False."
                  for text, key in zip(getattr(cfg, name), keys) if "=" not in text or not key.isidentifier()]
        wrong += [f"{name} has {key} twice. Give it once." for key in dict.fromkeys(keys) if keys.count(key) > 1]
    wrong += [f"info_metrics: {problem}" for name in cfg.info_metrics if (problem := metric_name_problem(name))]
    if cfg.eval_env_kwargs and not cfg.eval_every:
        wrong.append("eval_env_kwargs has no effect without evaluations. Set eval_every to the number of environment "
                     "steps between two of them, or leave eval_env_kwargs out.")
    return wrong + [f"env_wrappers: {text!r} is not module:Wrapper. Write it like --env-wrappers my_module:MyWrapper."
                    for text in cfg.env_wrappers if not all(text.rpartition(":")[::2])]


def check_env_fields(cfg: Config) -> None:
    """Raise UsageError for values of wrong types or out of range, and texts of env_kwargs and env_wrappers."""
    if wrong := type_problems(cfg) or [*range_problems(cfg), *source_problems(cfg)]:
        raise UsageError("\n".join(wrong))


def single_env_problems(cfg: Config, engine: str) -> list[str]:
    """Return one sentence for each field that only single Gymnasium environments have, where there are none."""
    single, emulator = cfg.limits.gymnasium and engine == "gym", cfg.limits.emulator
    if cfg.limits.gymnasium and emulator and not plays_atari(cfg):
        return [*_unavailable(cfg, () if single else SINGLE, engine), *_emulator_problems(cfg)]
    wrong = _unavailable(cfg, (*(() if single else SINGLE), *(() if single or emulator else IMAGES)), engine)
    if emulator and cfg.resize != type(cfg).resize:
        wrong.append(f"resize={cfg.resize} is not available in this variant. Use --screen-size {cfg.resize}.")
    return wrong


def passed_env_problems(cfg: Config) -> list[str]:
    """Return one sentence for each setting that would have no effect on environments that a program passes as `env`."""
    if not cfg.limits.gymnasium:
        return ["env was given, and the settings of this variant are for the environments of its suite only. Use a "
                "variant for Gymnasium's environments, such as ppo, or make_envs, which applies the settings itself."]
    wrong = _emulator_problems(cfg) if cfg.limits.emulator and plays_atari(cfg) else []  # env_id is only a name
    if cfg.engine not in ("auto", "gym"):
        wrong.append(f"engine={cfg.engine} has no effect on an environment that is passed as env. Leave it out.")
    return wrong


def plays_atari(cfg: Config) -> bool:
    """Return whether the environment is an Atari game, in a variant that takes games and Gymnasium's environments."""
    return not cfg.env_file and is_atari(cfg.env_id)


def _unavailable(cfg: Config, names: tuple[str, ...], engine: str) -> list[str]:
    advice = "Use --engine gym" if cfg.limits.gymnasium else "Use a variant for Gymnasium's environments, such as ppo"
    where = f"with engine={engine}" if cfg.limits.gymnasium else "in this variant"
    only_brax = cfg.limits.engines == ("brax",)
    wrong = []
    for name in names:
        if getattr(cfg, name) == getattr(type(cfg), name):
            continue
        out = f"--{name.replace('_', '-')} out."
        wrong.append(f"{name} is not available {where}: tasks of Brax take no arguments. Leave {out}"
                     if only_brax and name.endswith("env_kwargs") else
                     f"{name} is not available {where}. {advice}, or leave {out}")
    return wrong


def _emulator_problems(cfg: Config) -> list[str]:
    wrong = [f"{name}={getattr(cfg, name)} has no effect: this variant applies it to Atari games only. Use the variant "
             f"ppo, which has settings of images for all environments, or leave {name} out."
             for name in (*EMULATOR, "resize") if getattr(cfg, name) != getattr(type(cfg), name)]
    if getattr(cfg, "clip_rewards", False):
        wrong.append("clip_rewards=True has no effect: this variant applies clip_rewards, frame_skip, grayscale and "
                     "frame_stack to Atari games only. Use --no-clip-rewards, or the variant ppo.")
    return wrong
