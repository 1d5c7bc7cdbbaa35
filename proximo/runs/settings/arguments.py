"""Turn the arguments of proximo.train into a configuration, its variant, and the parts that a program passes."""

import os
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from proximo.callbacks import problems_of_callbacks
from proximo.catalog import config_class, variant_of
from proximo.config import Config
from proximo.envs.custom.factory import env_factory, env_name, make_from_factory
from proximo.envs.custom.suite import make_complete
from proximo.envs.gym_checks import place_for
from proximo.envs.gym_source import ENV_FIELDS, check_env_fields
from proximo.errors import USES, UsageError, one_line, warn
from proximo.facts import fixed_on_resume, refused_changes
from proximo.part_checks import make_complete_agent
from proximo.runs.command_line import end_if_spawned
from proximo.runs.custom_parts import CustomParts
from proximo.runs.folder.files import given_path
from proximo.runs.folder.records import TrainingState
from proximo.runs.interrupts.unbroken import kept_for_xla
from proximo.runs.logs.announce import announce_preset, announce_variant, warn_of_unread
from proximo.runs.part_names import name_of, readers_among, resume_call
from proximo.runs.presets import preset_for
from proximo.runs.settings.choice import check_given_id, choose_variant, config_of_env, variant_by_spaces
from proximo.runs.settings.config_class import not_a_class, problems_of_class
from proximo.runs.settings.resolve import usage_errors, whole_paths, with_changes
from proximo.types import Iteration

Part = Callable[..., Any]


def custom_parts(env: Any, make_envs: Part | None = None, make_agent: Part | None = None, loss_fn: Part | None = None,
                 set_up: Any = None, callbacks: Any = (), config: Any = None) -> CustomParts:
    """Collect the parts that a program passes, what is wrong with them, and the call that resumes with them.

    A new run has no worker processes unless they are asked for: they would run the calling script again.

    Raises:
        UsageError: It is not clear which environment is meant, or it cannot be made.
    """
    end_if_spawned()
    functions = {"make_envs": make_envs, "make_agent": make_agent, "loss_fn": loss_fn, "set_up": set_up}
    bad = not_functions(functions)
    wrong = [*bad.values()]
    wrong += found if (found := problems_of_callbacks(callbacks)) else ()
    wrong += bad_class if (bad_class := not_a_class(config)) else ()
    custom_env = None if isinstance(env, str) else env
    unclear = ["env and make_envs were both given. Give one of them."] * (env is not None and make_envs is not None)
    unclear += usage_errors(lambda: env_factory(custom_env)) if custom_env is not None else ()
    if unclear or "make_envs" in bad:  # nothing more can be found
        raise UsageError("\n".join([*unclear, *wrong]))
    good = {name: None if name in bad else part for name, part in functions.items()}
    given: dict[str, Any] = {"env": custom_env} | good
    names = {name: name_of(part) for name, part in given.items() if part is not None}
    rows_per_game = None
    if custom_env is not None:
        make_envs = partial(make_from_factory, env_factory(custom_env))
    elif make_envs is not None:
        rows_per_game = getattr(make_envs, "rows_per_game", None)
        make_envs = partial(make_complete, make_envs)
    agent = given["make_agent"]
    return CustomParts(make_envs=make_envs, rows_per_game=rows_per_game,
                       make_agent=agent and partial(make_complete_agent, agent), loss_fn=given["loss_fn"],
                       set_up=given["set_up"], config=None if bad_class else config,
                       callbacks=() if found else tuple(callbacks), resume_with=resume_call(names), names=names,
                       readers=readers_among(given), wrong=tuple(wrong), env_workers=0)


