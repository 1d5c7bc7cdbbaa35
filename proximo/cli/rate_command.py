"""The command rate: the agents of self-play runs play against each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from os.path import commonpath, relpath
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from gymnasium.spaces import Discrete, MultiDiscrete

from proximo.catalog import Parts
from proximo.cli.arguments import AllowImport, check_least
from proximo.cli.loading import load_run, missing_run
from proximo.config import Config
from proximo.errors import UsageError
from proximo.facts import facts
from proximo.models.model import Model
from proximo.models.rate import Contestant, model_player, play_selfplay, random_player, rate, write_ratings
from proximo.models.read_folder import model_from, models_over_time
from proximo.models.task import task_difference
from proximo.runs.folder.files import refuse_links
from proximo.runs.logs.output import printable

NOT_OF_THE_GAME = {"num_envs", "num_steps", "env_workers", "env_groups", "env_timeout", "restart_envs", "info_metrics",
                   "autoreset", "norm_obs", "clip_obs", "norm_reward", "clip_norm_reward", "reward_scaler",
                   "clip_rewards", "scale_envs"}
"""Fields about environments that change neither what a player sees nor how the game goes on."""


@dataclass
class RateArguments:
    """Let the checkpoints of self-play runs play against each other, and rate them."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(
        metavar="RUN...", help_behavior_hint="(required)")] = ()
    """folders of self-play runs in the same game"""
    rounds: int = 2
    """games of each pair from each side"""
    most: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 8; of several runs: 1)")] = \
        None
    """checkpoints of each run that play, evenly spread over training; the newest one always plays"""
    seed: int = 1
    """seed of the games"""
    out: Annotated[Path | None, tyro.conf.arg(
        metavar="DIR", help_behavior_hint="(default: RUN/rating; of several runs: rating)")] = None
    """folder that gets rating.json and rating.png"""
    allow_import: AllowImport = ()
    """modules and scripts that the runs may import for their environments"""


def rate_command(args: RateArguments) -> int:
    """Rate the checkpoints of self-play runs, print the ratings and write them to a folder."""
    if not args.runs:
        raise UsageError("rate needs folders of runs: `proximo rate RUN...`. `proximo rate --help` explains it.")
    args.most = (8 if len(args.runs) == 1 else 1) if args.most is None else args.most
    whole = [run.resolve() for run in args.runs]
    wrong = [f"{run} is given twice. Give each run once." for k, run in enumerate(args.runs) if whole[k] in whole[:k]]
    if args.out is not None and args.out.exists() and not args.out.is_dir():
        wrong.append(f"--out {args.out} is a file. Name a folder.")
    check_least(args, *[problem for run in args.runs for problem in missing_run(run)], *wrong, rounds=1, most=1, seed=0)
    loaded = [load_run(run, args.allow_import) for run in args.runs]
    check_games(args.runs, loaded)
    model, parts = loaded[0]
    play = play_selfplay(partial(parts.make_envs, replace(model.cfg, env_workers=0, env_groups=1)),
                         parts.rows_per_game(model.cfg))
    space = model.spec.action_space
    players = [random_player(space)] if isinstance(space, (Discrete, MultiDiscrete)) else []
    for run, label, (model, parts) in zip(args.runs, labels(args.runs), loaded):
        players += contestants(run, label, model, parts, args.most)
    folder = args.out or (args.runs[0] / "rating" if len(args.runs) == 1 else Path("rating"))
    refuse_links([folder, folder / "rating.json", folder / "rating.png"])
    ratings, games = rate(players, play, args.rounds, args.seed)
    width = max(20, *(len(line.name) for line in ratings))
    for line in sorted(ratings, key=lambda rating: -rating.mu):
        print(f"{line.name:>{width}}  {line.mu:6.2f} +- {line.sigma:.2f}   won {line.won}, drawn {line.drawn}, "
              f"lost {line.lost}")
    write_ratings(ratings, games, folder)
    print(folder / "rating.png")
    return 0


def check_games(runs: Sequence[Path], loaded: Sequence[tuple[Model, Parts]]) -> None:
    """Check that the agents of all runs can play against each other.

    Raises:
        UsageError: A run is no self-play, or plays another game than the first one.
    """
    first, wrong = loaded[0][0], list[str]()
    for run, (model, parts) in zip(runs, loaded):
        if parts.rows_per_game(model.cfg) == 1:
            wrong.append(f"{run} is a run of {model.variant} in {printable(model.cfg.env_id)}, which has one player. "
                         "Only runs of self-play can be rated: ppo_pettingzoo_ma_atari, and files with "
                         "from_parallel_env.")
        elif difference := game_difference(model.cfg, first.cfg) or task_difference(
                model.spec, first.spec, bool(model.cfg.norm_obs)):
            wrong.append(f"{run} and {runs[0]} cannot play against each other: {difference}")
    if wrong:
        raise UsageError("\n".join(wrong))


def game_difference(one: Config, other: Config) -> str:
    """Return the first setting of the game that differs between two runs, as a sentence; "" if there is none."""
    for name, fact in facts(type(one)).items():
        if fact.group == "environment" and name not in NOT_OF_THE_GAME:
            here, there = (getattr(cfg, name, None) for cfg in (one, other))
            if name == "env_file":
                here, there = (Path(path or "").name for path in (here, there))
            if here != there:
                return f"{name} is {here!r} in the one and {there!r} in the other. Give runs of the same game."
    return ""


def labels(runs: Sequence[Path]) -> list[str]:
    """Return short names of several runs, which differ: their paths below the folder that all share; "" for one run."""
    if len(runs) == 1:
        return [""]
    whole = [run.absolute() for run in runs]
    return [relpath(run, commonpath(whole)) for run in whole]


def contestants(run: Path, label: str, model: Model, parts: Parts, most: int) -> list[Contestant]:
    """Return at most `most` checkpoints of a run as players, named by `label` and their steps."""
    players = [model_player(model_from(tree, model.cfg, parts.make_actor), steps)
               for steps, tree in evenly_spread(models_over_time(run), most)]
    return [player._replace(name=f"{label}, {player.name}", run=label) if label else player for player in players]


def evenly_spread(items: list[Any], most: int) -> list[Any]:
    """Return at most `most` items, evenly spread and in order, always with the last one."""
    return [items[i] for i in sorted({round(x) for x in np.linspace(len(items) - 1, 0, most)})] if items else []
