"""Runs through submitit, whose stand-in runs jobs on this machine: the same folders, time limits and lost jobs."""

import errno
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from proximo.bench.places.slurm import Queue, SlurmHandle, SlurmPlace
from proximo.bench.runner import bench
from proximo.bench.task import Ended, Task, Where
from proximo.errors import FilesError, UsageError
from proximo.runs.folder.lock import holder
from tests.support.fake_trainer import FAKE

submitit = pytest.importorskip("submitit")

SET = """
seeds = 2
[[run]]
variant = "ppo"
env_ids = ["CartPole-v1"]
steps = 10000
"""
LOCAL = Where(on="slurm", slurm_cluster="local", workers=2)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(SET)
    return path


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def task(tmp_path, *words):
    return Task(words=words, env={}, cwd=str(tmp_path), run_dir=str(tmp_path / "run"), log=str(tmp_path / "log"), processes=1)


def test_a_job_that_is_killed_continues_and_the_folders_are_those_of_every_place(file, tmp_path, monkeypatch, capfd):
    """The run of seed 1 is killed by SIGKILL in its 8th part. What was pickled is a class of ours by name, and text."""
    monkeypatch.setenv("FAKE_KILL", "1@7")
    out = tmp_path / "out"
    assert bench(file, where=LOCAL, out=out, command=FAKE) == 0
    assert "again CartPole-v1/ppo/1 (stopped by SIGKILL)" in capfd.readouterr().err
    for seed in (1, 2):
        run_dir = out / "CartPole-v1" / "ppo" / str(seed)
        lines = (run_dir / "metrics.csv").read_text().splitlines()[1:]
        assert [line.split(",")[0] for line in lines] == [str(k) for k in range(1, 21)]
        assert json.loads(run_dir.with_name(f"{seed}.job.json").read_text())["task"].startswith("SLURM job ")
    content = next((out / "slurm").glob("*/*_submitted.pkl")).read_bytes()
    assert b"proximo.bench.places.slurm" in content and b"--resume" in content


def test_the_signal_before_the_time_limit_saves_and_queues_again(tmp_path):
    """USR2, as SLURM sends it: the process gets SIGTERM and ends in order, then the same words start again."""
    script = "trap 'echo saved; exit 143' TERM; echo begun; [ $(grep -c begun log) -gt 1 ] && exit 7; echo ready; sleep 60 & wait"
    (handle,) = SlurmPlace(LOCAL, tmp_path).submit([task(tmp_path, "sh", "-c", script)])
    wait_for(lambda: (tmp_path / "log").exists() and "ready" in (tmp_path / "log").read_text())
    controller = handle._job._process
    children = Path(f"/proc/{controller.pid}/task/{controller.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGUSR2)
    wait_for(lambda: handle.poll() is not None)
    assert handle.poll() == Ended(7) and (tmp_path / "log").read_text().split() == ["begun", "ready", "saved", "begun"]


def test_a_job_that_is_stopped_ends_with_its_process(tmp_path):
    (handle,) = SlurmPlace(LOCAL, tmp_path).submit([task(tmp_path, "sh", "-c", "echo $$; exec sleep 60")])
    wait_for(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text())
    child = (tmp_path / "log").read_text().strip()
    handle.stop()
    wait_for(lambda: handle.poll() is not None)
    assert handle.poll().code is None
    wait_for(lambda: not Path(f"/proc/{child}").exists(), 10)


def test_an_array_that_slurm_does_not_take_ends_those_before_it(tmp_path, monkeypatch):
    """Runs of one and of two processes are two arrays. The benchmark ends, and would not wait for the first."""
    executor, submitted = SlurmPlace._executor, []

    def only_of_one_process(self, processes, count):
        if processes == 2:
            raise RuntimeError("too many nodes")
        return executor(self, processes, count)

    monkeypatch.setattr(SlurmPlace, "_executor", only_of_one_process)
    monkeypatch.setattr("proximo.bench.places.slurm.SlurmHandle", lambda *given: submitted.append(SlurmHandle(*given))
                        or submitted[-1])
    one = task(tmp_path, "sh", "-c", "exec sleep 60")
    with pytest.raises(UsageError, match="SLURM did not take the jobs: too many nodes"):
        SlurmPlace(LOCAL, tmp_path).submit([one._replace(processes=2, log=str(tmp_path / "2.log")), one])
    assert len(submitted) == 1 and submitted[0].poll().code is None


def test_the_queue_is_asked_once_for_all_jobs(monkeypatch):
    """squeue's lines are the ids; while it fails every job is taken to be there, so that none is started twice."""
    calls, answers = [], [(0, "12_0\n12_1\n"), (1, "")]

    def run(words, **_):
        calls.append(words)
        code, text = answers[min(len(calls), len(answers)) - 1]
        return subprocess.CompletedProcess(words, code, text, "")

    monkeypatch.setattr(subprocess, "run", run)
    queue = Queue()
    assert [queue.has(one) for one in ("12_0", "12_1", "13")] == [True, True, False] and len(calls) == 1
    assert calls[0][0] == "squeue"
    queue._read = -5.0
    assert queue.has("13") and len(calls) == 2


def test_resources_reach_slurm(tmp_path, monkeypatch):
    """Against the parameters that submitit's executor is given."""
    given = {}

    class Executor:
        def __init__(self, **settings):
            given.update(settings)

        def update_parameters(self, **settings):
            given.update(settings)

    monkeypatch.setattr("submitit.AutoExecutor", Executor)
    SlurmPlace(Where(on="slurm", job_threads=2, job_gpus=1, job_memory="8GB", slurm_partition="p", slurm_constraint="icelake",
                     slurm_time=30), tmp_path)._executor(processes=2, count=5)
    assert (given["cpus_per_task"], given["gpus_per_node"], given["timeout_min"]) == (4, 2, 30)
    assert (given["slurm_partition"], given["slurm_constraint"], given["slurm_array_parallelism"]) == ("p", "icelake", 5)
    assert given["mem_gb"] == pytest.approx(8e9 / 2**30) and given["slurm_max_num_timeout"] == 100
    assert holder(tmp_path) == ""


def test_a_full_disk_is_no_fault_of_slurm(tmp_path, monkeypatch):
    def full(self, processes, count):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SlurmPlace, "_executor", full)
    with pytest.raises(FilesError, match=r"slurm could not be written \(No space left on device\). Free disk space"):
        SlurmPlace(LOCAL, tmp_path).submit([task(tmp_path)])
