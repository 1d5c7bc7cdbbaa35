"""The commands on a trained model or an environment: eval, watch, plot, rate and check-env."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from proximo.cli.arguments import AllowImport, RunFolder, arguments, check_least
from proximo.cli.check_command import check_command
from proximo.cli.eval_progress import shown_progress
from proximo.cli.loading import load_run, missing_run
from proximo.cli.messages import folder_problems
from proximo.models.evaluate import MAX_STEPS, evaluation_record, metric_means, summarize, summarize_players
from proximo.models.play import MOST_EPISODES, HowPlayed, evaluate_model, pick_episode, record_video
from proximo.models.video import check_format
from proximo.runs.folder.files import refuse_links
from proximo.runs.folder.writing import write_json
from proximo.runs.logs.output import printable, return_text
from proximo.runs.settings.resolve import usage_errors

OtherId = Annotated[str, tyro.conf.arg(metavar="ID", help_behavior_hint="(default: that of the run)")]
OtherArguments = Annotated[tuple[str, ...], tyro.conf.arg(
    metavar="KEY=VALUE...", help_behavior_hint="(default: those of the run)")]


@dataclass
class EvalArguments:
    """Play whole episodes with a trained model, and print the mean and the standard deviation of their returns."""

    run: RunFolder
    """folder of a run or of a model"""
    episodes: int = 100
    """number of episodes (self-play: rounded up to as many for each player)"""
    deterministic: bool = True
    """take the most likely action; --no-deterministic samples one"""
    seed: int = 0
    """seed of environments and actions"""
    max_steps: int = MAX_STEPS
    """longest episode, in steps; an environment with a longer one plays no further episodes"""
    num_envs: int = HowPlayed().num_envs
    """most environments that are open at once, never more than episodes; another number plays other episodes"""
    best: bool = False
    """play with the best model of the evaluations during training (train --eval-every)"""
    env_id: OtherId = ""
    """another environment to play in, without the arguments of that of the run"""
    env_kwargs: OtherArguments = ()
    """arguments of the environment, which take precedence over those of the run"""
    allow_import: AllowImport = ()
    """modules and scripts that the run may import for its environment"""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """also write the returns to this file"""


@dataclass
class WatchArguments:
    """Record a video of one or several episodes that a trained model plays."""

    run: RunFolder
    """folder of a run or of a model"""
    out: Annotated[Path | None, tyro.conf.arg(
        metavar="FILE", help_behavior_hint="(default: RUN/videos/watch.mp4)")] = None
    """the video, NAME.mp4 or NAME.gif"""
    episodes: int = 1
    """episodes to show, or to pick one from"""
    pick: Literal["all", "best", "worst"] = "all"
    """show only the episode with the highest or the lowest return"""
    deterministic: bool = True
    """take the most likely action; --no-deterministic samples one"""
    seed: int = 0
    """seed of environment and actions"""
    max_frames: int = 2000
    """largest number of frames, times the number of episodes: a long one may take what short ones leave"""
    best: bool = False
    """play with the best model of the evaluations during training (train --eval-every)"""
    env_id: OtherId = ""
    """another environment to play in, without the arguments of that of the run"""
    env_kwargs: OtherArguments = ()
    """arguments of the environment, which take precedence over those of the run"""
    allow_import: AllowImport = ()
    """modules and scripts that the run may import for its environment"""


@dataclass
class PlotArguments:
    """Draw learning curves of runs: the mean over seeds, and its spread."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(
        metavar="RUN...", help_behavior_hint="(required)")] = ()
    """folders of runs, or folders that contain runs"""
    out: Path = Path("curves.png")
    """the picture"""
    metric: Annotated[str, tyro.conf.arg(help_behavior_hint="(default: the returns of episodes)")] = ""
    """column of metrics.csv to draw, such as eval/return_mean or losses/entropy"""
    window: int = 0
    """values that a point of the curve averages over; 0: 100 episodes, or one line of metrics.csv"""


def model_command(name: str, words: list[str]) -> int:
    """Run one of these commands and return its exit code."""
    match name:
        case "eval":
            return eval_command(arguments(EvalArguments, words, name))
        case "watch":
            return watch_command(arguments(WatchArguments, words, name))
        case "plot":
            return plot_command(arguments(PlotArguments, words, name))
        case "rate":
            from proximo.cli.rate_command import RateArguments, rate_command

            return rate_command(arguments(RateArguments, words, name))
        case _:
            return check_command(words)


def eval_command(args: EvalArguments) -> int:
    """Play episodes, and print and write their returns."""
    wrong = missing_run(args.run) + folder_problems("--json", args.json, "eval.json")
    if args.episodes > MOST_EPISODES:
        wrong.append(f"--episodes {args.episodes} must be at most {MOST_EPISODES}")
    check_least(args, *wrong, episodes=1, seed=0, max_steps=1, num_envs=1)
    model, parts = load_run(args.run, args.allow_import, args.best, args.env_id, args.env_kwargs)
    with shown_progress(model.cfg.env_id, args.episodes) as show:
        found = evaluate_model(model, parts, HowPlayed(args.episodes, args.deterministic, args.seed, args.max_steps,
                                                       args.num_envs), show)
    means = [f"{name} {mean_text(summary)}" for name, summary in summarize_players(found).items()]
    means = means or [mean_text(summarize(found))]
    how = "deterministic" if args.deterministic else "sampled"
    print(f"{printable(model.cfg.env_id)}: {', '.join(means)} over {len(found.returns)} episodes ({how} actions, "
          f"mean length {np.mean(found.lengths):.1f})")
    for name, mean in metric_means(found).items():
        print(f"{printable(name)}: {mean:.4g}")
    if args.json:
        write_json(args.json, evaluation_record(found, model.cfg.env_id, args.deterministic, args.seed),
                   ", or choose another file with --json")
    return 0


def mean_text(summary: dict[str, Any]) -> str:
    """Return the text of a summary: mean and standard deviation."""
    if not summary["episodes"]:
        return "no episode"
    return " +- ".join(return_text(summary[f"episodic_return_{name}"]) for name in ("mean", "std"))


def watch_command(args: WatchArguments) -> int:
    """Record a video and print its path."""
    out = args.out or args.run / "videos" / "watch.mp4"
    wrong = missing_run(args.run)
    wrong += folder_problems("--out", args.out, "watch.mp4") or usage_errors(lambda: check_format(out))
    check_least(args, *wrong, seed=0, max_frames=1, episodes=1)
    model, parts = load_run(args.run, args.allow_import, args.best, args.env_id, args.env_kwargs)
    refuse_links([] if args.out else [out.parent, out])
    shown = range(args.episodes)
    if args.pick != "all":
        shown = pick_episode(model, parts, args.pick == "best", args.episodes, args.deterministic, args.seed)
    record_video(model, parts, out, args.deterministic, args.seed, args.max_frames * len(shown), shown)
    print(out)
    return 0


def plot_command(args: PlotArguments) -> int:
    """Draw learning curves and print the path of the picture."""
    from proximo.models.pictures import check_picture
    from proximo.models.plot import check_metric, find_runs, plot

    wrong = folder_problems("--out", args.out, "curves.png") or usage_errors(lambda: check_picture(args.out))
    wrong += usage_errors(lambda: check_metric(find_runs(args.runs), args.metric))
    check_least(args, *wrong, window=0)
    print(plot(args.runs, args.out, args.window or None, args.metric))
    return 0
