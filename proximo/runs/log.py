"""What a run writes, in one call: metrics.csv, episodes.csv, TensorBoard, Weights & Biases and the console."""

import json
import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.errors import FilesError, UsageError, notify
from proximo.runs.console import Meter
from proximo.runs.events import EventFile
from proximo.types import FinishedEpisodes

FLUSH_SECONDS = 1.0
LAST_EPISODES = 100


@contextmanager
def files_of(folder: Path) -> Iterator[None]:
    """Turns a full disk, a missing right or a vanished folder into a FilesError that names the folder."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise FilesError(f"the log in {folder} cannot be written ({reason}); make room or restore the folder, then "
                         f"`proximo resume {folder}` continues from the last checkpoint") from error


class CsvFile:
    """A CSV file that grows by whole lines. `keep` bytes of an existing file stay; the rest is cut off."""

    def __init__(self, path: Path, keep: int = 0):
        self.path = path
        self._file = open(path, "ab", buffering=1 << 17)  # noqa: SIM115
        self.size = keep
        if keep and path.stat().st_size < keep:
            notify(f"{path} is shorter than when the checkpoint was written; lines are missing from it")
            self.size = path.read_bytes().rfind(b"\n") + 1
        if path.is_file():
            self._file.truncate(self.size)

    def header(self) -> list[str]:
        """The names in the first line; empty for a new file."""
        if not self.size:
            return []
        with open(self.path) as file:
            return file.readline().strip().split(",")

    def write(self, lines: str) -> None:
        data = lines.encode()
        self.size += len(data)
        self._file.write(data)

    def flush(self) -> None:
        """Raises OSError when the disk is full or the file is gone from its folder."""
        self._file.flush()
        self.path.stat()

    def close(self) -> None:
        self._file.close()


class Log:
    """All that follows a run. `folder` exists and holds config.json; `resume` is the `state()` of a checkpoint.
    `started` is the `time.perf_counter()` at which this process began to train; without it, now.

    Only the first process makes one. Raises FilesError where the folder cannot be written, UsageError where Weights &
    Biases is wanted and cannot be had.
    """

    def __init__(self, folder: Path, cfg: Config, num_iterations: int, players: tuple[str, ...] = (),
                 resume: dict | None = None, started: float | None = None):
        kept = resume or {}
        self._folder, self._cfg, self._num_iterations, self._players = folder, cfg, num_iterations, players
        self._step, self._first = kept.get("step", 0), kept.get("iteration", 0)
        self._iteration = self._first
        self._episodes = kept.get("episodes", 0)
        self._returns = deque(kept.get("last_returns", ()), LAST_EPISODES)
        self._lengths = deque(kept.get("last_lengths", ()), LAST_EPISODES)
        with files_of(folder):
            self._variant = json.loads((folder / "config.json").read_text())["variant"]
            self._metrics = CsvFile(folder / "metrics.csv", kept.get("metrics_bytes", 0))
            self._episode_file = CsvFile(folder / "episodes.csv", kept.get("episodes_bytes", 0))
            self._events = EventFile(folder / "tensorboard", self._step + 1)
            self._names = self._metrics.header()
            if not self._episode_file.size:
                self._episode_file.write(f"step,{'player' if players else 'row'},return,length,seconds\n")
            self._events.text("hyperparameters", hyperparameter_table(cfg))
        self._wandb = start_wandb(cfg, folder, self._variant, kept.get("wandb_id"))
        self._meter = Meter(cfg.env_id, num_iterations) if cfg.logger != "none" else None
        self._seconds_before = kept.get("seconds", 0.0)
        self._flushed = time.perf_counter()
        self._start = self._flushed if started is None else started

    def iteration(self, iteration: int, step: int, metrics: dict[str, float], finished: FinishedEpisodes) -> None:
        """Writes one line of metrics and the episodes that ended; `step` counts decisions of the whole run.
        Names that the first iteration did not have are left out of metrics.csv. Costs about 0.1 ms."""
        now = time.perf_counter()
        seconds = self._seconds_before + now - self._start
        self._iteration, self._step = iteration, step
        values = self._charts(step / seconds, finished) | {name: float(value) for name, value in metrics.items()}
        with files_of(self._folder):
            self._write_metrics(iteration, step, seconds, values)
            self._write_episodes(finished, seconds)
            self._events.scalars(step, values)
            if self._variant == "compact" and len(finished.ret):
                self._events.histogram(step, "charts/episodic_returns", finished.ret)
                self._events.histogram(step, "charts/episodic_lengths", finished.length)
            if now - self._flushed > FLUSH_SECONDS:
                self._flush()
        if self._wandb:
            self._wandb.log({k: v for k, v in values.items() if not math.isnan(v)} | {"global_step": step}, step=step)
        if self._meter:
            left = (now - self._start) / (iteration - self._first) * (self._num_iterations - iteration)
            self._meter.update(iteration, step, self._last_mean(self._returns), step / seconds, left)

    def state(self) -> dict:
        """What a checkpoint keeps, ready for JSON; everything logged so far is handed to the disk first."""
        with files_of(self._folder):
            self._flush()
        return {"metrics_bytes": self._metrics.size, "episodes_bytes": self._episode_file.size,
                "seconds": self._seconds(), "step": self._step, "iteration": self._iteration,
                "episodes": self._episodes, "last_returns": list(self._returns), "last_lengths": list(self._lengths),
                "wandb_id": self._wandb.id if self._wandb else None}

    def summary(self) -> dict[str, Any]:
        """The content of summary.json; means and deviations are of the last 100 episodes, None where none finished."""
        seconds = self._seconds()
        return {"variant": self._variant, "env_id": self._cfg.env_id, "seed": self._cfg.seed,
                "framework": self._cfg.framework, "steps": self._step, "episodes": self._episodes,
                "episodic_return_mean": self._last_mean(self._returns),
                "episodic_return_std": float(np.std(self._returns)) if self._returns else None,
                "episodic_length_mean": self._last_mean(self._lengths),
                "episodic_length_std": float(np.std(self._lengths)) if self._lengths else None,
                "sps": self._step / seconds, "wall_seconds": seconds}

    def close(self) -> None:
        """Writes what waits and lets go of every file, also after a fault."""
        if self._meter:
            self._meter.close()
        if self._wandb:
            self._wandb.finish()
        with files_of(self._folder):
            try:
                self._metrics.close()
            finally:
                try:
                    self._episode_file.close()
                finally:
                    self._events.close()

    def _charts(self, sps: float, finished: FinishedEpisodes) -> dict[str, float]:
        """The means over the iteration's finished episodes (NaN where none), of each player too, and the speed."""
        charts = {"charts/episodic_return": mean_of(finished.ret), "charts/episodic_length": mean_of(finished.length)}
        for index, player in enumerate(self._players):
            mine = finished.row % len(self._players) == index
            charts[f"charts/episodic_return-{player}"] = mean_of(finished.ret[mine])
            charts[f"charts/episodic_length-{player}"] = mean_of(finished.length[mine])
        return charts | {"charts/SPS": float(int(sps))}

    def _write_metrics(self, iteration: int, step: int, seconds: float, values: dict[str, float]) -> None:
        if not self._names:
            names = sorted(values, key=lambda name: not name.startswith("charts/"))
            self._names = ["iteration", "global_step", "seconds", *names]
            self._metrics.write(",".join(self._names) + "\n")
        cells = [number(values.get(name, float("nan"))) for name in self._names[3:]]
        self._metrics.write(f"{iteration},{step},{seconds:.3f},{','.join(cells)}\n")

    def _write_episodes(self, finished: FinishedEpisodes, seconds: float) -> None:
        if not len(finished.ret):
            return
        rows, returns, lengths = finished.row.tolist(), finished.ret.tolist(), finished.length.tolist()
        self._episodes += len(returns)
        self._returns.extend(returns)
        self._lengths.extend(lengths)
        if self._players:
            rows = [self._players[row % len(self._players)] for row in rows]
        self._episode_file.write("".join(
            f"{step},{row},{number(ret)},{length},{seconds:.3f}\n"
            for step, row, ret, length in zip(finished.step.tolist(), rows, returns, lengths, strict=True)))

    def _flush(self) -> None:
        self._metrics.flush()
        self._episode_file.flush()
        self._events.flush()
        self._flushed = time.perf_counter()

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._start

    def _last_mean(self, values: deque) -> float | None:
        return sum(values) / len(values) if values else None


