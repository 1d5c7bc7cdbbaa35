"""proximo.load and proximo.evaluate: check the arguments, load a model, play in its environment or another one."""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from proximo.catalog import config_class
from proximo.envs.imports import check_imports, with_moved_script
from proximo.errors import UsageError, nearest
from proximo.facts import converted
from proximo.models.evaluate import MAX_STEPS, Evaluation
from proximo.models.model import Model, model_from, read_model
from proximo.models.play import evaluate_model
from proximo.runs.arguments import folder_of, modules_of, own_parts
from proximo.runs.own_parts import OwnParts, own_env_argument
from proximo.runs.run import config_from

PARTS = ("make_envs", "make_agent", "allow_import")


class HowToPlay(NamedTuple):
    """Arguments of proximo.evaluate."""

    episodes: Any
    deterministic: Any
    seed: Any
    max_steps: Any


def load_model(path: Path, own: OwnParts, allow_import: tuple[str, ...]) -> Model:
    """Load the model of a run, or the folder of a model; see proximo.load.

    Args:
        path: The folder.
        own: The custom network, if the run was started with one.
        allow_import: Modules and scripts that may be imported because the model names them.
    """
    tree = read_model(path)
    cfg = config_from(tree["config"], config_class(tree["variant"]), path)
    model = model_from(tree, cfg, own.playing_parts(tree["variant"], cfg.framework).make_actor)
    model.allow_import = allow_import
    return model


def play_episodes(given: Any, env: Any, how: HowToPlay, parts: Mapping[str, Any]) -> Evaluation:
    """Play whole episodes; see proximo.evaluate.

    Args:
        given: A model, or the folder of a run or of a model.
        env: The environment, its id, or None.
        how: How to play: episodes, deterministic, seed and max_steps.
        parts: The arguments that PARTS names.
    """
    own = own_parts(env, parts.get("make_envs"), parts.get("make_agent"))
    unknown = [f"{name} is not an argument of evaluate.{nearest(name, PARTS)}" for name in parts if name not in PARTS]
    if wrong := [*unknown, *own.wrong, *_wrong_numbers(how)]:
        raise UsageError("\n".join(wrong))
    allowed = modules_of(parts.get("allow_import", ()))
    model, source = given, "the model"
    if not isinstance(given, Model):
        path = folder_of(given, "model")
        argument = own_env_argument(path)
        if argument and own.make_envs is None and env is None:
            raise UsageError(f"{path} was trained in an environment of its own. Pass it: "
                             f"proximo.evaluate({str(path)!r}, {argument}=...).")
        model, source = load_model(path, own, allowed), str(path)
    cfg = model.cfg if env is None and own.make_envs is None else replace(model.cfg, env_id="", env_file="")
    moved = with_moved_script(cfg, (*allowed, *model.allow_import))
    check_imports(moved, (*allowed, *model.allow_import), source)
    if isinstance(env, str):
        moved = replace(cfg, env_id=env)
    if moved is not cfg:
        model = copy(model)
        model.cfg = moved
    playing = own.playing_parts(model.variant, model.cfg.framework)
    most = MAX_STEPS if how.max_steps is None else int(how.max_steps)
    return evaluate_model(model, playing, int(how.episodes), bool(how.deterministic), int(how.seed), most)


def _wrong_numbers(how: HowToPlay) -> list[str]:
    wrong = []
    for name, least in (("episodes", 1), ("seed", 0), ("max_steps", 1)):
        value = getattr(how, name)
        if value is None and name == "max_steps":
            continue
        try:
            fits = converted(value, int) >= least
        except TypeError:
            fits = False
        if not fits:
            wrong.append(f"{name}={value!r:.60} is not allowed. Use a whole number of at least {least}.")
    return wrong
