"""Evaluation while a run trains: its metrics, and the best model in RUN/model-best."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from proximo.catalog import Parts
from proximo.envs.gym_source import joined_kwargs
from proximo.errors import EnvError, FilesError, ProximoError, UsageError, warn
from proximo.models.evaluate import Evaluation, metric_means
from proximo.models.play import HowPlayed, play_in_new_envs, playing_envs
from proximo.models.read_folder import model_from, read_model
from proximo.models.save_folder import save_model
from proximo.runs.folder.checkpoint import load_tree, save_tree
from proximo.runs.folder.run import BEST, Run
from proximo.types import Iteration

ONE_EACH = ("Evaluations make environments in the process of training. If a process can have only one, use "
            "--env-workers and --eval-num-envs 1.")
NONE_DUE = dict.fromkeys(("eval/return_mean", "eval/return_std", "eval/length_mean"), math.nan)


class Evaluator:
    """Evaluates the agent of one run every cfg.eval_every environment steps.

    An evaluation depends on the weights and on the seed of the run only: a resumed run repeats none and leaves none
    out. Training draws the same numbers with and without it.

    Args:
        run: The run.
        parts: What lets its agent play.
    """

    def __init__(self, run: Run, parts: Parts) -> None:
        self._run, self._parts = run, parts
        self._cfg = replace(run.cfg, env_kwargs=joined_kwargs(*run.cfg.env_kwargs, *run.cfg.eval_env_kwargs))
        self._best: float | None = None  # None: not read yet

    def check_envs(self, it: Iteration) -> None:
        """Try whether `eval_env_kwargs` make an environment that the model of an iteration can play in.

        Raises:
            UsageError, EnvError: They do not.
        """
        if not self._cfg.eval_env_kwargs:
            return
        try:
            model = it.model()
            model.cfg = self._cfg
            with playing_envs(model, self._parts, self._parts.rows_per_game(self._cfg), self._cfg.seed):
                pass
        except (UsageError, EnvError) as error:
            raise type(error)(f"eval_env_kwargs: {error}") from error

    def metrics(self, it: Iteration) -> dict[str, float]:
        """Evaluate if it is due, and keep the model if no earlier one is better.

        Returns:
            Mean and standard deviation of the returns, the mean length of the episodes, and the means of
            cfg.info_metrics; NaN where none was due.
        """
        cfg = self._run.cfg
        none = NONE_DUE | {f"eval/{name}": math.nan for name in cfg.info_metrics}
        if it.iteration * cfg.batch_size // cfg.eval_every == (it.iteration - 1) * cfg.batch_size // cfg.eval_every:
            return none
        save_latest_model(self._run, it)
        try:
            found = self._evaluate()
        except ProximoError as error:
            why = f"{str(error).rstrip('.')}. {ONE_EACH}" if isinstance(error, EnvError) else error
            warn(f"No evaluation after {it.steps} steps: {why}")
            return none
        mean = float(np.mean(found.returns))
        self._keep_best(mean, it)
        return {"eval/return_mean": mean, "eval/return_std": float(np.std(found.returns)),
                "eval/length_mean": float(np.mean(found.lengths))} | {
                    f"eval/{name}": mean for name, mean in metric_means(found).items() if name in cfg.info_metrics}

    def _evaluate(self) -> Evaluation:
        """Play all episodes. Those that did not end may be the best ones: without them, no mean is computed."""
        cfg = self._cfg
        model = model_from(read_model(self._run.folder), cfg, self._parts.make_actor)
        found = play_in_new_envs(model, self._parts, HowPlayed(
            episodes=cfg.eval_episodes, seed=cfg.seed, max_steps=cfg.eval_max_steps, num_envs=cfg.eval_num_envs))
        if (ended := len(found.returns)) < cfg.eval_episodes:
            raise UsageError(f"{cfg.env_id}: {ended} of {cfg.eval_episodes} episodes ended within "
                             f"{cfg.eval_max_steps:,} steps. Allow more with --eval-max-steps N, or give the "
                             "environment a time limit (for ids of Gymnasium --env-kwargs max_episode_steps=1000).")
        return found

    def _keep_best(self, mean: float, it: Iteration) -> None:
        if self._best is None:
            self._best = self._recorded_best()
        if mean >= self._best:
            self._best = mean
            record = {"return_mean": mean, "iteration": it.iteration, "steps": it.steps,
                      "eval_env_kwargs": list(self._cfg.eval_env_kwargs)}
            save_tree(self._run.folder / BEST, read_model(self._run.folder) | {"best": record})

    def _recorded_best(self) -> float:
        """Return the mean return of the best model that earlier processes of this run have found."""
        try:
            found = _best_record(self._run.folder)
            if found.get("eval_env_kwargs", given := list(self._cfg.eval_env_kwargs)) != given:
                _set_aside(self._run.folder, "was evaluated with other eval_env_kwargs")
                return -math.inf
            return float(found["return_mean"])
        except (FilesError, KeyError, TypeError, ValueError) as error:
            warn(f"{self._run.folder / BEST} cannot be read ({error}). The best model is looked for again from here "
                 "on.")
            return -math.inf


def set_later_best_aside(run: Path, first: int) -> None:
    """Rename a best model of an iteration that is played again, because the run continues from an earlier one.

    Args:
        run: The folder of the run.
        first: The first iteration after the resume.
    """
    try:
        later = _best_record(run).get("iteration", 0) >= first
    except (FilesError, KeyError, TypeError, AttributeError):  # the evaluation says so
        return
    if later:
        _set_aside(run, "is of an iteration after the one from which the run continues")


def _set_aside(run: Path, why: str) -> None:
    aside = run / f"{BEST}.old"
    if aside.exists():
        shutil.rmtree(aside)
    (run / BEST).rename(aside)
    warn(f"{run / BEST} {why}. It was renamed to {aside.name}, and the best model is looked for again from here on.")


def _best_record(run: Path) -> dict[str, Any]:
    """Return what RUN/model-best says of itself; a mean of minus infinity where there is none."""
    folder = run / BEST
    found: dict[str, Any] = load_tree(folder)["best"] if folder.exists() else {"return_mean": -math.inf}
    return found


def save_latest_model(run: Run, it: Iteration) -> None:
    """Write the agent of an iteration to RUN/model."""
    save_model(run.folder / "model", run.variant, run.cfg, it.spec, it.statistics, it.weights(),
               run.custom_parts)
