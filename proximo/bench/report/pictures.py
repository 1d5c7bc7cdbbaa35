"""The figures of a report, as SVG text."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from proximo.bench.report.ablations import Ablation
from proximo.bench.report.curves import Axis, common_curves
from proximo.bench.report.published import atari_game, atari_scores
from proximo.bench.results import Groups, RunResult, metric_of, scores_of
from proximo.bench.statistics import bootstrap, curve_bands, normalise
from proximo.bench.text import count_text
from proximo.models.pictures import PALETTE, color_places, drawn_text, plain_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES: tuple[Axis, ...] = ("step", "seconds")
UNITS = ((3 * 3600, 3600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))  # used from so many seconds, length, name
LEGEND_LINE = 0.21  # inches
MOST_LINES = 20  # settings in the picture of an environment
WORSE, BETTER, UNCLEAR = "#b3261e", "#1b7f3b", "#555555"
Curves = dict[str, tuple[np.ndarray, np.ndarray]]  # label -> x (P,), curves (seeds, P)


@plain_style()
def curves_picture(env_id: str, runs_of: Mapping[str, Sequence[RunResult]],
                   places: Mapping[str, int] | None = None) -> str:
    """Draw the learning curves of one environment against steps and wall time.

    An axis on which no group has a common range is left out. Groups without one on the first axis are named. Of many
    groups, those with the highest mean score are drawn.

    Args:
        env_id: The environment, for the title.
        runs_of: The runs by label.
        places: The number of each label, which chooses its colour; see `color_places`. None: their order.

    Returns:
        SVG, or an empty string if no episode ended.
    """
    places, more = places or color_places([runs_of]), len(runs_of) - MOST_LINES
    runs_of = highest(runs_of)
    found: dict[Axis, Curves] = {}
    for axis in AXES:
        curves = {label: common_curves(runs, axis) for label, runs in runs_of.items()}
        if kept := {label: pair for label, pair in curves.items() if len(pair[0])}:
            found[axis] = kept
    if not found:
        return ""
    metrics = sorted({metric_of(run.variant).removeprefix("episodic_") for runs in runs_of.values() for run in runs})
    colors = {label: _color(places[label]) for label in runs_of}
    figure = _figure(12 if len(found) > 1 else 7, 4.2)
    panels = figure.subplots(1, len(found), squeeze=False).ravel()
    for panel, (axis, curves) in zip(panels, found.items(), strict=True):
        _draw_curves(panel, axis, curves, colors)
        panel.set_ylabel(f"{' or '.join(metrics)}, mean of the last 100 episodes")
    for label in runs_of:
        if label not in next(iter(found.values())):
            panels[0].plot([], [], " ", label=drawn_text(f"{label}: its runs have no range in common"))
    if more > 0:
        panels[0].plot([], [], " ", label=f"and {more} with lower scores")
    figure.suptitle(drawn_text(env_id.rpartition(":")[2]))
    _draw_legend(figure, panels[0], 130)
    return _svg(figure)


def highest(runs_of: Mapping[str, Sequence[RunResult]]) -> dict[str, Sequence[RunResult]]:
    """Return the runs by label that the picture of an environment has: those of the highest mean scores."""
    def mean(label: str) -> float:
        scores = scores_of(runs_of[label], metric_of(runs_of[label][0].variant))
        return scores.mean() if len(scores) else float("-inf")

    kept = sorted(runs_of, key=mean, reverse=True)[:MOST_LINES]
    return {label: runs for label, runs in runs_of.items() if label in kept}


def _draw_legend(figure: "Figure", panel: "Axes", characters: int) -> None:
    """Name the lines of a panel below the figure, which grows; its width has room for so many characters."""
    handles, labels = panel.get_legend_handles_labels()
    columns = max(1, min(len(labels), characters // (max(map(len, labels)) + 8)))
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def _draw_curves(panel: "Axes", axis: Axis, found: Curves, colors: Mapping[str, Any]) -> None:
    from matplotlib.ticker import EngFormatter

    longest = max(x[-1] for x, _ in found.values())
    _, length, unit = next(one for one in UNITS if longest >= one[0])
    for label, (x, curves) in found.items():
        bands = curve_bands(curves)
        x = x / length if axis == "seconds" else x
        panel.plot(x, bands["iqm"], color=colors[label], linewidth=1.8,
                   label=drawn_text(f"{label} ({count_text(len(curves), 'seed')})"))
        if len(curves) > 1:
            panel.plot(x, bands["mean"], color=colors[label], linewidth=1, linestyle=":")
            panel.fill_between(x, bands["low"], bands["high"], color=colors[label], linewidth=0,
                               alpha=0.15 if len(found) < 5 else 0.06)
    panel.set_xlim(left=0)
    if axis == "step":
        panel.set_xlabel("environment steps")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    else:
        panel.set_xlabel(f"wall time in {unit} after the first iteration")


@plain_style()
def ablation_picture(found: Sequence[Ablation]) -> str:
    """Draw what the change of each detail does to the score, with its interval; one panel per environment."""
    env_ids = list(dict.fromkeys(one.env_id for one in found))
    columns, tallest = min(2, len(env_ids)), max(sum(one.env_id == env_id for one in found) for env_id in env_ids)
    lines = -(-len(env_ids) // columns)
    figure = _figure(12, lines * (1.3 + 0.36 * tallest))
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel in panels[len(env_ids):]:
        panel.set_axis_off()
    for panel, env_id in zip(panels, env_ids, strict=False):
        rows = [one for one in found if one.env_id == env_id][::-1]
        for y, one in enumerate(rows):
            low, high = one.difference.low, one.difference.high
            color = UNCLEAR if one.pairs < 2 else WORSE if high < 0 else BETTER if low > 0 else UNCLEAR
            panel.plot([low, high], [y, y], color=color, linewidth=2.2)
            panel.plot(one.difference.value, y, "o", color=color)
        panel.axvline(0, color="#999999", linewidth=1)
        panel.set_ylim(-0.6, len(rows) - 0.4)
        several = len({one.base for one in rows}) > 1
        panel.set_yticks(range(len(rows)), [drawn_text(one.change + (f" ({one.base})" if several else ""))
                                            for one in rows])
        panel.set_title(drawn_text(env_id.rpartition(":")[2]))
        panel.set_xlabel("difference of the score")
    return _svg(figure)


@plain_style()
def profiles_picture(profiles: Mapping[str, Mapping[str, np.ndarray]], thresholds: np.ndarray, name: str) -> str:
    """Draw the share of runs above each normalised score, with intervals.

    Args:
        profiles: What statistics.performance_profiles returns.
        thresholds: (P,) normalised scores.
        name: How they are normalised, for the axis.
    """
    figure = _figure(8, 4.2)
    panel = figure.subplots()
    for place, (label, profile) in enumerate(profiles.items()):
        panel.plot(thresholds, profile["value"], color=_color(place), linewidth=1.8, label=drawn_text(label))
        panel.fill_between(thresholds, profile["low"], profile["high"], color=_color(place), alpha=0.15, linewidth=0)
    panel.set_xlabel(f"score, {name}")
    panel.set_ylabel("share of runs with a higher score")
    panel.set_ylim(-0.02, 1.02)
    _draw_legend(figure, panel, 90)
    return _svg(figure)


@plain_style()
def human_picture(groups: Groups, labels: Sequence[str]) -> str:
    """Draw the median over games of human-normalised scores during training, with its interval.

    Returns:
        SVG, or an empty string if no run is of an Atari game with known scores.
    """
    figure = _figure(8, 4.2)
    panel = figure.subplots()
    for place, label in enumerate(labels):
        games = {env_id: runs for (env_id, one), runs in groups.items() if one == label and atari_game(env_id)}
        curves, share = _human_curves(games)
        if not len(share):
            continue
        value, low, high = bootstrap(curves, lambda sample: np.median(sample.mean(0), axis=0), repetitions=500)
        panel.plot(share, 100 * value, color=_color(place), linewidth=1.8,
                   label=drawn_text(f"{label} ({count_text(curves.shape[1], 'game')})"))
        panel.fill_between(share, 100 * low, 100 * high, color=_color(place), alpha=0.15, linewidth=0)
    if not panel.lines:
        return ""
    panel.set_xlabel("share of training in %")
    panel.set_ylabel("median human-normalised score in %")
    _draw_legend(figure, panel, 90)
    return _svg(figure)


def _human_curves(games: Mapping[str, Sequence[RunResult]]) -> tuple[np.ndarray, np.ndarray]:
    """Return ((seeds, games, P), share of training in % (P,)), with as many seeds as the game with the fewest has."""
    curves = []
    for env_id, runs in games.items():
        random, human = atari_scores()[atari_game(env_id) or ""]
        _, values = common_curves(runs, "step", points=50)
        if len(values):
            curves.append(normalise(values, random, human))
    if not curves:
        return np.empty(0), np.empty(0)
    seeds = min(len(values) for values in curves)
    return np.stack([values[:seeds] for values in curves], axis=1), np.linspace(0, 100, 50)


def _color(place: int) -> Any:
    from matplotlib import colormaps
    return PALETTE[place] if place < len(PALETTE) else colormaps["tab20"](place % 20)


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_facecolor("white")
    return figure


def _svg(figure: "Figure") -> str:
    """Return SVG whose text stays text; the same data give the same bytes."""
    import matplotlib
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "proximo", "font.family": "sans-serif"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg"):]
