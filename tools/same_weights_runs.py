"""Run the cases of same_weights.py in child processes that know one checkout only."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from same_weights_cases import ITERATIONS, Case
from same_weights_digests import checkpoints, digest_run, runs_in

TOOLS = Path(__file__).resolve().parent
START_LIMIT = 120  # seconds until a worker has imported the package
GRACE = 10  # seconds that a rank may take to end after another one has failed
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "XLA_FLAGS")
SITECUSTOMIZE = '''"""Forget editable installs: the package is the one on PYTHONPATH, or it is not found."""
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
'''
Process = subprocess.Popen[str]
LIVE: set[Process] = set()  # every child, so that all can be ended at once
STOPPED = threading.Event()  # set once all were ended: no more are started


class ForeignCodeError(Exception):
    """A module of the package came from outside the checkout that was to be run."""


class Side(NamedTuple):
    """One of the two checkouts."""

    label: str
    root: Path  # holds the package
    work: Path  # current folder of its processes; runs and logs go there


def environment(side: Side, place: str) -> dict[str, str]:
    """Return the environment variables of the processes of a place: the checkout's package, one thread, no GPU."""
    site = side.work / "site"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(SITECUSTOMIZE)
    shutil.copy(TOOLS / "same_weights_envs.py", site)
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCHER}
    kept["PYTHONPATH"] = os.pathsep.join(map(str, (site, side.root)))
    kept |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    kept |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    if place.endswith("-mesh"):
        kept["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    return kept


def spawn(side: Side, place: str, words: list[str], log: Path, talks: bool) -> Process:
    """Start Python with `words` in a session of its own, what it prints in `log`; one that talks has two pipes."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as file:
        process = subprocess.Popen([sys.executable, *words], cwd=side.work, env=environment(side, place), text=True,
                                   stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                                   stdout=subprocess.PIPE if talks else file, stderr=file, start_new_session=True)
    LIVE.add(process)
    if STOPPED.is_set():
        end(process)
    return process


def end(process: Process) -> None:
    """Kill a child with all of its own children."""
    LIVE.discard(process)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def end_all() -> None:
    """Kill every child that is left, and every one that is started from now on."""
    STOPPED.set()
    for process in list(LIVE):
        end(process)


class Group:
    """The persistent processes of one checkout and place: one, or one a rank. They start when first needed."""

    def __init__(self, side: Side, place: str) -> None:
        self.side, self.place = side, place
        self.ranks = 2 if place.endswith("-x2") else 1
        self.workers: list[Process] = []

    def run(self, words: list[str], log: Path, limit: float) -> int | None:
        """Run a command line of Proximo; return its exit code, None where it crashed or took longer than `limit`."""
        if self.place.endswith("-run"):
            return self._torchrun(words, log, limit)
        if not self.workers:
            self._start()
        logs = [log.with_suffix(f".rank{rank}.log") if rank else log for rank in range(self.ranks)]
        shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        own = [shared | {"RANK": str(k), "LOCAL_RANK": str(k)} if self.ranks > 1 else {} for k in range(self.ranks)]
        answers = self._ask([{"words": words, "log": str(path), "env": env} for path, env in zip(logs, own)], limit)
        if answers is None:
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "a") as file:
                file.write(f"\nsame_weights: the process ended, or took longer than {limit:.0f} seconds\n")
            self.close()
            return None
        self._check(answers)
        return next((answer["code"] for answer in answers if answer["code"]), 0)

    def close(self) -> None:
        """End the processes; the next run starts others."""
        for process in self.workers:
            end(process)
        self.workers = []

    def _start(self) -> None:
        log = self.side.work / "logs" / f"{self.place}.start.log"
        words = ["-P", str(TOOLS / "same_weights_worker.py"), str(self.side.root)]
        self.workers = [spawn(self.side, self.place, words, log, True) for _ in range(self.ranks)]
        answers = self._receive(START_LIMIT)
        if answers is None:
            raise ForeignCodeError(f"the package of {self.side.label} does not start:\n{log.read_text()[-2000:]}")
        self._check(answers)

    def _check(self, answers: list[dict[str, Any]]) -> None:
        strays = {file for answer in answers for file in answer["strays"]}
        if strays:
            raise ForeignCodeError(f"{self.side.label} was to be run from {self.side.root}, but loaded {strays}")

    def _ask(self, requests: list[dict[str, Any]], limit: float) -> list[dict[str, Any]] | None:
        try:
            for process, request in zip(self.workers, requests):
                print(json.dumps(request), file=process.stdin, flush=True)
        except BrokenPipeError:
            return None
        return self._receive(limit)

    def _receive(self, limit: float) -> list[dict[str, Any]] | None:
        """Wait for one line of each process; a rank that fails shortens the wait for the others."""
        pipes = {process.stdout: rank for rank, process in enumerate(self.workers) if process.stdout}
        answers: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + limit
        while pipes:
            ready, _, _ = select.select(list(pipes), [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return None
            for pipe in ready:
                rank, line = pipes.pop(pipe), pipe.readline()
                answers[rank] = json.loads(line) if line else {"code": None}
                if answers[rank].get("code", 0) != 0:
                    deadline = min(deadline, time.monotonic() + GRACE)
        found = [answers[rank] for rank in range(self.ranks)]
        return None if any("strays" not in answer for answer in found) else found

    def _torchrun(self, words: list[str], log: Path, limit: float) -> int | None:
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "proximo", *words]
        process = spawn(self.side, self.place, launch, log, False)
        try:
            code = process.wait(limit)
            return code if code >= 0 else None
        except subprocess.TimeoutExpired:
            return None
        finally:
            end(process)


def free_port() -> str:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def play(case: Case, group: Group) -> dict[str, Any]:
    """Run a case, then go on with a copy of it from the checkpoint before its last.

    Returns:
        `code` and `said` of the command that failed (0 and nothing without one), the digests of the `fresh` and the
        `resumed` run, and the `seconds` it took.
    """
    began, work = time.monotonic(), group.side.work
    result: dict[str, Any] = {"code": 0, "said": "", "fresh": None, "resumed": None, "words": case.words("")}
    home = f"runs/{case.name}"
    asks = any((group.side.root / "proximo/envs").rglob("imports.py"))  # before importing what a run names
    commands = {"fresh": case.words(f"{home}/fresh"),
                "resumed": ["resume", f"{home}/resumed", *["--allow-import", "same_weights_envs"] * asks]}
    for part, words in commands.items() if case.resumes else [("fresh", commands["fresh"])]:
        log = work / "logs" / f"{case.name}.{part}.log"
        try:
            if part == "resumed":
                cut_back(work / home / "fresh", work / home / "resumed")
            result["code"] = group.run(words, log, case.limit)
            if result["code"] != 0:
                result["said"] = f"{part}: {last_words(log)}"
                break
            result[part] = digest_run(work / home / part)
        except (OSError, ValueError, SafetensorError) as error:
            result |= {"code": None, "said": f"{part}: left no whole run ({error})"}
            break
    return result | {"seconds": time.monotonic() - began}


def last_words(log: Path) -> str:
    """Return what a command that failed said of itself, else the last line that it printed."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(("proximo: ", "same_weights: "))]
    return " / ".join(own) if own and "Traceback (most recent call last):" not in lines else (lines or ["nothing"])[-1]


def cut_back(fresh: Path, copy: Path) -> None:
    """Copy a command's runs as they would be if it had been killed after the last but one iteration."""
    shutil.copytree(fresh, copy)
    for run in runs_in(copy).values():
        shutil.rmtree(run / "model")
        (run / "summary.json").unlink()
        for path in checkpoints(run)[ITERATIONS - 1:]:
            shutil.rmtree(path)
