"""What the arguments of proximo.train mean: a configuration, its variant, and parts that a program brings along."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from proximo.catalog import check_given_id, choose_variant, config_class, config_of_env, variant_by_spaces, variant_of
from proximo.config import Config
from proximo.envs.factory import env_factory, env_name, make_from_factory
from proximo.envs.gym_source import OWN
from proximo.envs.own_suite import make_complete
from proximo.errors import UsageError
from proximo.runs.announce import announce_preset, announce_variant
from proximo.runs.own_parts import OwnParts, resume_call
from proximo.runs.presets import preset_for
from proximo.runs.resolve import with_changes

Part = Callable[..., Any]


def own_parts(env: Any, make_envs: Part | None = None, make_agent: Part | None = None,
              loss_fn: Part | None = None) -> OwnParts:
    """Collect the parts that a program brings along, and the call that resumes a run with them."""
    if env is not None and make_envs is not None:
        raise UsageError("env and make_envs were both given. Give one of them.")
    own_env = None if isinstance(env, str) else env
    given = {"env": own_env, "make_envs": make_envs, "make_agent": make_agent, "loss_fn": loss_fn}
    names = {name: _name_of(part) for name, part in given.items() if part is not None}
    if own_env is not None:
        make_envs = partial(make_from_factory, env_factory(own_env))
    elif make_envs is not None:
        make_envs = partial(make_complete, make_envs)
    return OwnParts(make_envs=make_envs, make_agent=make_agent, loss_fn=loss_fn, resume_with=resume_call(names),
                    names=names)


def _name_of(part: Any) -> str:
    """Return the name of a function or a class, or that of an object's class."""
    while isinstance(part, partial):
        part = part.func
    return str(getattr(part, "__name__", type(part).__name__))


def configure(config: str | Config | type[Config] | None, env: Any, own: OwnParts,
              values: dict[str, Any]) -> tuple[Config, str]:
    """Return the configuration that `train` was asked for, and its variant."""
    if env is not None:
        name = env if isinstance(env, str) else env_name(env, config_of_env(values).env_kwargs)
        if values.get("env_file"):
            raise UsageError("env and env_file were both given. Give one of them.")
        if isinstance(env, str) and "env_id" in values:
            raise UsageError(f"env={env!r} and env_id={values['env_id']!r} were both given. Give one of them.")
        values = {"env_id": name} | values
    check_given_id(values)
    if config is None:
        config = _choose_config(own, values)
    if isinstance(config, str):
        config = config_class(config, f" To name an environment, write env_id={config!r}.")
    kind = config if isinstance(config, type) else type(config)
    variant = variant_of(kind)
    if "__dataclass_fields__" not in vars(kind) and vars(kind).keys() & kind.__dataclass_fields__.keys():
        raise UsageError(f"{kind.__name__} needs the decorator @dataclass(frozen=True), otherwise its defaults are "
                         "not used.")
    return with_changes(config() if isinstance(config, type) else config, values), variant


def _choose_config(own: OwnParts, values: dict[str, Any]) -> str | Config:
    """Return the preset or the variant for an environment, as the command line does."""
    cfg = config_of_env(values)
    if own.make_envs is None and not values.keys() & {*OWN} and (preset := preset_for(values.get("env_id", ""))):
        announce_preset(preset)
        return preset.config
    if own.make_envs is not None:
        name = values.get("env_id") or "the environment"
        envs = own.make_envs(replace(cfg, env_id=name), [0])
        try:
            choice = variant_by_spaces(envs)
        finally:
            envs.close()
    elif values.get("env_id") or values.get("env_file"):
        name, choice = values.get("env_id") or values["env_file"], choose_variant(cfg)
    else:
        return "ppo"
    settings = {} if "model" in values else choice.settings
    announce_variant(choice.variant, name, choice.why, settings)
    return config_class(choice.variant)(**settings)