def not_functions(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return a sentence for each part, by argument, that is neither a function nor None."""
    return {name: f"{name}={one_line(f'{part!r:.60}')} is not a function. {USES[name]}{place_for(part)}"
            for name, part in parts.items() if part is not None and not callable(part)}


def problems_of_iterations(state: Any, cfg: Config) -> list[str]:
    """Return what proximo.iterations cannot do: several seeds, and a `state` that `cfg` cannot continue from."""
    several = [f"num_seeds={cfg.num_seeds}: call proximo.iterations once for each seed, or proximo.train."]
    return several * (cfg.num_seeds > 1) + ([] if state is None else _problems_of_state(state, cfg))


def _problems_of_state(state: Any, cfg: Config) -> list[str]:
    if not isinstance(state, dict) or not TrainingState.__required_keys__ <= state.keys():
        return [f"state={state!r:.60} is not a snapshot. Pass what snapshot() of an Iteration has returned."]
    normalized = state["statistics"] is not None
    if normalized != bool(cfg.norm_obs or cfg.norm_reward):
        return [f"state is a snapshot {'with' if normalized else 'without'} normalisation, and the configuration has "
                f"norm_obs={cfg.norm_obs}, norm_reward={cfg.norm_reward}. Continue with those of the snapshot."]
    return refused_changes(replace(cfg, run_dir=""), state.get("fixed", {}))


def for_programs(training: Generator[Iteration, None, None], cfg: Config, variant: str,
                 custom: CustomParts) -> Generator[Iteration, None, None]:
    """Add model() to every iteration, and to its snapshot() the values that a later training cannot change."""
    fixed = fixed_on_resume(replace(cfg, run_dir=""))
    with closing(training), kept_for_xla():
        for it in training:
            yield custom.with_model(it, cfg, variant)._replace(snapshot=partial(_with_fixed, it.snapshot, fixed))


def _with_fixed(snapshot: Callable[[], dict[str, Any]], fixed: dict[str, Any]) -> dict[str, Any]:
    return snapshot() | {"fixed": fixed}


def folder_of(given: Any, name: str) -> Path:
    """Return the folder of a run that an argument names (~ is the home folder); UsageError if it is no path."""
    return given_path(given, name, "Give the folder of a run, as proximo.train returns it.")


def modules_of(allow_import: Any) -> tuple[str, ...]:
    """Return the names in the argument `allow_import`; a text is one name."""
    given = [allow_import] if isinstance(allow_import, (str, os.PathLike)) else allow_import
    listed = isinstance(given, Collection) and getattr(given, "shape", None) != ()
    if not listed or not all(isinstance(one, (str, os.PathLike)) for one in given):
        raise UsageError(f"allow_import={allow_import!r:.60} is not a list of names. Write allow_import=['MODULE'].")
    return tuple(os.fspath(one) for one in given)


def check_wrappers(values: Mapping[str, Any]) -> None:
    """Raise UsageError if env_wrappers has anything but texts: they are recorded, and made again on resume.

    env_kwargs and eval_env_kwargs are dicts, or lists of texts such as size=5.
    """
    for name in ("env_kwargs", "eval_env_kwargs"):
        if isinstance(kwargs := values.get(name), str):
            raise UsageError(f"{name}={kwargs!r:.60} is one text. Write a dict: {name}={{'size': 5}}.")
    given = values.get("env_wrappers", ())
    if isinstance(given, str):
        raise UsageError(f"env_wrappers={given!r:.60} is one text. Write a list: env_wrappers=[{given!r:.60}].")
    wrong = []
    for one in given if isinstance(given, (list, tuple)) else ():
        if not isinstance(one, str):
            named = isinstance(one, type) and one.__module__ != "__main__"  # workers do not have what is in __main__
            text = f"the text '{one.__module__}:{one.__name__}'" if named else "text, module:Wrapper"
            wrong.append(f"env_wrappers has {one!r:.80}. Write it as {text}, or wrap the environment yourself: "
                         "env=lambda: WRAPPER(gymnasium.make(ID)).")
    if wrong:
        raise UsageError("\n".join(wrong))


def checked_values(env: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given fields of a configuration with whole paths.

    Raises:
        UsageError: They and the argument `env` name several environments, or env_kwargs or env_wrappers is no list.
    """
    check_wrappers(values)
    if env is not None and values.get("env_file"):
        raise UsageError("env and env_file were both given. Give one of them.")
    if isinstance(env, str) and "env_id" in values:
        raise UsageError(f"env={env!r} and env_id={values['env_id']!r} were both given. Give one of them.")
    check_given_id(values)
    return whole_paths(values)


def configure(config: str | Config | type[Config] | None, env: Any, custom: CustomParts,
              values: dict[str, Any]) -> tuple[Config, str]:
    """Return the configuration that the arguments of `train` describe, and its variant.

    Raises:
        UsageError: They describe none; the problems of the custom parts are listed, too.
    """
    try:
        return _configure(config, env, custom, values)
    except UsageError as error:
        raise UsageError("\n".join([str(error), *custom.wrong])) from None


def _configure(config: str | Config | type[Config] | None, env: Any, custom: CustomParts,
               values: dict[str, Any]) -> tuple[Config, str]:
    values = checked_values(env, values)
    if "make_envs" in custom.names and values.get("env_file"):
        raise UsageError("make_envs and env_file were both given. Give one of them.")
    if env is not None:
        cfg = config_of_env(values)
        check_env_fields(cfg)
        values = {"env_id": (name := env if isinstance(env, str) else env_name(env, cfg.env_kwargs))} | values
        if values["env_id"] != name:
            warn(f"The run is recorded as {values['env_id']}, and the environment that it trains is {name}.")
    chosen = config is None
    if config is None:
        config = _choose_config(custom, values)
    if isinstance(config, str):
        config = config_class(config, f" To name an environment, write env_id={config!r}.")
    kind = config if isinstance(config, type) else type(config)
    variant = variant_of(kind)
    if wrong := problems_of_class(kind):
        raise UsageError("\n".join(wrong))
    config = config() if isinstance(config, type) else config
    cfg = with_changes(config, whole_paths({"init_from": config.init_from}) | values)
    warn_of_unread(custom.readers, cfg, config if chosen else None)
    if "make_envs" in custom.names and "env_id" not in values and cfg.env_id == config_class(variant).env_id:
        warn(f"make_envs was given without env_id, so the run is recorded as {cfg.env_id}, and reports compare "
             "it with runs of that environment. Name the environments with env_id=....")
    return cfg, variant


def _choose_config(custom: CustomParts, values: dict[str, Any]) -> str | Config:
    """Return the preset or the variant for an environment, as the command line does."""
    cfg = config_of_env(values)
    check_env_fields(cfg)
    chosen = custom.make_envs is not None or values.keys() & {*ENV_FIELDS}
    if not chosen and (preset := preset_for(values.get("env_id", ""))):
        announce_preset(preset, values)
        return preset.config
    if custom.make_envs is not None:
        name = values.get("env_id") or "the environment"
        rows = custom.rows_per_game(cfg) if custom.rows_per_game else 1
        envs = custom.make_envs(replace(cfg, env_id=name, num_envs=rows), [0] * rows)
        try:
            choice = variant_by_spaces(envs)
        finally:
            envs.close()
    elif values.get("env_id") or values.get("env_file"):
        name, choice = values.get("env_id") or values["env_file"], choose_variant(cfg)
    else:
        return "ppo"
    settings = choice.settings_beside(values)
    announce_variant(choice.variant, name, choice.why, settings)
    return config_class(choice.variant)(**settings)
