"""One panel of a picture of learning curves: the lines of one environment, with their names."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from proximo.models.curves import WINDOW, Curve, average_over_seeds
from proximo.models.pictures import PALETTE, drawn_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Groups = dict[str, list[Curve]]  # label -> curves
MOST_DOTS = 4000
MOST_MARKED = 30  # values of a line that are marked, since it is straight between them
MOST_INSIDE = 4  # lines of text above the curves of a panel; more are beside it
LINE_SHARE = 0.055  # of the height of a panel, for a line of text
MOST_NAMES = 30  # lines of a panel that are named
MOST_SILENT = 8  # runs without an episode that are named
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (1, 4)))  # of matplotlib; each for all colours
WIDTH = 66  # characters of a line of text


class Drawn(NamedTuple):
    """What the curves show."""

    metric: str = ""  # a column of metrics.csv; "": the returns of episodes
    window: int = WINDOW  # values of the rolling mean

    @property
    def axis(self) -> str:
        """The label of the axis."""
        return self.metric or "episodic return"

    @property
    def missing(self) -> str:
        """What a run without a value lacks."""
        return f"no value of {self.metric}" if self.metric else "no episode finished"


def lines_of_text(groups: Groups, what: Drawn) -> int:
    """Return how many lines of text the names of a panel have."""
    names = sum(len(_name(label, curves)) for label, curves in list(groups.items())[:MOST_NAMES])
    silent = _silent(groups, what)
    return names + sum(len(wrap(one, WIDTH)) for one in silent[:MOST_SILENT]) + (len(silent) > MOST_SILENT) + (
        _drawn(groups) > MOST_NAMES)


def draw_panel(axes: "Axes", env_id: str, groups: Groups, what: Drawn, places: Mapping[str, int]) -> None:
    """Draw the curves of one environment. Of many lines, only those with the highest values at the end are named.

    Args:
        axes: The panel.
        env_id: The environment.
        groups: The curves of each line.
        what: What they show.
        places: The number of each line, which chooses its colour and style; see `color_places`.
    """
    named = sorted(groups, key=lambda label: -_last_mean(groups[label], what.window))[:MOST_NAMES]
    for label, curves in groups.items():
        index = places[label]
        if ended := [curve for curve in curves if len(curve.steps)]:
            style = {"color": PALETTE[index % len(PALETTE)],
                     "linestyle": LINES[index // len(PALETTE) % len(LINES)]}
            name = drawn_text("\n".join(_name(label, ended))) if label in named else None
            _draw_line(axes, name, ended, what.window, style)
            if len(ended) == len(groups) == 1:
                _draw_episodes(axes, ended[0], style["color"])
    silent = _silent(groups, what)
    sentences = [*(drawn_text(fill(one, WIDTH)) for one in silent[:MOST_SILENT]),
                 *[f"and {len(silent) - MOST_SILENT} more"] * (len(silent) > MOST_SILENT)]
    if (drawn := _drawn(groups)) > MOST_NAMES:
        sentences.append(f"and {drawn - MOST_NAMES} lines with lower values at the end")
    empty = len(silent) == sum(map(len, groups.values()))
    axes.set_ylabel(drawn_text(what.axis))
    _finish_panel(axes, env_id, sentences, empty, lines_of_text(groups, what))


def _name(label: str, curves: Sequence[Curve]) -> list[str]:
    seeds = f"{len(curves)} seed{'' if len(curves) == 1 else 's'}"
    return wrap(f"{label} ({seeds})", WIDTH)


def _last_mean(curves: Sequence[Curve], window: int) -> float:
    """Return the mean of the last episodes of all curves; minus infinity without any."""
    means = [float(np.mean(curve.values[-window:])) for curve in curves if len(curve.values)]
    return sum(means) / len(means) if means else float("-inf")


def _drawn(groups: Groups) -> int:
    """Return how many lines have a value."""
    return sum(any(len(curve.steps) for curve in curves) for curves in groups.values())


def _silent(groups: Groups, what: Drawn) -> list[str]:
    return [f"{label}, seed {curve.config['seed']}: {what.missing}" for label, curves in groups.items()
            for curve in curves if not len(curve.steps)]


def _draw_line(axes: "Axes", name: str | None, curves: list[Curve], window: int, style: dict[str, Any]) -> None:
    at, mean, deviation = average_over_seeds(curves, window)
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    steps = steps[steps >= at[0]]
    places = np.searchsorted(at, steps).clip(max=len(at) - 1).tolist() if len(steps) <= MOST_MARKED else []
    axes.plot(at, mean, linewidth=1.8, label=name, marker="o" if places else "", markersize=4, markevery=places,
              **style)
    if len(curves) > 1:
        axes.fill_between(at, mean - deviation, mean + deviation, color=style["color"], alpha=0.2, linewidth=0)


def _draw_episodes(axes: "Axes", curve: Curve, color: str) -> None:
    """Draw a dot for each value; the fewer they are, the larger and the darker."""
    every = ceil(len(curve.steps) / MOST_DOTS)
    density = min(1.0, len(curve.steps) / MOST_DOTS) ** 0.5
    axes.plot(curve.steps[::every], curve.values[::every], "o", color=color, alpha=0.65 - 0.4 * density,
              markersize=5.5 - 3 * density, markeredgewidth=0, zorder=1)


def _finish_panel(axes: "Axes", env_id: str, sentences: Iterable[str], empty: bool, lines: int) -> None:
    from matplotlib.ticker import EngFormatter

    axes.set_title(drawn_text(env_id.rpartition(":")[2]), fontsize=12, fontweight="bold")
    axes.set_xlabel("environment steps")
    axes.spines[["top", "right"]].set_visible(False)
    if empty:
        axes.set(xticks=[], yticks=[])
        text = "\n".join(fill(one, WIDTH - 10) for one in sentences)
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="0.35")
        return
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    for sentence in sentences:
        axes.plot([], [], " ", label=sentence)
    place: dict[str, Any] = {"bbox_to_anchor": (1, 1)}
    if lines <= MOST_INSIDE:
        low, high = axes.get_ylim()
        axes.set_ylim(low, low + (high - low) / (1 - LINE_SHARE * (lines + 0.5)))
        place = {}
    axes.legend(loc="upper left", fontsize=8, frameon=False, **place)
