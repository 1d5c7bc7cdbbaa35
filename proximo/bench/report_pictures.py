"""The pictures of a report, as SVG text that stands in a page without anything beside it."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from proximo.bench.published import atari_game, atari_scores
from proximo.bench.report_tables import Ablation
from proximo.bench.runs import Groups, Run, common_curves, metric_of
from proximo.bench.statistics import bootstrap, curve_bands, normalised

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {"step": "steps", "seconds": "wall time in minutes"}


def curves_picture(env_id: str, runs_of: Mapping[str, Sequence[Run]]) -> str:
    """Learning curves of one environment against steps and wall time; empty where no episode ended."""
    from matplotlib.ticker import EngFormatter
    figure = _figure(12, 4.6)
    panels, drawn = figure.subplots(1, 2), 0
    measured = " or ".join(sorted({metric_of(run.variant).removeprefix("episodic_") for runs in runs_of.values()
                                   for run in runs}))
    for panel, (axis, name) in zip(panels, AXES.items(), strict=True):
        for place, (label, runs) in enumerate(runs_of.items()):
            x, curves = common_curves(runs, axis)
            if not len(x):
                continue
            bands, colour = curve_bands(curves), _colour(place)
            x = x / 60 if axis == "seconds" else x
            panel.plot(x, bands["iqm"], color=colour, linewidth=1.8, label=f"{label} ({len(curves)} seeds)")
            panel.plot(x, bands["mean"], color=colour, linewidth=1, linestyle=":")
            panel.fill_between(x, bands["low"], bands["high"], color=colour, linewidth=0,
                               alpha=0.15 if len(runs_of) < 5 else 0.06)
            drawn += 1
        panel.set_xlabel(name)
        if axis == "step":
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.set_ylabel(f"{measured}, last 100 episodes")
    if not drawn:
        return ""
    figure.suptitle(env_id)
    handles, labels = panels[0].get_legend_handles_labels()
    columns = max(1, min(len(labels), 130 // (max(map(len, labels)) + 8)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return _svg(figure)


def ablation_picture(found: Sequence[Ablation]) -> str:
    """A panel for each environment: what each detail's absence changes, with its interval."""
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
            colour = "#b3261e" if high < 0 else "#1b7f3b" if low > 0 else "#555555"
            panel.plot([low, high], [y, y], color=colour, linewidth=2.2)
            panel.plot(one.difference.value, y, "o", color=colour)
        panel.axvline(0, color="#999999", linewidth=1)
        panel.set_ylim(-0.6, len(rows) - 0.4)
        several = len({one.base for one in rows}) > 1
        panel.set_yticks(range(len(rows)), [one.change + (f" ({one.base})" if several else "")
                                            for one in rows])
        panel.set_title(env_id)
        panel.set_xlabel("difference of return")
    return _svg(figure)


def profiles_picture(profiles: Mapping[str, Mapping[str, np.ndarray]], thresholds: np.ndarray, name: str) -> str:
    """Share of runs above each normalised score, with intervals."""
    figure = _figure(8, 4.6)
    panel = figure.subplots()
    for place, (label, profile) in enumerate(profiles.items()):
        panel.plot(thresholds, profile["value"], color=_colour(place), linewidth=1.8, label=label)
        panel.fill_between(thresholds, profile["low"], profile["high"], color=_colour(place), alpha=0.15, linewidth=0)
    panel.set_xlabel(name)
    panel.set_ylabel("share of runs above")
    panel.set_ylim(-0.02, 1.02)
    panel.legend(frameon=False)
    return _svg(figure)


def human_picture(groups: Groups, labels: Sequence[str]) -> str:
    """Median over games of human-normalised scores during training, with its interval; empty below one game."""
    figure = _figure(8, 4.6)
    panel, drawn = figure.subplots(), 0
    for place, label in enumerate(labels):
        games = {env_id: runs for (env_id, one), runs in groups.items() if one == label and atari_game(env_id)}
        tensor, share = _human_curves(games)
        if not len(share):
            continue
        value, low, high = bootstrap(tensor, lambda drawn_: np.median(drawn_.mean(0), axis=0), repetitions=500)
        panel.plot(share, 100 * value, color=_colour(place), linewidth=1.8, label=f"{label} ({len(games)} games)")
        panel.fill_between(share, 100 * low, 100 * high, color=_colour(place), alpha=0.15, linewidth=0)
        drawn += 1
    if not drawn:
        return ""
    panel.set_xlabel("share of training in %")
    panel.set_ylabel("median human-normalised score in %")
    panel.legend(frameon=False)
    return _svg(figure)


def _human_curves(games: Mapping[str, Sequence[Run]]) -> tuple[np.ndarray, np.ndarray]:
    """((seeds, games, P), share of training (P,)); the seeds are as many as the game with the fewest has."""
    curves = []
    for env_id, runs in games.items():
        random, human = atari_scores()[atari_game(env_id)]
        _, values = common_curves(runs, "step", points=50)
        if len(values):
            curves.append(normalised(values, random, human))
    if not curves:
        return np.empty(0), np.empty(0)
    seeds = min(len(values) for values in curves)
    return np.stack([values[:seeds] for values in curves], axis=1), np.linspace(0, 100, 50)


def _colour(place: int) -> tuple:
    from matplotlib import colormaps
    return colormaps["tab10" if place < 10 else "tab20"](place % 20 if place >= 10 else place)


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_facecolor("white")
    return figure


def _svg(figure: "Figure") -> str:
    """Text stays text, and the same data give the same bytes."""
    import matplotlib
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "proximo", "font.family": "sans-serif"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg"):]
