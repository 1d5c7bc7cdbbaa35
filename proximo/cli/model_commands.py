"""The commands on what is there already: eval, watch, plot, rate and check-env; and the videos of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from proximo.api import load
from proximo.catalog import Parts, parts_of
from proximo.config import Config
from proximo.errors import ProximoError, UsageError, notify
from proximo.models.evaluate import MAX_STEPS, Evaluation, evaluate, frames
from proximo.models.model import Model, model_from, models_over_time
from proximo.runs.run import write_json
from proximo.streams import env_seeds


def model_command(name: str, words: list[str]) -> int:
    """Run one of these commands; returns its exit code."""
    match name:
        case "eval":
            return eval_command(arguments(EvalArguments, words, name))
        case "watch":
            return watch_command(arguments(WatchArguments, words, name))
        case "plot":
            return plot_command(arguments(PlotArguments, words, name))
        case "rate":
            return rate_command(arguments(RateArguments, words, name))
        case _:
            return check_command(arguments(CheckArguments, words, name))


def arguments(kind: type, words: list[str], name: str) -> Any:
    """The dataclass `kind` filled from the command line, by tyro."""
    return tyro.cli(kind, args=words, prog=f"proximo {name}")


@dataclass
class EvalArguments:
    run: Annotated[Path, tyro.conf.Positional]
    """folder of a run or of a model"""
    episodes: int = 100
    """whole episodes to play (self-play: at least so many, as many for each player)"""
    deterministic: bool = False
    """take the likeliest action instead of sampling"""
    seed: int = 0
    """seed of environments and actions"""
    max_steps: int = MAX_STEPS
    """decisions after which an episode that has not ended is waited for no longer"""
    json: Path | None = None
    """also write the returns to this file"""


@dataclass
class WatchArguments:
    run: Annotated[Path, tyro.conf.Positional]
    """folder of a run or of a model"""
    out: Path | None = None
    """the video, NAME.mp4 or NAME.gif; default: RUN/videos/watch.mp4"""
    deterministic: bool = False
    """take the likeliest action instead of sampling"""
    seed: int = 0
    """seed of environment and actions"""
    max_frames: int = 2000
    """longest video"""


@dataclass
class PlotArguments:
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """folders of runs, or folders of such"""
    out: Path = Path("curves.png")
    """the picture"""
    window: int = 100
    """episodes that a point averages over"""


@dataclass
class CheckArguments:
    env_id: Annotated[str, tyro.conf.Positional]
    """id of the environment; `module:Env-v0` imports the module first"""


@dataclass
class RateArguments:
    run: Annotated[Path, tyro.conf.Positional]
    """folder of a self-play run"""
    rounds: int = 2
    """games of each pair from each side"""
    most: int = 8
    """checkpoints that play, evenly spread over training; the newest always does"""
    seed: int = 1
    """seed of the games"""


def below(args: Any, **least: int) -> list[str]:
    """A sentence for each flag of `args` that lies below its least value."""
    return [f"--{name.replace('_', '-')} {getattr(args, name)} must be at least {bound}"
            for name, bound in least.items() if getattr(args, name) < bound]


def refuse(problems: list[str]) -> None:
    """All problems of a command line as one UsageError."""
    if problems:
        raise UsageError("\n".join(problems))


def loaded(path: Path) -> tuple[Model, Parts]:
    """The model of a run or of a model folder, acting by torch whichever framework trained it, and its recipe.
    UsageError for the folder of several runs."""
    from proximo.runs.seed_runs import seed_folders

    if several := seed_folders(path):
        raise UsageError(f"{path} holds the runs of {len(several)} seeds; name one of them, such as {several[0]}")
    model = load(path)
    return model, parts_of(model.variant, "torch")


def play_envs(cfg: Config, recipe: Parts, rows: int, seed: int) -> Any:
    """Environments to play in: raw observations (the model normalises), in this process."""
    engine = "auto" if cfg.engine == "jax" else cfg.engine  # the same task, stepped by Gymnasium
    raw = replace(cfg, norm_obs=False, norm_reward=False, env_workers=0, num_envs=rows, seed=seed, engine=engine)
    return recipe.make_envs(raw, env_seeds(seed, rows, stream="eval"))


def eval_command(args: EvalArguments) -> int:
    refuse(below(args, episodes=1, seed=0, max_steps=1))
    model, recipe = loaded(args.run)
    envs = play_envs(model.cfg, recipe, 8, args.seed)
    try:
        found = evaluate(model, envs, args.episodes, args.deterministic, args.seed, args.max_steps)
    finally:
        envs.close()
    if not found.returns:
        raise UsageError(f"{model.cfg.env_id}: no episode ended within {args.max_steps:,} decisions; --max-steps N "
                         "allows more, and an environment that never ends one needs a time limit")
    if len(found.returns) < args.episodes:
        notify(f"only {len(found.returns)} of {args.episodes} episodes ended within {args.max_steps:,} decisions: the "
            "longest are missing; --max-steps N allows more")
    players = {name: spread(found, row, len(envs.players)) for row, name in enumerate(envs.players)}
    told = ", ".join(f"{name} {mean_of(about)}" for name, about in players.items()) or mean_of(spread(found))
    how = "deterministic" if args.deterministic else "sampled"
    print(f"{model.cfg.env_id}: {told} over {len(found.returns)} episodes ({how} actions, "
          f"mean length {np.mean(found.lengths):.1f})")
    if args.json:
        write_json(args.json, {"env_id": model.cfg.env_id, "deterministic": args.deterministic, "seed": args.seed,
                               **spread(found), "returns": found.returns, "lengths": found.lengths}
                   | ({"players": players} if players else {}))
    return 0


def spread(found: Evaluation, first: int = 0, every: int = 1) -> dict[str, Any]:
    """Number, mean and deviation of the returns of rows first, first + every, ...; None where no episode ended."""
    returns = [ret for ret, row in zip(found.returns, found.rows) if row % every == first]
    return {"episodes": len(returns), "episodic_return_mean": float(np.mean(returns)) if returns else None,
            "episodic_return_std": float(np.std(returns)) if returns else None}


def mean_of(about: dict[str, Any]) -> str:
    """What spread() found, in words."""
    if not about["episodes"]:
        return "no episode"
    return f"{about['episodic_return_mean']:.2f} +- {about['episodic_return_std']:.2f}"


def watch_command(args: WatchArguments) -> int:
    folder = args.out is not None and args.out.is_dir()
    refuse(below(args, seed=0, max_frames=1)
           + [f"--out {args.out} is a folder; name a file in it: {args.out}/watch.mp4"] * folder)
    model, recipe = loaded(args.run)
    out = args.out or args.run / "videos" / "watch.mp4"
    record_video(model, recipe, out, args.deterministic, args.seed, args.max_frames)
    print(out)
    return 0


def record_video(model: Model, recipe: Parts, out: Path, deterministic: bool = False, seed: int = 0,
                 max_frames: int = 2000) -> None:
    """Record one whole episode at the environment's own speed.

    Raises:
        UsageError: if the environment draws no pictures, or if `out` is neither an .mp4 nor a .gif.
        EnvError: if drawing fails.
        FilesError: if `out` cannot be written.
    """
    from proximo.models.video import check_format, write_video

    check_format(out)
    rows = max(1, len(model_players(model)))
    envs = play_envs(model.cfg, recipe, rows, seed)
    try:
        pictures = frames(model, envs, deterministic, seed, max_frames)
        first = next(pictures, None)
        if first is None:
            raise UsageError(f"{model.cfg.env_id} draws no pictures (no render_mode rgb_array)")
        write_video(chain([first], pictures), out, envs.render_fps or 30)
    finally:
        envs.close()


def model_players(model: Model) -> Sequence[int]:
    """As many rows as one game has players (a multiple of them plays more games)."""
    return range(model.cfg.limits.max_players)


def recorder(cfg: Config, variant: str) -> Callable[[Path, int], None] | None:
    """What --capture-video does at each checkpoint; nothing without it. A video that fails is said: training goes on.
    """
    if not cfg.capture_video:
        return None

    def record(folder: Path, step: int) -> None:
        try:
            record_video(*loaded(folder), folder / "videos" / f"step-{step:09d}.mp4")
        except ProximoError as error:
            notify(f"no video: {error}")
    return record


def plot_command(args: PlotArguments) -> int:
    from proximo.models.plot import find_runs, plot

    refuse(below(args, window=1))
    print(plot(find_runs(args.runs), args.out, args.window))
    return 0


def check_command(args: CheckArguments) -> int:
    from proximo.cli.check_env import check_env

    findings = check_env(args.env_id)
    for finding in findings:
        sign = {True: "ok   ", False: "WRONG", None: "note "}[finding.ok]
        print(f"{sign} {finding.what}" + (f"\n      {finding.advice}" if finding.advice else ""))
    return 2 if any(finding.ok is False for finding in findings) else 0


def rate_command(args: RateArguments) -> int:
    from proximo.models.rate import model_player, play_selfplay, random_player, rate, write_ratings

    refuse(below(args, rounds=1, most=1, seed=0))
    model, recipe = loaded(args.run)
    if model.cfg.limits.max_players == 1:
        raise UsageError(f"{args.run} is a run of {model.variant}; only games of several players are rated")
    raw = replace(model.cfg, norm_obs=False, norm_reward=False, env_workers=0)
    play = play_selfplay(partial(recipe.make_envs, raw))
    space: Any = model.spec.action_space
    players = [random_player(int(space.n))]
    for steps, tree in spread_over(models_over_time(args.run), args.most):
        players.append(model_player(model_from(tree, model.cfg, recipe.make_actor), steps))
    ratings, games = rate(players, play, args.rounds, args.seed)
    write_ratings(ratings, games, args.run / "rating")
    for line in sorted(ratings, key=lambda rating: -rating.mu):
        print(f"{line.name:>20}  {line.mu:6.2f} +- {line.sigma:.2f}   won {line.won}, drawn {line.drawn}, "
              f"lost {line.lost}")
    print(args.run / "rating" / "rating.png")
    return 0


def spread_over(items: list, most: int) -> list:
    """At most so many of them, evenly spread and in order, the last one always."""
    return [items[i] for i in sorted({round(x) for x in np.linspace(len(items) - 1, 0, most)})] if items else []
