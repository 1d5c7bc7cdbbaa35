"""MLflow and Trackio behind the logging call: against modules that record calls with the real signatures, and against the
real packages where they are installed. Weights & Biases is in test_log.py."""

import os
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import NamedTuple
from unittest.mock import create_autospec

import numpy as np
import pytest

import proximo
from proximo.cli.main import main
from proximo.config import Config
from proximo.errors import FilesError, UsageError
from proximo.problems import config_problems
from proximo.runs.folder.run import Run
from proximo.runs.logs.log import Log
from proximo.types import FinishedEpisodes
from tests.support.runs import train

METRICS = {"losses/value_loss": 0.5, "user/ähm, no": 2.0, "losses/none": float("nan")}
NONE = FinishedEpisodes(step=np.zeros(0, int), row=np.zeros(0, int), ret=np.zeros(0, np.float32), length=np.zeros(0, int))


def new_log(folder, logger, state=None):
    folder.mkdir(exist_ok=True)
    return Log(Run(folder, replace(Config(), logger=logger, total_timesteps=1024), "ppo"), resume=state)


def log_twice(folder, logger):
    """Two iterations, a checkpoint between them, and a resume from it that logs the second again; returns the id."""
    log = new_log(folder, logger)
    log.iteration(1, 512, METRICS, NONE)
    state = log.state()
    log.close()
    log = new_log(folder, logger, state)
    log.iteration(2, 1024, METRICS, NONE)
    assert log.state()["tracker_ids"] == state["tracker_ids"]
    log.close()
    return state["tracker_ids"][logger]


class FakeMetric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class FakeClient:
    """mlflow.MlflowClient, as far as it is used."""

    def __init__(self, tracking_uri=None, registry_uri=None):
        self.calls.append(("client",))

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name, artifact_location=None, tags=None):
        self.calls.append(("experiment", name))
        return "7"

    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        self.calls.append(("run", experiment_id, run_name, tags))
        return SimpleNamespace(info=SimpleNamespace(run_id="the id"))

    def update_run(self, run_id, status=None, name=None):
        self.calls.append(("update", run_id, status))

    def log_batch(self, run_id, metrics=(), params=(), tags=(), synchronous=None):
        assert len(params) <= 100 and len(metrics) <= 1000 and run_id == "the id"
        if metrics and self.broken:
            raise RuntimeError("no disk\nat all")
        self.calls.append(("batch", metrics, params))

    def set_terminated(self, run_id, status=None, end_time=None):
        self.calls.append(("end", run_id, status))


@pytest.fixture
def mlflow(monkeypatch):
    """The fake module; its calls."""
    module, entities, exceptions = (ModuleType(name) for name in ("mlflow", "mlflow.entities", "mlflow.exceptions"))
    module.MlflowClient = type("Client", (FakeClient,), {"calls": [], "broken": False})
    entities.Metric, entities.Param = FakeMetric, lambda key, value: (key, value)
    exceptions.MlflowException = type("MlflowException", (Exception,), {})
    for one in (module, entities, exceptions):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    return module.MlflowClient


def test_mlflow_gets_metrics_and_the_resumed_run_continues(tmp_path, mlflow):
    assert log_twice(tmp_path / "run", "mlflow") == "the id"
    names = [call[0] for call in mlflow.calls]
    assert names == ["client", "experiment", "run", "batch", "batch", "end", "client", "update", "batch", "end"]
    assert mlflow.calls[1:3] == [("experiment", "proximo"), ("run", "7", "run", {"group": "ppo/CartPole-v1"})]
    assert dict(mlflow.calls[3][2])["variant"] == "ppo" and dict(mlflow.calls[3][2])["gamma"] == "0.99"
    first, second = mlflow.calls[4][1], mlflow.calls[8][1]
    assert [(m.key, m.value, m.step) for m in first] == [("losses/value_loss", 0.5, 512), ("user/ähm_ no", 2.0, 512)]
    assert {m.step for m in second} == {1024} and mlflow.calls[7] == ("update", "the id", "RUNNING")


