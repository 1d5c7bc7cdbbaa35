"""How far a run is, for a person: a bar on a terminal, a plain line now and then where the output is no terminal."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

REFRESH_SECONDS = 0.25
LINE_SECONDS = 10.0


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s` or `2 h 05 min`."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole // 60 % 60:02d} min"


class Meter:
    """Progress of one run, on standard output unless another console is given."""

    def __init__(self, title: str, num_iterations: int, console: Console | None = None):
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._title, self._num_iterations = title, num_iterations
        self._shown = time.perf_counter()
        self._waiting: tuple[int, int, float | None, float, float] | None = None
        self._bar: Progress | None = None
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[numbers]}"))
            self._bar = Progress(*columns, console=self._console, auto_refresh=False)
            self._task = self._bar.add_task(title, total=num_iterations, numbers="starting")
            self._bar.start()
        self._every = REFRESH_SECONDS if self._bar else LINE_SECONDS

    def update(self, iteration: int, step: int, ret: float | None, sps: float, left: float) -> None:
        """`ret`: mean return of the last episodes, None where none has finished; `left`: seconds to go. Free of cost
        until it is time to show something."""
        now = time.perf_counter()
        self._waiting = (iteration, step, ret, sps, left)
        if now - self._shown >= self._every:
            self._shown = now
            self._show()

    def close(self) -> None:
        """Shows the last state and gives the terminal back."""
        if self._waiting:
            self._show()
        if self._bar:
            self._bar.stop()
            self._bar = None

    def _show(self) -> None:
        iteration, step, ret, sps, left = self._waiting
        self._waiting = None
        numbers = f"step {step:,}  return {'none yet' if ret is None else f'{ret:.2f}'}  SPS {sps:,.0f}"
        ending = f"{duration(left)} left" if iteration < self._num_iterations else "done"
        if self._bar:
            self._bar.update(self._task, completed=iteration, numbers=f"{numbers}  {ending}")
            self._bar.refresh()
        else:
            share = 100 * iteration / self._num_iterations
            self._print(f"{self._title}  {share:.0f} %  {numbers}  {ending}\n")

    def _print(self, line: str) -> None:
        try:
            self._console.file.write(line)
            self._console.file.flush()
        except OSError:  # whoever read the output is gone: the run goes on in silence
            self._every = float("inf")
