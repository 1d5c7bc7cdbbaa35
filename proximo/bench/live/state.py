"""What a run is doing: running, finished, stopped or failed, how far it is, and how long it still takes."""

import math
from typing import NamedTuple

from proximo.bench.continuing import how_to_continue, was_not_finite
from proximo.bench.live.follow import Curves
from proximo.bench.progress import last_step
from proximo.bench.results import RunResult, steps_of
from proximo.bench.status import SILENT, process_ended, seconds_since, silent_seconds
from proximo.runs.folder.lock import NAME, holder


class State(NamedTuple):
    """The state of one run."""

    word: str
    """running, silent, finished, stopped or failed"""
    why: str
    """one sentence, or an empty string"""
    step: int
    of: int
    """environment steps so far, and when training ends"""
    sps: float | None
    """environment steps per second without set-up"""
    left: float | None
    """seconds until a running run ends"""
    age: float | None
    """seconds since metrics.csv was written; None: there is none"""
    shares: dict[str, float]
    """shares of the time of the newest iterations by part: environment, acting, learning; empty if none is logged"""

    @property
    def share(self) -> float:
        """Return the share of all steps that are done, 0 to 1."""
        return 1.0 if self.word == "finished" else min(1.0, self.step / self.of) if self.of else 0.0


def run_state(run: RunResult, curves: Curves) -> State:
    """Return the state of a run from its files; see `State`."""
    age = seconds_since(run.path / "metrics.csv")
    word, why = _word(run, silent_seconds(run.path))
    step, of = curves.step, run.summary.get("steps") or last_step(run.config, steps_of(run))
    speeds = (curves.last("charts/SPS"), run.summary.get("sps"))
    sps = next((float(speed) for speed in speeds if speed and 0 < speed < math.inf), None)  # a file may be damaged
    left = max(0, of - step) / sps if sps and word == "running" else None
    return State(word=word, why=why, step=step, of=of, sps=sps, left=left, age=age, shares=time_shares(curves))


def time_shares(curves: Curves) -> dict[str, float]:
    """Return the means of the columns time/PART over the newest lines of a run, by part."""
    values = {name: [row[name] for row in curves.recent if name in row] for name in curves.names
              if name.startswith("time/")}
    return {name.removeprefix("time/"): sum(found) / len(found) for name, found in values.items() if found}


def _word(run: RunResult, age: float | None) -> tuple[str, str]:
    if run.failure:
        return "failed", "The last lines of its log are below."
    if run.summary:
        return "finished", ""
    process = holder(run.path)
    if not (run.path / NAME).exists():
        return "failed" if was_not_finite(run.path) else "stopped", how_to_continue(run.path)
    if process_ended(process):
        return "stopped", f"{process[:1].upper()}{process[1:]} has ended without writing a summary, as after SIGKILL."
    if age is not None and age > SILENT:
        return "silent", f"{process or 'A process'} holds its lock, but has written nothing for {age / 60:.0f} minutes."
    return "running", process