def raising(it):
    raise RuntimeError("broken")


def interrupting(it):
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("callback", "status"), [(raising, "FAILED"), (None, "FINISHED"), (interrupting, "KILLED")])
def test_a_run_that_an_error_or_a_signal_ends_has_not_finished(callback, status, tmp_path, mlflow):
    """Otherwise it looks as if it had reached its last step."""
    def run():
        proximo.train("ppo", env_id="CartPole-v1", total_timesteps=64, num_envs=2, num_steps=16, logger="mlflow",
                      run_dir=str(tmp_path / "run"), callbacks=[callback] if callback else [])

    with {"FAILED": pytest.raises(RuntimeError, match="broken"), "KILLED": pytest.raises(KeyboardInterrupt)}.get(
            status, nullcontext()):
        run()
    assert mlflow.calls[-1] == ("end", "the id", status)


@pytest.mark.parametrize(("end", "code"), [("FINISHED", 0), ("FAILED", 1), ("KILLED", 255)])
def test_wandb_gets_an_exit_code(end, code, tmp_path, monkeypatch):
    """That which wandb takes itself from a process that has failed, or that Ctrl+C has ended. The arguments are those of the real
    `finish`."""
    wandb = pytest.importorskip("wandb")
    started = create_autospec(wandb.Run, instance=True)
    monkeypatch.setattr(wandb, "init", lambda **given: started)
    new_log(tmp_path / "run", "wandb").close(end)
    started.finish.assert_called_once_with(exit_code=code)


def test_mlflow_that_fails_is_one_warning(tmp_path, mlflow, capsys):
    """A disk of the server that is full does not end training."""
    mlflow.broken = True
    log_twice(tmp_path / "run", "mlflow")
    assert capsys.readouterr().err.count("MLflow does not take metrics (no disk). Training continues") == 2  # two processes


def test_metrics_that_mlflow_cannot_hold_are_a_warning(tmp_path, mlflow, monkeypatch, capsys):
    """The error was that of a future which nothing reads."""
    def refuse(*row):
        raise ValueError("a bad name")

    monkeypatch.setattr(sys.modules["mlflow.entities"], "Metric", refuse)
    log_twice(tmp_path / "run", "mlflow")
    assert "MLflow does not take metrics (a bad name). Training continues" in capsys.readouterr().err


def test_mlflow_that_does_not_start(tmp_path, mlflow, monkeypatch):
    def refuse(self, tracking_uri=None):
        raise sys.modules["mlflow.exceptions"].MlflowException("no server")

    monkeypatch.setattr(mlflow, "__init__", refuse)
    with pytest.raises(UsageError, match="MLflow did not start .no server.. MLFLOW_TRACKING_URI"):
        new_log(tmp_path / "run", "mlflow")


def test_every_one_of_several_runs_is_tracked(tmp_path, mlflow):
    pytest.importorskip("flax")
    assert train(tmp_path / "runs", "--framework", "jax", "--num-seeds", "3", "--logger", "mlflow", "--total-timesteps", "64") == 0
    assert [call[2] for call in mlflow.calls if call[0] == "run"] == ["seed-1", "seed-2", "seed-3"]


@pytest.mark.parametrize("words,sent", [([], 2), (["--wandb-project-name", "other"], 2), (["--logger", "console"], 1)])
def test_a_resume_says_before_it_trains_what_the_run_sends(words, sent, tmp_path, mlflow, capsys):
    """config.json may be a stranger's, and the account is the user's."""
    assert train(tmp_path / "run", "--logger", "mlflow") == 0
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "352", *words]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "config.json names the tracker mlflow" in line]
    assert len(said) == sent - 1 and [call[0] for call in mlflow.calls].count("end") == sent
    assert all(f"project {words[-1] if words else 'proximo'!r}" in line for line in said)


