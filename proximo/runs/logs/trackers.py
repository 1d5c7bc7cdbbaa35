"""Services that show the curves of many runs, behind one call: Weights & Biases, MLflow and Trackio.

Each is an optional package that is imported when a run starts. It reads its address and its credentials from its own
environment variables, never from the files of a run.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Literal, Protocol

from proximo.config import Config
from proximo.errors import UsageError, first_line, warn
from proximo.runs.folder.run import Run

End = Literal["FINISHED", "FAILED", "KILLED"]
"""How a run has ended, as MLflow names it: by itself, by an error, by a signal."""
EXIT_CODES: dict[End, int] = {"FINISHED": 0, "FAILED": 1, "KILLED": 255}  # what Weights & Biases shows in the same way


def end_of(error: object, exit_status: int) -> End:
    """Return how a run has ended: with this exception or None, and with the exit status of its command."""
    return "FAILED" if isinstance(error, Exception) else "KILLED" if exit_status else "FINISHED"


class Tracker(Protocol):
    """A run of a service."""

    id: str
    """what a resume gives to `start_tracker`"""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send metrics, none of which is NaN, without waiting for the service."""

    def finish(self, end: End) -> None:
        """Send what is left, and how the run has ended."""


class SafeTracker:
    """A Tracker whose first fault is a warning; later ones are ignored, because training does not need it.

    Args:
        tracker: The tracker.
        name: Its name, for the warning.

    Attributes:
        end: How the run has ended; `finish` says so to the service.
    """

    def __init__(self, tracker: Tracker, name: str) -> None:
        self._tracker, self._name, self.id = tracker, name, tracker.id
        self.end: End = "FINISHED"
        self._warned = False

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._try(lambda: self._tracker.log(values, step))

    def finish(self) -> None:
        self._try(lambda: self._tracker.finish(self.end))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # of the client, of its transport, of its disk
            if not self._warned:
                warn(f"The tracker {self._name} has failed ({first_line(error)}). Training continues; metrics.csv has "
                     "all metrics.")
            self._warned = True


class RunTracker:
    """A Tracker: a run of Weights & Biases, or of Trackio, which has the same methods.

    Args:
        run: The run.
        identity: What finds it again.
        step_name: The metric that holds the step; "": none.
        takes_code: Whether `finish` takes an exit code.
    """

    def __init__(self, run: Any, identity: str, step_name: str = "", takes_code: bool = False) -> None:
        self._run, self.id, self._step_name, self._takes_code = run, identity, step_name, takes_code

    def log(self, values: Mapping[str, float], step: int) -> None:
        with_step = {self._step_name: step} if self._step_name else {}
        self._run.log({**values, **with_step}, step=step)

    def finish(self, end: End) -> None:
        self._run.finish(**{"exit_code": EXIT_CODES[end]} if self._takes_code else {})


def tracker_name(cfg: Config) -> str:
    """Return the service that a run is logged to, "" for none."""
    return "wandb" if cfg.track else cfg.logger if cfg.logger in STARTERS else ""


def start_tracker(run: Run, ids: Mapping[str, str]) -> SafeTracker | None:
    """Start a run of the service that the configuration names; None if it names none.

    Args:
        run: The run of Proximo.
        ids: The id that each service gave to the run before; that of the named one is continued.

    Raises:
        UsageError: The package is not installed, or the service does not start.
    """
    name = tracker_name(run.cfg)
    return SafeTracker(STARTERS[name](run, ids.get(name)), name) if name else None


def start_wandb(run: Run, run_id: str | None) -> Tracker:
    """Start a run of Weights & Biases, or continue the one with `run_id`; raises what `start_tracker` raises."""
    cfg = run.cfg
    try:
        import wandb
    except ImportError:
        raise UsageError('--track needs Weights & Biases: pip install "proximo[wandb]"') from None
    try:
        started = wandb.init(project=cfg.wandb_project_name, entity=cfg.wandb_entity or None, name=run.folder.name,
                             group=group_of(run), dir=str(run.folder), config=hyperparameters(run), id=run_id,
                             resume="allow" if run_id else None,  # create_new: several runs train in one process
                             settings=wandb.Settings(console="off", reinit="create_new"))
    except (wandb.Error, OSError, RuntimeError) as error:  # the last two without a home folder
        raise UsageError(f"Weights & Biases did not start ({first_line(error)}). Run `wandb login` once, or set "
                         "WANDB_MODE=offline.") from error
    started.define_metric("*", step_metric="global_step")
    return RunTracker(started, str(started.id), "global_step", takes_code=True)


def start_trackio(run: Run, name: str | None) -> Tracker:
    """Start a run of Trackio, or continue the one with `name`; raises what `start_tracker` raises."""
    try:
        import trackio
    except ImportError:
        raise UsageError('--logger trackio needs Trackio: pip install "proximo[trackio]"') from None
    try:
        started = trackio.init(project=run.cfg.wandb_project_name, name=name or run.folder.name, group=group_of(run),
                               config=hyperparameters(run), resume="allow" if name else "never", embed=False,
                               auto_log_gpu=False, auto_log_cpu=False)
    except Exception as error:  # of its HTTP client, of the Hub, of its arguments
        raise UsageError(f"Trackio did not start ({first_line(error)}). Check TRACKIO_SPACE_ID and TRACKIO_SERVER_URL; "
                         "without them, it writes to the home folder.") from error
    return RunTracker(started, str(started.name))


def start_mlflow(run: Run, run_id: str | None) -> Tracker:
    """Start a run of MLflow, or continue the one with `run_id`; raises what `start_tracker` raises."""
    from proximo.runs.logs.mlflow_run import start_run

    return start_run(run.cfg.wandb_project_name, run.folder.name, group_of(run), hyperparameters(run), run_id)


STARTERS = {"wandb": start_wandb, "mlflow": start_mlflow, "trackio": start_trackio}


def group_of(run: Run) -> str:
    """Return the name that the runs of one setting share."""
    return f"{run.cfg.exp_name or run.variant}/{run.cfg.env_id}"


def hyperparameters(run: Run) -> dict[str, Any]:
    """Return every field of the configuration, and the name of the variant."""
    return asdict(run.cfg) | {"variant": run.variant}
