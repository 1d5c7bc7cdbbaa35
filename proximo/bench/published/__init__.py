"""Published results, and the scores of people and of chance on 57 Atari games, as data with their sources."""

import csv
import re
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class Published(NamedTuple):
    """One number somebody published."""

    variant: str
    """ours that it stands beside; empty: any"""
    env_id: str
    """our id of the environment"""
    published_env_id: str
    """the id it was published under"""
    implementation: str
    metric: str
    """episodic_return or episodic_length"""
    mean: float
    std: float | None
    """population deviation over seeds; None: not published"""
    steps: int
    seeds: int
    setting: str
    protocol: str
    """training: last 100 episodes of training; evaluation: of a trained agent"""
    differs: str
    """why no verdict is fair whatever we run; empty: it is, where steps and metric agree"""
    source: str


@cache
def published_results() -> tuple[Published, ...]:
    """Every published result, in the order of the file."""
    return tuple(_published(row) for row in _rows("results.csv"))


def published_for(variant: str, env_id: str) -> list[Published]:
    """What stands beside our runs of this variant in this environment, verdicts or none."""
    return [row for row in published_results() if row.env_id == env_id and row.variant in ("", variant)]


@cache
def atari_scores() -> dict[str, tuple[float, float]]:
    """Game -> (score of random play, score of a person); Badia et al. 2020, 57 games."""
    return {row["game"]: (float(row["random"]), float(row["human"])) for row in _rows("atari57.csv")}


def atari_source() -> str:
    """Where the scores of random play and of people come from."""
    return _rows("atari57.csv")[0]["source"]


def atari_game(env_id: str) -> str | None:
    """Breakout of BreakoutNoFrameskip-v4, Breakout-v5 and ALE/Breakout-v5; None where it is none of the 57."""
    game = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", env_id.removeprefix("ALE/"))
    return game if game in atari_scores() and game != env_id else None


def _rows(name: str) -> list[dict[str, str]]:
    text = files("proximo.bench.published").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _published(row: dict[str, str]) -> Published:
    kept: dict[str, Any] = {name: row[name] for name in Published._fields}
    return Published(**kept | {"mean": float(row["mean"]), "std": float(row["std"]) if row["std"] else None,
                               "steps": int(row["steps"]), "seeds": int(row["seeds"])})
