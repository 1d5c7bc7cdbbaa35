"""The card of a trained agent: its score, measured in new episodes, and a page that says how it was trained."""

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proximo.catalog import Parts
from proximo.errors import FilesError, ProximoError, UsageError, warn
from proximo.models.evaluate import ShowProgress, evaluation_record
from proximo.models.export.card_text import card_text
from proximo.models.model import Model
from proximo.models.pictures import save_figure
from proximo.models.play import HowPlayed, evaluate_model
from proximo.models.plot import draw_curves
from proximo.models.read_folder import is_checkpoint
from proximo.runs.folder.checkpoint import MANIFEST
from proximo.runs.folder.files import read_json, refuse_links, sha256
from proximo.runs.folder.records import CardFile
from proximo.runs.folder.run import BEST, check_folder, read_record, versions
from proximo.runs.folder.videos import videos_of
from proximo.runs.folder.writing import whole_file, write_json

RECORD, PAGE, CURVE = "eval.json", "README.md", "curve.png"
WEIGHTS, VIDEOS = "tensors.safetensors", ("replay.mp4", "replay.gif")
RESAMPLES = 10_000  # of the bootstrap
MOST_EPISODES, MOST_STEPS = 10_000, 10**7  # of the evaluation of a card
MOST_BYTES = 10 << 20  # of eval.json
AGAIN = ", then write the card again"  # where the disk is full


class Score(NamedTuple):
    """A mean return and its 95 % interval."""

    mean: float
    low: float
    high: float

    def holds(self, other: float) -> bool:
        """Return whether another mean lies in the interval, up to rounding."""
        slack = 1e-6 * max(1.0, abs(self.low), abs(self.high))
        return self.low - slack <= other <= self.high + slack


def score_of(returns: Sequence[float]) -> Score:
    """Return the mean of returns and its percentile bootstrap interval (Efron 1979), which is always the same."""
    values = np.asarray(returns, float)
    rng, count = np.random.default_rng(0), len(values)
    means = [values[rng.integers(0, count, count)].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [0.025, 0.975])
    return Score(mean=float(values.mean()), low=float(low), high=float(high))


def model_folder(path: Path, best: bool = False) -> Path:
    """Return the folder of the model of a run, or of a model folder itself; UsageError if there is none."""
    check_folder(path)
    if is_checkpoint(path):
        raise UsageError(f"{path} is a checkpoint, which is not shared. Write its model to a folder of its own with "
                         "proximo.load(CHECKPOINT).save(FOLDER), and use that.")
    folder = path / BEST if best else path if (path / MANIFEST).is_file() else path / "model"
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{path} contains no {folder.name}. Give the folder of a run that has reached its first "
                         "checkpoint, or the folder of a model.")
    return folder


def write_card(folder: Path, model: Model, parts: Parts, how: HowPlayed, show: ShowProgress | None = None) -> Score:
    """Evaluate a model and write eval.json, README.md, and the curve and a video where the run has them.

    Args:
        folder: The folder of the model, inside that of its run if there is one.
        model: The model.
        parts: What makes its environments.
        how: How to play.
        show: Called after every step of the evaluation.

    Raises:
        UsageError: It plays games of several players, or no episode ended.
        EnvError: The environment failed.
        FilesError: A file cannot be written.
    """
    if model.cfg.limits.max_players > 1:
        raise UsageError(f"{model.cfg.env_id} is a game of several players, whose returns against themselves are no "
                         "score. Use proximo rate RUN.")
    refuse_links([folder, *(folder / name for name in (RECORD, PAGE, CURVE, *VIDEOS))])
    found = evaluate_model(model, parts, how, show)
    score = score_of(found.returns)
    run = folder.parent if (folder.parent / "config.json").is_file() else None
    record = evaluation_record(found, model.cfg.env_id, how.deterministic, how.seed) | {
        "interval": [score.low, score.high], "episodes_asked": how.episodes, "max_steps": how.max_steps,
        "weights_sha256": sha256(folder / WEIGHTS), "versions": versions()}
    pictures = [] if run is None else [*draw_curve(run, folder / CURVE), *copy_video(run, folder)]
    started: Mapping[str, Any] = {} if run is None else read_record(run)
    text = card_text(model, record, started, pictures)
    with whole_file(folder / PAGE, AGAIN) as beside:
        beside.write_text(text, encoding="utf-8")
        write_json(folder / RECORD, record, AGAIN)
    return score


