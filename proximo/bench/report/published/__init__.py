"""Published results, and the scores of humans and of random play in 57 Atari games, with their sources."""

import csv
import re
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class Published(NamedTuple):
    """One published number."""

    variant: str
    """the variant that it is compared with; empty: any"""
    env_id: str
    """the id of the environment here"""
    published_env_id: str
    """the id under which it was published"""
    implementation: str
    metric: str
    """episodic_return or episodic_length"""
    mean: float
    std: float | None
    """population standard deviation over seeds; None: not published"""
    steps: int
    seeds: int
    setting: str
    protocol: str
    """training: the last 100 episodes of training; evaluation: episodes of a trained agent"""
    differs: str
    """why no run of ours is comparable; empty: a run with the same steps and metric is"""
    source: str


@cache
def published_results() -> tuple[Published, ...]:
    """Return every published result, in the order of the file."""
    return tuple(_published(row) for row in _rows("results.csv"))


def published_for(variant: str, env_id: str) -> list[Published]:
    """Return the published results of a variant in an environment, comparable or not."""
    return [row for row in published_results() if row.env_id == env_id and row.variant in ("", variant)]


@cache
def atari_scores() -> dict[str, tuple[float, float]]:
    """Return game -> (score of random play, score of a human), for 57 games (Badia et al. 2020)."""
    return {row["game"]: (float(row["random"]), float(row["human"])) for row in _rows("atari57.csv")}


def atari_source() -> str:
    """Return the source of the scores of random play and of humans."""
    return _rows("atari57.csv")[0]["source"]


def atari_game(env_id: str) -> str | None:
    """Return Breakout for BreakoutNoFrameskip-v4, Breakout-v5 and ALE/Breakout-v5; None if it is none of the 57."""
    game = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", env_id.removeprefix("ALE/"))
    return game if game in atari_scores() and game != env_id else None


def _rows(name: str) -> list[dict[str, str]]:
    text = files("proximo.bench.report.published").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _published(row: dict[str, str]) -> Published:
    kept: dict[str, Any] = {name: row[name] for name in Published._fields}
    return Published(**kept | {"mean": float(row["mean"]), "std": float(row["std"]) if row["std"] else None,
                               "steps": int(row["steps"]), "seeds": int(row["seeds"])})
