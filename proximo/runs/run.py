"""The life of a run: its folder, log, checkpoints, signals and end. The only place that watches training."""

import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from proximo.config import Config
from proximo.errors import FilesError, PeerError, ProximoError, UsageError, notify
from proximo.facts import fixed_on_resume, refused_changes
from proximo.models.model import save_model
from proximo.runs.checkpoint import newest_checkpoint, save_checkpoint
from proximo.runs.command_line import command_line
from proximo.runs.log import Log, files_of
from proximo.types import Iteration

VERSIONED = ("torch", "jax", "numpy", "gymnasium", "ale-py", "mujoco", "dm-control", "envpool", "brax", "pettingzoo")


class RunRecord(NamedTuple):
    """What a run's config.json says of it."""

    cfg: Config
    variant: str
    resume_with: str  # how it goes on where it has parts of its own, else empty
    processes: int


class Signals:
    """SIGINT and SIGTERM ask for an end after the current iteration; a second one ends at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread is told of signals
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number


def run_folder(cfg: Config) -> Path:
    """Where a new run goes: cfg.run_dir, or runs/ENV__NAME__SEED__TIME. UsageError where a run is there already."""
    name = f"{cfg.env_id.replace('/', '-').replace(':', '-')}__{cfg.exp_name}__{cfg.seed}__{int(time.time())}"
    folder = Path(cfg.run_dir) if cfg.run_dir else Path("runs") / name
    if os.environ.get("RANK", "0") == "0" and (folder / "config.json").exists():
        raise UsageError(f"{folder} holds a run already; continue it with `proximo resume {folder}`, or name another "
                         "folder with --run-dir")
    return folder


def write_config(folder: Path, cfg: Config, variant: str, resume_with: str = "") -> None:
    """Everything needed to repeat the run: variant, hyper-parameters, versions, command; by the first process only.
    `resume_with` is how a run goes on that has an environment, network or loss of its own. Raises FilesError."""
    if os.environ.get("RANK", "0") != "0":
        return
    content = {"variant": variant, "config": asdict(cfg), "versions": versions(), "resume_with": resume_with,
               "processes": int(os.environ.get("WORLD_SIZE", "1")), "command": command_line(),
               "machine": f"{platform.platform()}, {os.cpu_count()} cores"}
    write_json(folder / "config.json", content)


def forget_run(folder: Path) -> None:
    """Take back the config.json of a run that could not begin, and its folder if nothing else is in it."""
    if not (folder / "metrics.csv").exists() and (folder / "config.json").exists():
        (folder / "config.json").unlink()
        if not any(folder.iterdir()):
            folder.rmdir()


def write_json(path: Path, content: dict) -> None:
    """Written beside, then renamed: whole or not at all. Raises FilesError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.tmp")
        beside.write_text(json.dumps(content, indent=1) + "\n")
        beside.replace(path)
    except OSError as error:
        raise FilesError(f"{path} could not be written ({error.strerror}); make room or name another "
                         "--run-dir") from error


