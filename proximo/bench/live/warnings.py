"""The usual ranges of the metrics that PPO logs, and the usual remedies outside of them.

The bounds are choices of this project, and wide: a warning is a hint to look at a curve. Further reading:
(1) J. Schulman, "Nuts and Bolts of Deep RL Research", slides, 2016.
(2) OpenAI Spinning Up, PPO: early stopping at 1.5 times target_kl=0.01.
(3) Stable-Baselines3, "Logger": the meaning of explained_variance.
(4) Andrychowicz et al., "What Matters In On-Policy Reinforcement Learning?", 2021.
(5) Huang et al., "The 37 Implementation Details of Proximal Policy Optimization", 2022.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proximo.bench.live.follow import Curves
from proximo.bench.results import RunResult

LEAST_LINES = 5  # lines of metrics.csv before anything is said


class Range(NamedTuple):
    """The usual range of the mean of a metric over the newest lines of metrics.csv."""

    metric: str
    low: float | None
    high: float | None
    after: float
    """share of all steps from which the range holds"""
    if_low: str
    if_high: str
    """what it means, and the usual remedy"""
    source: str
    """numbers of the further reading at the top of this file"""
    relative: bool = False
    """the bounds are multiples of the metric's first value, if that is above 0"""
    low_until: float = 1.0
    """share of all steps up to which `low` holds"""


class Warned(NamedTuple):
    """A metric outside its range."""

    metric: str
    value: float
    side: str
    """above or below"""
    bound: float
    advice: str

    def __str__(self) -> str:
        """Return the message for one run."""
        return f"{self.metric} is {self.value:.3g}, {self.side} {self.bound:.3g}. {self.advice}"


RANGES = (
    Range(metric="losses/approx_kl", low=1e-6, high=0.05, after=0.0, source="(1), (2), (5)", low_until=0.9,
          if_low="The policy does not change. People raise --learning-rate, and look at the scale of rewards: if "
                 "grad_norm is far above --max-grad-norm, the value function takes the whole gradient, and "
                 "--norm-reward helps.",
          if_high="The policy changes much in each iteration; after such a jump the return often falls. People lower "
                  "--learning-rate or --update-epochs, or stop early with --target-kl 0.015."),
    Range(metric="losses/clipfrac", low=None, high=0.4, after=0.0, source="(1), (5)", if_low="",
          if_high="Many samples of an update reach the limit of the clipped objective. People lower --learning-rate or "
                  "--update-epochs, or take larger minibatches (--num-minibatches)."),
    Range(metric="losses/entropy", low=0.02, high=1.5, after=0.05, relative=True, source="(1), (4)",
          if_low="The policy hardly explores any more. If the return is still low, people raise --ent-coef (0.01 is "
                 "usual for discrete actions) or lower --learning-rate.",
          if_high="The policy gets more random than it was at the start. People lower --ent-coef, and check the scale "
                  "of rewards and actions."),
    Range(metric="losses/explained_variance", low=-0.1, high=None, after=0.1, source="(1), (3)", if_high="",
          if_low="The value function predicts returns worse than a constant would. People normalise rewards "
                 "(--norm-reward) or returns (--norm-value), and observations (--norm-obs), raise --vf-coef, or "
                 "give it a larger network."),
)


def warnings_of(run: RunResult, curves: Curves, share: float) -> list[Warned]:
    """Return the metrics of a run that are outside their usual range; `share` of its steps, 0 to 1, are done."""
    returns = [ret for _, ret, _ in curves.newest]
    return check_ranges(curves.first, list(curves.recent), share, returns, "continuous" in run.variant)


def check_ranges(first: Sequence[Mapping[str, float]], recent: Sequence[Mapping[str, float]], share: float,
                 returns: Sequence[float], continuous: bool = False) -> list[Warned]:
    """Return the metrics of a run that are outside their usual range.

    Args:
        first: The first lines of metrics.csv, as values by name.
        recent: The newest lines.
        share: The share of all steps that the run has made, 0 to 1.
        returns: Returns of the newest episodes. If all are equal, no variance is left to be explained.
        continuous: The actions are continuous. Their entropy passes 0 as the policy gets precise, so it has no least.
    """
    found = []
    for one in RANGES:
        values = [row[one.metric] for row in recent if one.metric in row]
        begin = [row[one.metric] for row in first[:LEAST_LINES] if one.metric in row]
        nothing_to_explain = one.metric == "losses/explained_variance" and len({*returns}) == 1
        if len(values) < LEAST_LINES or share < one.after or nothing_to_explain:
            continue
        value, unit = sum(values) / len(values), sum(begin) / len(begin) if one.relative and begin else 1.0
        if unit <= 0:  # the entropy of continuous actions may be negative
            continue
        name, low = one.metric.removeprefix("losses/"), None if one.relative and continuous else one.low
        if one.high is not None and value > one.high * unit:
            found.append(Warned(metric=name, value=value, side="above", bound=one.high * unit, advice=one.if_high))
        elif low is not None and share < one.low_until and value < low * unit and not (one.relative and value < 0):
            found.append(Warned(metric=name, value=value, side="below", bound=low * unit, advice=one.if_low))
    return found
