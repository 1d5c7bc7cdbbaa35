"""What a program calls with a trained model: load, evaluate, watch."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from proximo.errors import UsageError
from proximo.runs.interrupts.unbroken import unbroken_imports

if TYPE_CHECKING:
    from typing import Unpack

    from proximo.api import EnvLike
    from proximo.config import Config
    from proximo.models.evaluate import Evaluation
    from proximo.models.model import Model
    from proximo.protocols import MakeAgent
    from proximo.runs.playing import PlayingParts


@unbroken_imports()
def load(path: str | Path, make_agent: "MakeAgent | None" = None,
         allow_import: str | Path | Collection[str | Path] = (), config: "type[Config] | None" = None) -> "Model":
    """Load the model of a run, of a checkpoint or of a folder: `load(path).act(raw_obs)`. No module is imported.

    Args:
        path: The folder of a run, of a model, or of a checkpoint (RUN/checkpoints/ITERATION).
        make_agent: The network, if the run was started with a custom one.
        allow_import: Modules and scripts that `evaluate` may import because the model names them.
        config: The class of the configuration, if it is a subclass with additional fields.

    Returns:
        The agent, which begins an episode at its first call.

    Raises:
        UsageError: An argument cannot work.
        FilesError: There is no model, it is damaged, or its weights belong to another network.
    """
    from proximo.runs.playing import load_model
    from proximo.runs.settings.arguments import custom_parts, folder_of, modules_of

    custom = custom_parts(None, make_agent=make_agent, config=config)
    if custom.wrong:
        raise UsageError("\n".join(custom.wrong))
    return load_model(folder_of(path, "path"), custom, modules_of(allow_import))


@unbroken_imports()
def evaluate(model: "str | Path | Model", episodes: int = 100, env: "EnvLike | None" = None, *,
             deterministic: bool = True, seed: int = 0, max_steps: int | None = None, num_envs: int | None = None,
             **parts: "Unpack[PlayingParts]") -> "Evaluation":
    """Play whole episodes with a trained model, as `proximo eval` does.

    Args:
        model: A model, or a folder as for `load`.
        episodes: Number of episodes; in self-play rounded up to as many for each player.
        env: As in `proximo.train`; None: the environment of the run. Another environment than that of the run is made
            without the arguments of that one. A run that was trained with `env=FUNCTION` passes its `env_kwargs` again.
        deterministic: Take the most likely actions; False samples them.
        seed: The seed of environments and actions.
        max_steps: Longest episode, in steps. An environment with a longer one plays no further episodes. None: 50,000.
        num_envs: Most environments that are open at once, never more than `episodes`; None: 8. Each has a seed of its
            own, so another number plays other episodes. In self-play they are players, rounded up to whole games.
        parts: `env_kwargs`, arguments of the environment, which take precedence over those of the run; `make_envs` and
            `make_agent`, if the run was started with them; `config`, the class of its configuration, as in `load`;
            `allow_import=[...]`, modules and scripts that may be imported because the model names them.

    Returns:
        Raw returns, lengths and metrics of the episodes.

    Raises:
        UsageError: An argument cannot work, no episode ended, the run was trained in a custom environment and
            `env` is missing, or the model names a module that is not allowed.
        FilesError: There is no model, or it is damaged.
        EnvError: An environment failed.
    """
    from proximo.runs.playing import play_episodes

    how = {"episodes": episodes, "deterministic": deterministic, "seed": seed, "max_steps": max_steps,
           "num_envs": num_envs}
    return play_episodes(model, env, how, parts)


@unbroken_imports()
def watch(model: "str | Path | Model", out: str | Path, episodes: int = 1, env: "EnvLike | None" = None, *,
          deterministic: bool = True, seed: int = 0, max_frames: int = 2000,
          **parts: "Unpack[PlayingParts]") -> Path:
    """Record a video of whole episodes, one after the other, as `proximo watch` does without `--pick`.

    Args:
        model: A model, or a folder as for `load`.
        out: The video, NAME.mp4 or NAME.gif.
        episodes: Number of episodes.
        env: As in `proximo.train`; None: the environment of the run. Its render modes must include rgb_array.
        deterministic: As in `evaluate`.
        seed: The seed of environment and actions.
        max_frames: Largest number of frames, times `episodes`: a long episode may take what short ones leave.
        parts: As in `evaluate`.

    Returns:
        `out`.

    Raises:
        UsageError: An argument cannot work, or the environment cannot be drawn. Otherwise as in `evaluate`.
        FilesError: There is no model, it is damaged, or `out` cannot be written.
        EnvError: An environment failed.
    """
    from proximo.runs.playing import record_episodes

    how = {"episodes": episodes, "deterministic": deterministic, "seed": seed, "max_frames": max_frames}
    return record_episodes(model, out, env, how, parts)
