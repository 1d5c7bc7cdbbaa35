"""proximo.load, evaluate and watch: check the arguments, load a model, play in its environment or another one."""

import math
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from proximo.catalog import Parts, config_class
from proximo.config import Config
from proximo.envs.custom.imports import check_imports, with_moved_script
from proximo.envs.gym_source import joined_kwargs
from proximo.errors import UsageError, nearest
from proximo.facts import Arguments, converted
from proximo.models.evaluate import Evaluation
from proximo.models.model import Model
from proximo.models.play import MOST_EPISODES, HowPlayed, evaluate_model, record_video
from proximo.models.read_folder import model_from, read_model
from proximo.models.video import check_format
from proximo.protocols import MakeAgent
from proximo.runs.custom_parts import CustomParts
from proximo.runs.folder.files import given_path
from proximo.runs.folder.run import config_from
from proximo.runs.folder.writing import named_faults
from proximo.runs.logs.announce import warn_of_other_parts
from proximo.runs.part_names import custom_arguments, custom_env_argument
from proximo.runs.run_group import check_one_run
from proximo.runs.settings.arguments import check_wrappers, custom_parts, folder_of, modules_of
from proximo.runs.settings.resolve import usage_errors, with_changes

BOUNDS = {"episodes": (1, MOST_EPISODES), "num_envs": (1, MOST_EPISODES), "seed": (0, math.inf),
          "max_steps": (1, math.inf), "max_frames": (1, math.inf)}
NUMBERS = ("episodes", "deterministic", "seed")  # other arguments of evaluate and watch, for messages


class PlayingParts(TypedDict, total=False):
    """Further arguments of proximo.evaluate and watch."""

    make_envs: Callable[[Any, list[int]], Any] | None
    make_agent: MakeAgent | None
    config: type[Config] | None
    allow_import: str | Path | Collection[str | Path]
    env_kwargs: Arguments


PARTS = tuple(PlayingParts.__annotations__)


@named_faults()
def load_model(path: Path, custom: CustomParts, allow_import: tuple[str, ...]) -> Model:
    """Load the model of a run, or the folder of a model; see proximo.load.

    Args:
        path: The folder.
        custom: The custom network and the class of the configuration, if the run was started with them.
        allow_import: Modules and scripts that may be imported because the model names them.
    """
    check_one_run(path)
    if custom.make_agent is None and "make_agent" in custom_arguments(path):
        raise UsageError(f"{path} was trained with a network of its own. Pass the same make_agent=FUNCTION.")
    tree = read_model(path)
    warn_of_other_parts(str(path), tree["own_parts"], custom.names)
    cfg = config_from(tree["config"], custom.config or config_class(tree["variant"]), path)
    model = model_from(tree, cfg, custom.playing_parts(tree["variant"], cfg.framework).make_actor)
    model.allow_import = allow_import
    return model


def play_episodes(given: Any, env: Any, how: Mapping[str, Any], parts: Mapping[str, Any]) -> Evaluation:
    """Play whole episodes; see proximo.evaluate.

    Args:
        given: A model, or the folder of a run or of a model.
        env: The environment, its id, or None.
        how: The fields of HowPlayed; None is the default of max_steps and num_envs.
        parts: The arguments that PARTS names.
    """
    usual = HowPlayed()
    how = dict(how) | {name: getattr(usual, name) for name in ("max_steps", "num_envs") if how[name] is None}
    model, playing = prepare("evaluate", given, env, parts, wrong_values(how))
    return evaluate_model(model, playing, HowPlayed(int(how["episodes"]), bool(how["deterministic"]), int(how["seed"]),
                                                    int(how["max_steps"]), int(how["num_envs"])))


def record_episodes(given: Any, out: str | Path, env: Any, how: Mapping[str, Any], parts: Mapping[str, Any]) -> Path:
    """Record a video; see proximo.watch.

    Args:
        given: A model, or the folder of a run or of a model.
        out: The video.
        env: The environment, its id, or None.
        how: episodes, deterministic, seed and max_frames (of each episode).
        parts: The arguments that PARTS names.
    """
    path = given_path(out, "out", "Name the video NAME.mp4 or NAME.gif.")
    wrong = [*wrong_values(how), *usage_errors(lambda: check_format(path))]
    model, playing = prepare("watch", given, env, parts, wrong, str(path))
    shown = range(int(how["episodes"]))
    record_video(model, playing, path, bool(how["deterministic"]), int(how["seed"]),
                 int(how["max_frames"]) * len(shown), shown)
    return path