@pytest.mark.parametrize("file", ["metrics.csv", "episodes.csv", "tensorboard"])
def test_a_log_that_cannot_be_opened_ends_the_run_of_the_service(tmp_path, mlflow, file):
    """Otherwise the service shows a run that never ends. A folder, or a file, is where a file, or the folder, would be."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / file).touch() if file == "tensorboard" else (tmp_path / "run" / file).mkdir()
    with pytest.raises(FilesError):
        new_log(tmp_path / "run", "mlflow")
    assert [call[0] for call in mlflow.calls][-1] == "end"


def test_trackio_gets_metrics_and_the_resumed_run_continues(tmp_path, monkeypatch):
    given, logged = [], []

    def init(project, name=None, group=None, space_id=None, server_url=None, dataset_id=None, bucket_id=None, config=None,
             resume="never", settings=None, private=None, embed=True, auto_log_gpu=None, gpu_log_interval=10.0,
             auto_log_cpu=None, cpu_log_interval=10.0, webhook_url=None, webhook_min_level=None):
        given.append((project, name, group, config["gamma"], resume))
        return SimpleNamespace(name=name, log=lambda metrics, step=None: logged.append((metrics, step)), finish=lambda: None)

    module = ModuleType("trackio")
    module.init = init
    monkeypatch.setitem(sys.modules, "trackio", module)
    assert log_twice(tmp_path / "run", "trackio") == "run"
    assert given == [("proximo", "run", "ppo/CartPole-v1", 0.99, "never"), ("proximo", "run", "ppo/CartPole-v1", 0.99, "allow")]
    assert logged[0] == ({"losses/value_loss": 0.5, "user/ähm, no": 2.0}, 512) and logged[1][1] == 1024


def test_a_tracker_that_fails_is_one_warning(tmp_path, monkeypatch, capsys):
    """The service is away, while the run trains and at its end."""
    def fail(*_, **__):
        raise ConnectionError("no network\nat all")

    module = ModuleType("trackio")
    module.init = lambda *_, **given: SimpleNamespace(name=given["name"], log=fail, finish=fail)
    monkeypatch.setitem(sys.modules, "trackio", module)
    log_twice(tmp_path / "run", "trackio")
    said = capsys.readouterr().err
    assert said.count("The tracker trackio has failed (no network). Training continues") == 2  # two processes


def test_the_ids_of_other_services_stay(tmp_path, mlflow):
    """A run that is resumed with another tracker may be resumed with the first one later."""
    log = new_log(tmp_path / "run", "mlflow", {"tracker_ids": {"wandb": "first"}})
    assert log.state()["tracker_ids"] == {"wandb": "first", "mlflow": "the id"}
    log.close()


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=rf'pip install "proximo\[{name}\]"'):
        new_log(tmp_path / "run", name)


def test_two_services_are_refused():
    (problem,) = config_problems(Config(track=True, logger="mlflow"))
    assert problem == "track=True logs to Weights & Biases, and logger=mlflow to another service. Use one of them."


@pytest.mark.filterwarnings("default")
def test_the_real_mlflow(tmp_path, monkeypatch):
    """A database of SQLite, read back by MLflow's client."""
    client = pytest.importorskip("mlflow").MlflowClient
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    run_id = log_twice(tmp_path / "run", "mlflow")
    found = client().get_metric_history(run_id, "losses/value_loss")
    assert [(point.step, point.value) for point in found] == [(512, 0.5), (1024, 0.5)]
    run = client().get_run(run_id)
    assert run.data.params["gamma"] == "0.99" and run.info.status == "FINISHED" and run.info.run_name == "run"


@pytest.mark.filterwarnings("default")
def test_the_real_trackio(tmp_path, monkeypatch):
    """Its folder, read back by its own interface."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    api = pytest.importorskip("trackio").Api
    assert log_twice(tmp_path / "run", "trackio") == "run"
    (run,) = api().runs("proximo")
    assert run.config["gamma"] == 0.99
