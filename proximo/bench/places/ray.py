"""Runs on Ray: a cluster that is there, or one of its own on this machine. Only text travels to the nodes."""

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from proximo.bench.places.child import run_task
from proximo.bench.task import Ended, Handle, Task, Where, stopped_on_fault
from proximo.errors import UsageError, first_line, warn

if TYPE_CHECKING:
    from ray import ObjectRef

# Read when Ray is imported and by its processes when they start: it listens on 127.0.0.1 only, and its workers have the
# priority of this process (by default niceness 15, with which runs starve while other programs run).
OWN_CLUSTER = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}


class RayHandle:
    """A task of Ray."""

    def __init__(self, ref: "ObjectRef[Any]") -> None:
        self._ref = ref
        self.name = f"Ray task {ref.task_id().hex()[:16]}"

    def poll(self) -> Ended | None:
        """Return how the task has ended, None while it waits or runs."""
        import ray

        if not ray.wait([self._ref], timeout=0)[0]:
            return None
        try:
            return Ended(ray.get(self._ref))
        except ray.exceptions.RayTaskError as error:
            return Ended(1, str(error.cause))
        except ray.exceptions.RayError as error:  # the worker or the node was lost, memory ran out, or it was stopped
            return Ended(None, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")

    def stop(self) -> None:
        """Interrupt the task, which ends its process in order."""
        self._cancel(force=False)

    def kill(self) -> None:
        """Kill the worker; its process ends with it."""
        self._cancel(force=True)

    def _cancel(self, force: bool) -> None:
        import ray

        ray.cancel(self._ref, force=force)


class RayPlace:
    """A Ray cluster.

    Args:
        where: The address of the cluster, and the resources of each run.

    Raises:
        UsageError: Nothing answers at the address, or no node of this machine's cluster has what a run needs.
    """

    def __init__(self, where: Where) -> None:
        self._where = where
        self._own = not (where.address or os.environ.get("RAY_ADDRESS"))
        with _variables(OWN_CLUSTER if self._own else {}):
            import ray

            self._started = not ray.is_initialized()
            if self._started:
                self._connect()

    def _connect(self) -> None:
        import ray

        handler = signal.getsignal(signal.SIGTERM)
        address = self._where.address or os.environ.get("RAY_ADDRESS", "")
        try:
            _check_answers(address)
            ray.init(address=self._where.address or None, include_dashboard=False if self._own else None,
                     log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, OverflowError, RuntimeError) as error:
            raise UsageError(f"Ray could not be reached or started{f' at {address}' * bool(address)}: "
                             f"{first_line(error)}. Give --address HOST:PORT of the head of a cluster, with its token "
                             "if it has one (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN), or leave it out to use this "
                             "machine.") from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray has put its own in its place

    def submit(self, tasks: Sequence[Task]) -> list[Handle]:
        """Hand over tasks. Ray does not retry them: it does not know their progress, nor ends when memory runs out."""
        import ray

        where, handles = self._where, list[Handle]()
        play: Any = ray.remote(run_task)
        with stopped_on_fault(handles):
            for task in tasks:
                needs = {"CPU": (where.threads or 1) * task.processes, "GPU": where.job_gpus * task.processes,
                         "memory": where.memory_bytes}
                self._check_room(needs)
                handles.append(RayHandle(play.options(
                    num_cpus=needs["CPU"], num_gpus=needs["GPU"], memory=needs["memory"] or None, max_retries=0,
                    scheduling_strategy="SPREAD", name=task.run_dir).remote(*task)))
        return handles

    def recover(self, name: str) -> None:
        """Tasks end with the benchmark that has started them."""

    def close(self) -> None:
        """Disconnect, and end a cluster of its own."""
        import ray

        if self._started:
            ray.shutdown()

    def _check_room(self, needs: dict[str, float]) -> None:
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if any(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes):
            return
        most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in needs}
        text = ", ".join(f"{needs[name]:g} {name} (largest node: {most[name]:g})" for name in needs if needs[name])
        if self._own:
            raise UsageError(f"A run needs {text}, which this machine does not have. Reduce --job-threads, --job-gpus "
                             "or --job-memory.")
        warn(f"A run needs {text}: it waits until a node joins that has it.")


def _check_answers(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT, for which Ray itself would wait for minutes."""
    if found := re.fullmatch(r"\[?([\w.:-]+?)\]?:(\d+)", address):
        socket.create_connection((found[1], int(found[2])), timeout=10).close()


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that are not set yet, and remove them at the end."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