def prepare(call: str, given: Any, env: Any, parts: Mapping[str, Any], wrong: list[str],
            out: str = "") -> tuple[Model, Parts]:
    """Check the arguments of a function that plays, and load the model.

    Args:
        call: The name of the function.
        given: A model, or the folder of a run or of a model.
        env: The environment, its id, or None.
        parts: The arguments that PARTS names.
        wrong: Problems of other arguments, to be reported with these.
        out: The second argument of the call, for messages.

    Returns:
        The model with the configuration of what is played, and what makes the environments.

    Raises:
        UsageError: An argument cannot work; all problems are listed.
        FilesError: There is no model, or it is damaged.
    """
    custom = custom_parts(env, parts.get("make_envs"), parts.get("make_agent"), config=parts.get("config"))
    if wrong := [*_unknown(call, parts), *custom.wrong, *wrong]:
        raise UsageError("\n".join(wrong))
    allowed = modules_of(parts.get("allow_import", ()))
    path = None if isinstance(given, Model) else folder_of(given, "model")
    source = "the model" if path is None else str(path)
    argument = custom_env_argument(given.custom_parts if path is None else custom_arguments(path))
    if argument and custom.make_envs is None and env is None:
        raise UsageError(f"{source} was trained in an environment of its own. Pass it: "
                         f"{_call(call, path, argument, out)}.")
    if path is None:
        warn_of_other_parts(source, given.custom_parts, custom.names)
    model = given if path is None else load_model(path, custom, allowed)
    cfg = model.cfg if env is None and custom.make_envs is None else replace(model.cfg, env_id="", env_file="")
    moved = with_moved_script(cfg, (*allowed, *model.allow_import))
    check_imports(moved, (*allowed, *model.allow_import), source)
    if isinstance(env, str):
        moved = replace(cfg, env_id=env)
    elif moved is cfg:
        moved = model.cfg  # with the names of the run, which an environment of the program does not need
    kept = model.cfg.env_kwargs if env is None or (argument == "env" and not isinstance(env, str)) else ()
    moved = replace(moved, env_kwargs=_joined_kwargs(cfg, kept, parts.get("env_kwargs", ())))
    if moved != model.cfg:
        model = copy(model)
        model.cfg = moved
    return model, custom.playing_parts(model.variant, model.cfg.framework)


def _unknown(call: str, names: Collection[str]) -> list[str]:
    return [f"{name} is not an argument of {call}.{nearest(name, (*PARTS, *NUMBERS))}"
            for name in names if name not in PARTS]


def _call(name: str, path: Path | None, argument: str, out: str) -> str:
    """Return the call of a function that plays, with what the program has to pass; None: of a model that is loaded."""
    recorded = [] if path is None else custom_arguments(path)
    passed = [argument, *(one for one in ("make_agent", "config") if one in recorded)]
    words = ["MODEL" if path is None else repr(str(path)), *([repr(out)] if out else []), *(f"{x}=..." for x in passed)]
    return f"proximo.{name}({', '.join(words)})"


def _joined_kwargs(cfg: Config, kept: Collection[str], given: Any) -> tuple[str, ...]:
    """Return arguments of the environment as texts; those that are given take precedence over those of the run.

    Raises:
        UsageError: `given` is neither a dict nor a list of texts.
    """
    check_wrappers({"env_kwargs": given})
    return joined_kwargs(*kept, *with_changes(cfg, {"env_kwargs": given}).env_kwargs)


def wrong_values(how: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each number that is not whole or out of its bounds, and for `deterministic`."""
    wrong, flag = [], how["deterministic"]
    if not isinstance(flag, (bool, np.bool_)):
        wrong.append(f"deterministic={flag!r:.60} is not allowed. Use True or False.")
    for name, (lowest, highest) in BOUNDS.items():
        if name not in how:
            continue
        try:
            fits = lowest <= converted(how[name], int) <= highest
        except TypeError:
            fits = False
        if not fits:
            allowed = f"of at least {lowest}" if highest == math.inf else f"from {lowest} to {highest:,}"
            wrong.append(f"{name}={how[name]!r:.60} is not allowed. Use a whole number {allowed}.")
    return wrong
