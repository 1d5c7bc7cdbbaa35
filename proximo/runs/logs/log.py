"""Everything that a run writes while it trains: metrics.csv, episodes.csv, TensorBoard, a tracker, console."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from time import perf_counter
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.errors import warn
from proximo.runs.clock import Clock
from proximo.runs.folder.csv_file import CsvFile, files_of
from proximo.runs.folder.run import Run
from proximo.runs.logs.console import Meter, Progress
from proximo.runs.logs.events import EventFile
from proximo.runs.logs.trackers import End, start_tracker, tracker_name
from proximo.runs.logs.window import Window
from proximo.types import FinishedEpisodes

FLUSH_SECONDS = 1.0
LAST_EPISODES = 100


class Log:
    """The log of one run. Only rank 0 makes one.

    Attributes:
        episodes: Number of episodes that have ended so far.

    Args:
        run: The run; its folder exists.
        players: A label for each row of one game, or ().
        resume: The `state()` that the checkpoint contains, to continue from.
        started: `time.perf_counter()` when this process started to set up; None: now.
        meter: Whether progress is shown, unless cfg.logger is none.

    Raises:
        FilesError: The folder cannot be written.
        UsageError: A tracker is requested and not available.
    """

    def __init__(self, run: Run, players: Sequence[str] = (), resume: dict[str, Any] | None = None,
                 started: float | None = None, meter: bool = True,
                 group: Callable[[], Sequence["Log"]] | None = None) -> None:
        kept = resume or {}
        self._run, self._players = run, players
        self._group = group or (lambda: [self])
        self._clock = Clock(kept.get("clock"), started)
        self._step: int = kept.get("step", 0)
        self.episodes: int = kept.get("episodes", 0)
        self._returns: deque[float] = deque(kept.get("last_returns", ()), LAST_EPISODES)
        self._lengths: deque[int] = deque(kept.get("last_lengths", ()), LAST_EPISODES)
        self._window = Window(run.cfg.log_every, kept.get("window"))
        self._left_out: set[str] = set()  # names that metrics.csv has no column for
        self._evaluated: float | None = kept.get("evaluated")  # mean return of the last evaluation
        self._tracker_ids: dict[str, str] = kept.get("tracker_ids", {})
        with ExitStack() as opened:
            self._tracker = start_tracker(run, self._tracker_ids)
            if self._tracker:
                opened.callback(self._tracker.finish)
                self._tracker_ids = self._tracker_ids | {tracker_name(run.cfg): self._tracker.id}
            shown = meter and run.cfg.logger != "none"
            self._meter = Meter(run.cfg.env_id, run.cfg.num_iterations) if shown else None
            if self._meter:
                opened.callback(self._meter.close)
            opened.enter_context(files_of(run.folder))
            self._metrics = opened.enter_context(closing(
                CsvFile(run.folder / "metrics.csv", kept.get("metrics_bytes", 0))))
            self._episode_file = opened.enter_context(closing(
                CsvFile(run.folder / "episodes.csv", kept.get("episodes_bytes", 0))))
            self._events = opened.enter_context(closing(EventFile(run.folder / "tensorboard", self._step + 1)))
            self._names = self._metrics.header()
            if not self._episode_file.size:
                self._episode_file.write(f"step,{'player' if players else 'row'},return,length,seconds\n")
            self._events.text("hyperparameters", hyperparameter_table(run.cfg))
            self._opened = opened.pop_all()  # close() closes it
        self._flushed = perf_counter()

    def iteration(self, iteration: int, step: int, metrics: dict[str, float], finished: FinishedEpisodes,
                  last: bool = False) -> None:
        """Write one line of metrics if one is due, and the episodes that have finished. This takes about 0.1 ms.

        Args:
            iteration: Number of the iteration, from 1.
            step: Environment steps of the whole run so far.
            metrics: Values by name. A name that the first iteration did not have is left out of metrics.csv.
            finished: The episodes that ended in this iteration.
            last: Whether the run ends after it.
        """
        seconds = self._clock.count_iteration(step)
        self._step = step
        values = self._charts(finished) | {name: float(value) for name, value in metrics.items()}
        if not math.isnan(evaluated := values.get("eval/return_mean", math.nan)):
            self._evaluated = evaluated
        line = self._window.add(iteration, values, self._counts(finished), last)
        with files_of(self._run.folder):
            if line is not None:
                self._write_metrics(f"{iteration},{step},{seconds:.3f}", line)
                self._write_events(step, line, finished)
            self._write_episodes(finished, seconds)
            if perf_counter() - self._flushed > FLUSH_SECONDS:
                self._flush()
        if self._tracker and line is not None:
            self._tracker.log({k: v for k, v in line.items() if not math.isnan(v)}, step)
        if self._meter:
            left = self._clock.seconds_left((self._run.cfg.num_iterations - iteration) * step / iteration)
            self._meter.update(self._progress(iteration, left))

    def _progress(self, iteration: int, left: float) -> Progress:
        """Return the progress of all runs that train together; those that have ended early train no more steps."""
        logs = self._group()
        found = [mean_or_none(log._returns) for log in logs], [log._evaluated for log in logs]
        ret, evaluated = (mean_or_none([x for x in values if x is not None]) for values in found)
        speeds = [log._clock.sps or 0.0 for log in logs if log._step == self._step]
        return Progress(iteration=iteration, step=self._step, ret=ret, evaluated=evaluated, sps=sum(speeds) or None,
                        compile_seconds=self._clock.compile_seconds, left=left, members=len(logs))

    def end_early(self, reason: str) -> None:
        """Let the line of the next iteration say why it is the last one."""
        if self._meter:
            self._meter.end_early(reason)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, ready for JSON; everything logged so far is flushed first."""
        with files_of(self._run.folder):
            self._flush()
        return {"metrics_bytes": self._metrics.size, "episodes_bytes": self._episode_file.size,
                "clock": self._clock.state(), "step": self._step, "episodes": self.episodes,
                "window": self._window.state(),
                "evaluated": self._evaluated, "last_returns": list(self._returns), "last_lengths": list(self._lengths),
                "tracker_ids": self._tracker_ids}

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json, see `summary_of`."""
        return summary_of(self._run, self._clock, self._step, self.episodes, self._returns, self._lengths)

    def close(self, end: End = "FINISHED") -> None:
        """Write what is left and close every file, also after an error; the tracker is told how the run has ended."""
        if self._tracker:
            self._tracker.end = end
        self._opened.close()

    def _charts(self, finished: FinishedEpisodes) -> dict[str, float]:
        """Return the means over the finished episodes (NaN if there are none), also of each player, and the speed."""
        charts = {"charts/episodic_return": mean_of(finished.ret), "charts/episodic_length": mean_of(finished.length)}
        for index, player in enumerate(self._players):
            mine = finished.row % len(self._players) == index
            charts[f"charts/episodic_return-{player}"] = mean_of(finished.ret[mine])
            charts[f"charts/episodic_length-{player}"] = mean_of(finished.length[mine])
        sps = self._clock.sps
        return charts | {"charts/SPS": math.nan if sps is None else float(int(sps))}

    def _counts(self, finished: FinishedEpisodes) -> dict[str, int]:
        """Return how many episodes each mean over episodes is over."""
        everyone = ("episodic_return", "episodic_length", *self._run.cfg.info_metrics)
        counts = dict.fromkeys((f"charts/{name}" for name in everyone), len(finished.ret))
        for index, player in enumerate(self._players):
            mine = int((finished.row % len(self._players) == index).sum())
            counts |= {f"charts/episodic_return-{player}": mine, f"charts/episodic_length-{player}": mine}
        return counts

    def _write_metrics(self, begin: str, values: dict[str, float]) -> None:
        if not self._names:
            charts = [name for name in values if name.startswith("charts/")]
            self._names = ["iteration", "global_step", "seconds", *charts, *sorted({*values} - {*charts})]
            self._metrics.write(",".join(self._names) + "\n")
        for name in sorted(values.keys() - {*self._names} - self._left_out):
            self._left_out.add(name)
            if name.startswith("user/"):
                warn(f"{name} was not returned in the first iteration, so metrics.csv has no column for it. Return the "
                     "same names in every iteration.")
            elif name == "eval/return_mean":
                warn("metrics.csv has no columns for evaluations, because the run began without --eval-every. "
                     "TensorBoard and the tracker have them.")
            elif name.removeprefix("charts/") in self._run.cfg.info_metrics:
                warn(f"metrics.csv has no column for {name}, because the run began without it in --info-metrics. "
                     "TensorBoard and the tracker have it.")
        cells = [number(values.get(name, math.nan)) for name in self._names[3:]]
        self._metrics.write(f"{begin},{','.join(cells)}\n")

    def _write_episodes(self, finished: FinishedEpisodes, seconds: float) -> None:
        if not len(finished.ret):
            return
        rows, returns, lengths = finished.row.tolist(), finished.ret.tolist(), finished.length.tolist()
        self.episodes += len(returns)
        self._returns.extend(returns)
        self._lengths.extend(lengths)
        if self._players:
            rows = [self._players[row % len(self._players)] for row in rows]
        self._episode_file.write("".join(
            f"{step},{row},{number(ret)},{length},{seconds:.3f}\n"
            for step, row, ret, length in zip(finished.step.tolist(), rows, returns, lengths, strict=True)))

    def _write_events(self, step: int, values: dict[str, float], finished: FinishedEpisodes) -> None:
        self._events.scalars(step, values)
        if self._run.cfg.histograms and len(finished.ret):
            self._events.histogram(step, "charts/episodic_returns", finished.ret)
            self._events.histogram(step, "charts/episodic_lengths", finished.length)

    def _flush(self) -> None:
        self._metrics.flush()
        self._episode_file.flush()
        self._events.flush()
        self._flushed = perf_counter()


def summary_of(run: Run, clock: Clock, step: int, episodes: int, returns: Sequence[float],
               lengths: Sequence[int]) -> dict[str, Any]:
    """Return the content of summary.json.

    Means and standard deviations are those of the last 100 episodes, None if no episode has finished. Clock defines
    `sps` and `compile_seconds`; `wall_seconds` is the whole time.
    """
    return {"variant": run.variant, "env_id": run.cfg.env_id, "seed": run.cfg.seed, "framework": run.cfg.framework,
            "steps": step, "episodes": episodes,
            "episodic_return_mean": mean_or_none(returns),
            "episodic_return_std": float(np.std(returns)) if returns else None,
            "episodic_length_mean": mean_or_none(lengths),
            "episodic_length_std": float(np.std(lengths)) if lengths else None,
            "sps": clock.sps, "compile_seconds": clock.compile_seconds, "wall_seconds": clock.seconds}


def summary_from_state(run: Run, state: dict[str, Any]) -> dict[str, Any]:
    """Return the content of summary.json from the `Log.state()` that the last checkpoint of a finished run contains."""
    return summary_of(run, Clock(state["clock"]), state["step"], state["episodes"], state["last_returns"],
                      state["last_lengths"])


def mean_of(values: np.ndarray) -> float:
    """Return the mean, NaN of nothing. values.mean() takes twice as long."""
    return float(values.sum() / len(values)) if len(values) else math.nan


def mean_or_none(values: Sequence[float]) -> float | None:
    """Return the mean, None of nothing."""
    return sum(values) / len(values) if values else None


def number(value: float) -> str:
    """Write a number with nine digits, enough to distinguish any two float32; nothing for NaN."""
    return f"{value:.9g}" if not math.isnan(value) else ""


def hyperparameter_table(cfg: Config) -> str:
    """Return every field and its value as a Markdown table."""
    return "|param|value|\n|-|-|\n" + "\n".join(f"|{name}|{value}|" for name, value in asdict(cfg).items())