def versions() -> dict[str, str]:
    """Of Python, Proximo and the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in ("proximo", *VERSIONED):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def read_config(folder: Path, config_class: Callable[[str], type[Config]]) -> RunRecord:
    """What is recorded of a run; `config_class(variant)` gives the class of its configuration."""
    try:
        content = json.loads((folder / "config.json").read_text())
        variant, values = content["variant"], content["config"]
    except FileNotFoundError as error:
        raise UsageError(f"{folder} is no run: it holds no config.json") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FilesError(f"{folder / 'config.json'} cannot be read ({error})") from error
    return RunRecord(config_from(values, config_class(variant)), variant, content.get("resume_with", ""),
                     content.get("processes", 1))


def config_from(values: dict, kind: type[Config]) -> Config:
    """A configuration from JSON; fields that this version does not know are said and left out."""
    known = {f.name for f in fields(kind)}
    if extra := sorted(values.keys() - known):
        notify(f"the configuration names fields that this version does not know: {', '.join(extra)}")
    kept: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items() if name in known}
    return kind(**kept)


def continued(folder: Path, cfg: Config, processes: int = 1) -> dict | None:
    """The newest whole checkpoint of a run; None where it was ended before its first. UsageError with the differences
    where it is of another environment, network or arithmetic. `processes`: how many trained it, said where others go on
    """
    if cfg.num_seeds > 1:
        raise UsageError(f"num_seeds={cfg.num_seeds}: runs go on with the seeds that they have; leave --num-seeds out")
    kept = newest_checkpoint(folder)
    if kept is None:
        return None
    if processes != int(os.environ.get("WORLD_SIZE", "1")) and kept["state"]["iteration"] < cfg.num_iterations:
        notify(f"{folder} was trained by {processes} process{'es' * (processes > 1)}, which is not how many go on now: it "
            "learns on, but draws other episodes than without the interruption")
    if refused := refused_changes(cfg, kept["fixed"]):
        raise UsageError("\n".join(refused))
    for name, now in versions().items():
        if name in kept["versions"] and kept["versions"][name] != now:
            notify(f"the checkpoint was made with {name} {kept['versions'][name]}, now it is {now}: "
                "weights may differ in the last bits from an uninterrupted run")
    return kept


class Watcher:
    """What follows one run: its log, its checkpoints, its videos. Only the first process writes anything, and nothing
    before the first iteration is there: a run that cannot go on stays as it was. `begin` is called then."""

    def __init__(self, folder: Path, cfg: Config, variant: str, record: Callable[[Path, int], None] | None = None,
                 kept: dict | None = None, begin: Callable[[], None] | None = None):
        self.folder, self.cfg, self._variant, self._record, self._kept = folder, cfg, variant, record, kept
        self._begin = begin
        self._started = time.perf_counter()
        self._log: Log | None = None

    def watch(self, it: Iteration, signals: Signals) -> None:
        """Log an iteration, and save where it is due: at a checkpoint, at the end, and after a signal where that is
        exact."""
        if os.environ.get("RANK", "0") != "0":
            return
        if self._log is None:
            with files_of(self.folder):
                (self.folder / "summary.json").unlink(missing_ok=True)  # of a run that was finished and is made longer
            if self._begin is not None:
                self._begin()
            self._log = Log(self.folder, self.cfg, self.cfg.num_iterations, it.envs.players,
                            self._kept["log"] if self._kept else None, self._started)
        self._log.iteration(it.iteration, it.steps, it.stats, it.finished)
        leaving = signals.received is not None and it.keeps_state
        last = it.iteration == self.cfg.num_iterations
        due = last or it.iteration % self.cfg.checkpoint_every == 0
        if leaving or due:
            save(self.folder, self.cfg, self._variant, it, self._log)
        if self._record is not None and not leaving and (last or self._video_due(it.iteration, due)):
            if not due:
                save_model(self.folder / "model", self._variant, self.cfg, it.envs, it.weights())
            self._record(self.folder, it.steps)

    def _video_due(self, iteration: int, checkpoint: bool) -> bool:
        """At every checkpoint, or where the variant names a number of steps of each environment, after so many."""
        every = self.cfg.video_steps
        if not every:
            return checkpoint
        return iteration * self.cfg.num_steps // every > (iteration - 1) * self.cfg.num_steps // every

    def close(self) -> None:
        """Hand everything to the disk."""
        if self._log is not None:
            self._log.close()


def follow(watchers: Sequence[Watcher], iterations: Iterator[Sequence[Iteration | None]]) -> int:
    """Train to the end: `iterations` gives one Iteration a watcher, None for one that has stopped. Returns 0, or 128 +
    the signal that ended it. Raises PeerError where one of several processes is lost."""
    with Signals() as signals:
        try:
            for its in iterations:
                now = 0
                for watcher, it in zip(watchers, its, strict=True):
                    if it is not None:
                        watcher.watch(it, signals)
                        now = it.iteration
                if signals.received is not None and now < watchers[0].cfg.num_iterations:
                    folder = watchers[0].folder.parent if watchers[1:] else watchers[0].folder
                    notify(f"stopped by {signal.Signals(signals.received).name} after iteration {now}; "
                        f"continue with: {resume_line(folder)}")
                    return 128 + signals.received
        except (RuntimeError, ValueError) as error:
            if isinstance(error, ProximoError) or not of_another_process(error):
                raise
            raise PeerError("another process of this run has ended or cannot be reached "
                            f"({str(error).splitlines()[0]}); continue with: "
                            f"{resume_line(watchers[0].folder)}") from error
        finally:
            for watcher in watchers:
                watcher.close()
            iterations.close()  # type: ignore[attr-defined]
    return 0


def of_another_process(error: Exception) -> bool:
    """Whether torch's or JAX's means of speaking to other processes broke off."""
    means = ("gloo", "nccl", "connection", "coordination")
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and any(name in str(error).lower() for name in means)


def resume_line(folder: Path) -> str:
    """The command that goes on with a run, by as many processes as there are now."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    start = f"torchrun --standalone --nproc_per_node={processes} -m " if processes > 1 else ""
    return f"{start}proximo resume {folder}"


def singly(iterations: Generator) -> Iterator[list[Iteration | None]]:
    """The iterations of one run, as follow() takes those of several."""
    try:
        for it in iterations:
            yield [it]
    finally:
        iterations.close()


def save(folder: Path, cfg: Config, variant: str, it: Iteration, log: Log) -> None:
    """The model as it is now, at the end the summary, then the checkpoint: whenever it is killed, a run whose last
    checkpoint is there lacks nothing."""
    tree = {"state": it.snapshot(), "log": log.state(), "versions": versions(),
            "fixed": fixed_on_resume(cfg)}
    save_model(folder / "model", variant, cfg, it.envs, it.weights())
    if it.iteration == cfg.num_iterations:
        write_json(folder / "summary.json", log.summary())
    save_checkpoint(folder, it.iteration, tree, cfg.keep_checkpoints)