def draw_curve(run: Path, out: Path) -> list[str]:
    """Draw the learning curve of a run; return the name of the picture, or nothing with a warning if that fails."""
    try:
        return [save_figure(draw_curves([run]), out, AGAIN).name]
    except ProximoError as error:
        warn(f"The card has no learning curve: {error}")
        return []


def copy_video(run: Path, folder: Path) -> list[str]:
    """Copy the newest video of a run; return its new name, or nothing if there is none."""
    for found in videos_of(run)[:1]:
        name = f"replay{Path(found).suffix}"  # which the Hub plays
        with whole_file(folder / name, AGAIN) as beside:
            shutil.copyfile(run / "videos" / found, beside)
        return [name]
    return []


def confirms(now: Score, claimed: Score) -> bool:
    """Return whether episodes confirm a card: their mean lies in its interval, and its mean not above their interval.

    The second condition does not depend on what the card says of its spread.
    """
    return claimed.holds(now.mean) and (claimed.mean <= now.high or now.holds(claimed.mean))


def verify_card(folder: Path, model: Model, parts: Parts, show: ShowProgress | None = None) -> tuple[Score, Score]:
    """Play the episodes of a card again, with the same seeds.

    Returns:
        What the card says, its interval computed again from its returns, and the score now.

    Raises:
        UsageError: The card contradicts itself, or belongs to other weights.
        FilesError: eval.json is missing or damaged.
        EnvError: The environment failed.
    """
    record, how = read_card(folder)
    claimed = score_of(record["returns"])
    if problem := contradiction(record, claimed):
        raise UsageError(f"{folder / RECORD} contradicts itself: {problem} Do not trust it.")
    if record["weights_sha256"] != sha256(folder / WEIGHTS):
        raise UsageError(f"{folder / RECORD} belongs to other weights than {folder / WEIGHTS}. Write the card again: "
                         "proximo card RUN.")
    found = evaluate_model(model, parts, how, show)
    return claimed, score_of(found.returns)


def contradiction(record: CardFile, score: Score) -> str:
    """Return what in a card does not fit its returns, whose score is given; "" if all of it does."""
    played, said, asked = len(record["returns"]), record["episodes"], record["episodes_asked"]
    if not played == said <= asked:
        return f"it has {played} returns, and says that it has those of {said} episodes out of {asked}."
    for name, ours, theirs in zip(("mean", "lower end of the interval", "upper end of the interval"), score,
                                  (record["episodic_return_mean"], *record["interval"])):
        if not math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-6):
            return f"the {name} of its returns is {ours:.2f}, and it says {theirs:.2f}."
    return ""


def read_card(folder: Path) -> tuple[CardFile, HowPlayed]:
    """Return the content of eval.json, and how its episodes were played.

    Raises:
        FilesError: The file is missing, or a part of it is missing or out of range.
    """
    path = folder / RECORD
    try:
        record = read_json(path, CardFile, MOST_BYTES)
    except FileNotFoundError as error:
        raise FilesError(f"{folder} has no card. Write one with: proximo card RUN") from error
    how = HowPlayed(episodes=record["episodes_asked"], deterministic=record["deterministic"], seed=record["seed"],
                    max_steps=record["max_steps"])
    numbers = [*record["returns"], *record["interval"], record["episodic_return_mean"]]
    if not (1 <= how.episodes <= MOST_EPISODES and 0 <= how.seed < 2**63 and 1 <= how.max_steps <= MOST_STEPS
            and 1 <= len(record["returns"]) <= MOST_EPISODES and len(record["interval"]) == 2
            and all(map(math.isfinite, numbers))):
        raise FilesError(f"{path} has numbers that are out of range. Write the card again: proximo card RUN")
    return record, how
