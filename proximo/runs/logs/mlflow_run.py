"""A run of MLflow. Its client waits for the server, so a thread sends the metrics."""

import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from proximo.errors import UsageError, first_line, warn

SEND_SECONDS = 2.0  # between two requests
MOST_METRICS, MOST_PARAMS, MOST_CHARACTERS = 1000, 100, 6000  # of one request, and of one parameter


class MlflowTracker:
    """Sends metrics to a run of MLflow; see Tracker (trackers.py).

    Args:
        client: The MlflowClient.
        run_id: The run.
    """

    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self.id = client, run_id
        self._sender = ThreadPoolExecutor(1)
        self._waiting: list[tuple[str, float, int, int]] = []
        self._sent = time.monotonic()
        self._warned = False

    def log(self, values: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        self._waiting += [(re.sub(r"[^\w./ -]", "_", name), value, now, step) for name, value in values.items()]
        if time.monotonic() - self._sent >= SEND_SECONDS:
            self._hand_over()

    def finish(self, end: str) -> None:
        self._hand_over()
        self._sender.submit(self._try, lambda: self._client.set_terminated(self.id, end))
        self._sender.shutdown()

    def _hand_over(self) -> None:
        self._sender.submit(self._try, partial(self._send, self._waiting))
        self._waiting, self._sent = [], time.monotonic()

    def _send(self, rows: list[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(*row) for row in rows]
        for i in range(0, len(metrics), MOST_METRICS):
            self._try(lambda part=metrics[i:i + MOST_METRICS]: self._client.log_batch(self.id, metrics=part))

    def _try(self, request: Any) -> None:
        """Call `request`. The first one that fails is a warning; training and the files of the run do not need it."""
        try:
            request()
        except Exception as error:  # of the client, of its transport, of its database
            if not self._warned:
                warn(f"MLflow does not take metrics ({first_line(error)}). Training continues; metrics.csv has them.")
            self._warned = True


def start_run(project: str, name: str, group: str, parameters: Mapping[str, Any], run_id: str | None) -> MlflowTracker:
    """Start a run of MLflow, or continue one.

    Args:
        project: The name of the experiment; it is created if it does not exist.
        name: The name of the run.
        group: What the runs of one setting share, the tag `group`.
        parameters: Hyper-parameters; MLflow keeps those of the start.
        run_id: The run to continue, or None.

    Raises:
        UsageError: MLflow is not installed, or its server does not answer.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise UsageError('--logger mlflow needs MLflow: pip install "proximo[mlflow]"') from None
    try:
        client = MlflowClient()
        if run_id is not None:
            client.update_run(run_id, status="RUNNING")
            return MlflowTracker(client, run_id)
        known = client.get_experiment_by_name(project)
        experiment = known.experiment_id if known else client.create_experiment(project)
        started = client.create_run(experiment, run_name=name, tags={"group": group})
        rows = [Param(key, str(value)[:MOST_CHARACTERS]) for key, value in parameters.items()]
        for i in range(0, len(rows), MOST_PARAMS):
            client.log_batch(started.info.run_id, params=rows[i:i + MOST_PARAMS])
    except MlflowException as error:
        raise UsageError(f"MLflow did not start ({first_line(error)}). MLFLOW_TRACKING_URI is the address of a server, "
                         "or a database such as sqlite:////home/me/mlflow.db.") from error
    return MlflowTracker(client, started.info.run_id)