def mean_of(values: np.ndarray) -> float:
    """NaN where there is nothing."""
    return float(values.mean()) if len(values) else float("nan")


def number(value: float) -> str:
    """Nine digits, enough to tell any two float32 apart; blank for NaN."""
    return f"{value:.9g}" if not math.isnan(value) else ""


def hyperparameter_table(cfg: Config) -> str:
    """Every field and its value, as a Markdown table."""
    return "|param|value|\n|-|-|\n" + "\n".join(f"|{name}|{value}|" for name, value in asdict(cfg).items())


def start_wandb(cfg: Config, folder: Path, variant: str, run_id: str | None) -> Any:
    """A run of Weights & Biases, or None where it is not wanted; `run_id` continues an earlier one."""
    if not (cfg.track or cfg.logger == "wandb"):
        return None
    try:
        import wandb
    except ImportError:
        raise UsageError('--track needs Weights & Biases; pip install "proximo[wandb]"') from None
    try:
        run = wandb.init(project=cfg.wandb_project_name, entity=cfg.wandb_entity or None, name=folder.name,
                         group=f"{cfg.exp_name or variant}/{cfg.env_id}", config=asdict(cfg) | {"variant": variant},
                         dir=str(folder), id=run_id, resume="allow" if run_id else None,
                         settings=wandb.Settings(console="off"))
    except wandb.Error as error:
        raise UsageError(f"Weights & Biases did not start ({error}); `wandb login` once, or set WANDB_MODE=offline") \
            from error
    run.define_metric("*", step_metric="global_step")
    return run
