"""The tasks of jobs, with places that start nothing: what is taken over, what is stopped, and what a fault leaves."""

import time

import pytest

from proximo.bench.jobs import Job
from proximo.bench.places.local import LocalPlace
from proximo.bench.process import Work, close_job, read_job, record_path, start_jobs
from proximo.bench.runner import bench
from proximo.bench.status import run_statuses
from proximo.bench.task import Ended, Task, Where
from proximo.errors import FilesError, UsageError
from tests.support.fake_trainer import FAKE

JOB = Job("ppo", "CartPole-v1", 1, 1000, "mine", {"gamma": 0.9}, evaluate=True)


class Queued:
    """A task that waits until it is stopped; `ends=False`: for ever."""

    def __init__(self, name, ends=True):
        self.name, self.ends, self.stopped = name, ends, False

    def poll(self):
        return Ended(None) if self.stopped and self.ends else None

    def stop(self):
        self.stopped = True

    kill = stop


class Cluster:
    """A place whose tasks outlive the benchmark, as those of SLURM."""

    def __init__(self, ends=True):
        self.handles, self.waiting_before, self.ends = {}, [], ends

    def submit(self, tasks):
        self.waiting_before.append([name for name, handle in self.handles.items() if not handle.stopped])
        new = [Queued(f"SLURM job {len(self.handles) + k}", self.ends) for k in range(len(tasks))]
        self.handles |= {handle.name: handle for handle in new}
        return new

    def recover(self, name):
        handle = self.handles.get(name)
        return handle if handle and handle.poll() is None else None


def work_in(folder, place):
    return Work(folder, place, Where(on="slurm", slurm_cluster="local"), FAKE)


def finish(run_dir):
    run_dir.mkdir(parents=True)
    (run_dir / "summary.json").write_text('{"steps": 1000}')


def test_a_task_of_the_same_settings_is_taken_over(tmp_path):
    place = Cluster()
    (first,), (again,) = (start_jobs(work_in(tmp_path, place), [JOB]) for _ in range(2))
    assert again.handle is first.handle and not first.handle.stopped and len(place.handles) == 1


def test_a_task_of_other_settings_has_ended_before_the_new_one_is_submitted(tmp_path, caplog):
    """Otherwise both would write to one folder, and the results of the old one would count as those of the new one."""
    place = Cluster()
    (old,) = start_jobs(work_in(tmp_path, place), [JOB])
    (new,) = start_jobs(work_in(tmp_path, place), [Job("ppo", "CartPole-v1", 1, 9000, "mine", {"gamma": 0.5})])
    assert old.handle.stopped and new.handle is not old.handle and place.waiting_before == [[], []]
    assert read_job(tmp_path, new.job)["key"] == new.job.key != old.job.key
    assert "SLURM job 0 trains CartPole-v1/mine/1 with other settings. It is stopped." in caplog.text


def test_a_task_of_other_settings_that_does_not_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("proximo.bench.process.stop_all", lambda handles, patience: [one.stop() for one in handles])
    place = Cluster(ends=False)
    start_jobs(work_in(tmp_path, place), [JOB])
    with pytest.raises(UsageError, match="SLURM job 0 has not ended. It trains .* Wait until it has, or cancel it"):
        start_jobs(work_in(tmp_path, place), [Job("ppo", "CartPole-v1", 1, 9000, "mine", {})])
    assert len(place.handles) == 1


def test_a_task_that_is_taken_over_keeps_its_stage(tmp_path):
    """A training task has written its summary just before: its end is that of training, and the evaluation follows."""
    place = Cluster()
    start_jobs(work_in(tmp_path, place), [JOB])
    finish(tmp_path / JOB.folder)
    (running,) = start_jobs(work_in(tmp_path, place), [JOB])
    assert running.stage == "train" and close_job(tmp_path, running, Ended(0)) == ("trained", "")
    (running,) = start_jobs(work_in(tmp_path, place), [JOB])
    assert running.stage == "eval"


def test_a_place_that_takes_no_task_leaves_records_of_what_was_to_start(tmp_path):
    """A run that is there at the next call has the settings of its record, so it is not moved aside."""
    class Full(Cluster):
        def submit(self, tasks):
            raise UsageError("SLURM did not take the jobs")

    with pytest.raises(UsageError):
        start_jobs(work_in(tmp_path, Full()), [JOB])
    assert read_job(tmp_path, JOB)["key"] == JOB.key
    assert [run.state for run in run_statuses(tmp_path)] == ["waiting"]
    finish(tmp_path / JOB.folder)
    start_jobs(work_in(tmp_path, Cluster()), [JOB])
    assert [path.name for path in (tmp_path / JOB.folder).parent.iterdir() if path.is_dir()] == ["1"]


def test_tasks_whose_names_cannot_be_recorded_are_stopped(tmp_path, monkeypatch):
    """The disk becomes full between submission and record: nobody would know them."""
    def full(*_, **news):
        raise FilesError("the disk is full")

    monkeypatch.setattr("proximo.bench.process._update_record", full)
    place = Cluster()
    with pytest.raises(FilesError):
        start_jobs(work_in(tmp_path, place), [JOB])
    assert [handle.stopped for handle in place.handles.values()] == [True]


def test_processes_are_stopped_if_a_later_one_cannot_start(tmp_path):
    """The log of the second task is a folder. The first would train without anybody who waits for it."""
    (tmp_path / "2.log").mkdir()
    tasks = [Task(words=("sh", "-c", "sleep 60"), env={}, cwd=str(tmp_path), run_dir=str(tmp_path / str(k)),
                  log=str(tmp_path / f"{k}.log"), processes=1) for k in (1, 2)]
    started = []
    with pytest.MonkeyPatch.context() as patched:
        from proximo.bench.places import local as place_local

        start = place_local.start_child
        patched.setattr(place_local, "start_child", lambda task: started.append(start(task)) or started[-1])
        with pytest.raises(IsADirectoryError):
            LocalPlace().submit(tasks)
    assert len(started) == 1 and started[0].poll() is not None


def test_a_fault_while_runs_are_started_loses_none_of_them(tmp_path, monkeypatch):
    """The first run is stopped with the benchmark. The next call continues it, and moves nothing aside."""
    monkeypatch.setenv("FAKE_SECONDS", "1")
    (tmp_path / "two.toml").write_text('seeds = 2\n[[run]]\nvariant = "ppo"\nenv_ids = ["CartPole-v1"]\nsteps = 10000\n')
    folder = tmp_path / "out" / "CartPole-v1" / "ppo"
    (folder / "2.log").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        bench(tmp_path / "two.toml", where=Where(workers=2), out=tmp_path / "out", command=FAKE)
    time.sleep(1.5)
    assert not (folder / "1" / "summary.json").exists()
    (folder / "2.log").rmdir()
    assert bench(tmp_path / "two.toml", where=Where(workers=2), out=tmp_path / "out", command=FAKE) == 0
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["1", "2"]


def test_losses_count_in_a_row_only(tmp_path):
    """Two losses without a checkpoint, two with another one each, and three with the last one: only these end the run."""
    place = Cluster()
    checkpoints = tmp_path / JOB.folder / "checkpoints"
    outcomes = []
    for newest in ("", "", "00000001", "00000002", "00000002", "00000002"):
        (running,) = start_jobs(work_in(tmp_path, place), [JOB])
        if newest:
            (checkpoints / newest).mkdir(parents=True, exist_ok=True)
        running.handle.stop()
        outcomes.append(close_job(tmp_path, running, Ended(-9))[0])
    assert outcomes == ["lost"] * 5 + ["failed"]
    assert record_path(tmp_path, JOB).exists()
