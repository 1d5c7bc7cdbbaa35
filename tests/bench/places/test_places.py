"""Places of runs: flags that make no sense, text only, lost tasks, and processes that end with their parent."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proximo.bench.jobs import Job
from proximo.bench.places.child import is_ready, start_child
from proximo.bench.places.choice import where_problems
from proximo.bench.process import Work, start_jobs
from proximo.bench.runner import bench
from proximo.bench.status import SILENT, run_statuses, status
from proximo.bench.task import Ended, Task, Where, bytes_of, stop_all
from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.machine.cores import default_threads
from proximo.errors import UsageError
from proximo.runs.folder.lock import locked
from tests.support.fake_trainer import FAKE

SET = """
seeds = 2
[[run]]
variant = "ppo"
env_ids = ["CartPole-v1"]
steps = 10000
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(SET)
    return path


def rows(run_dir):
    return [line.split(",")[0] for line in (run_dir / "metrics.csv").read_text().splitlines()[1:]]


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Recorded:
    """A place that starts nothing and keeps what it is given."""

    def __init__(self, ends=()):
        self.tasks, self.ends = [], list(ends)

    def submit(self, tasks):
        self.tasks += tasks
        return [self for _ in tasks]

    name = "nothing"

    def recover(self, name):
        return None

    def poll(self):
        return self.ends.pop(0) if self.ends else Ended(None, "gone")


def test_every_problem_of_a_place_is_named_at_once(file, capsys):
    """Against the list of what each flag allows; also from the command line, with exit code 2 and before anything runs."""
    assert where_problems(Where()) == where_problems(Where(on="ray", job_gpus=0.25, job_memory="1.5GB", workers=3)) == []
    words = ["--workers", "0", "--job-threads", "0", "--job-gpus", "0.5", "--job-memory", "4", "--address", "x",
             "--slurm-time", "1", "--slurm-partition", "p"]
    for command in ("bench", "tune"):
        search = file.with_name("search.toml")
        search.write_text('variant = "ppo"\nenv_ids = ["CartPole-v1"]\nsteps = 1000\n[space]\ngamma = {low = 0.9, high = 0.99}\n')
        assert main([command, str(file if command == "bench" else search), *words]) == 2
        said = capsys.readouterr().err
        for part in ("workers=0 must be at least 1.", "job_threads=0 must be", "job_memory='4' is not allowed", "address='x'",
                     "slurm_time=1 must be", "--job-gpus needs --on ray or --on slurm", "--slurm-partition needs --on slurm"):
            assert part in said, part
    assert where_problems(Where(job_threads=1025)) == ["job_threads=1025 must be between 1 and 1024."]
    assert "Use a whole number." in where_problems(Where(on="slurm", slurm_cluster="local", job_gpus=0.5))[0]
    assert "whole number or a fraction below 1" in where_problems(Where(on="ray", job_gpus=1.5))[0]
    assert where_problems(Where(on="ray", job_gpus=float("nan"))) and where_problems(Where(on="ray", job_gpus=-1))
    assert [bytes_of(text) for text in ("1.5GB", "500MB", "GB", "4", "-1GB", "nanGB", "1e30TB")] == [
        1_500_000_000, 500_000_000, None, None, None, None, None]


def test_a_missing_package_or_program_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("proximo.bench.places.choice.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert where_problems(Where(on="ray")) == ['--on ray needs ray: pip install "proximo[ray]"']
    wrong = where_problems(Where(on="slurm"))
    assert wrong[0] == '--on slurm needs submitit: pip install "proximo[slurm]"' and "command sbatch" in wrong[1]


def test_a_task_is_text_with_absolute_folders_and_its_own_threads(tmp_path, monkeypatch):
    """The words of a task are the same at every start; threads are passed, because machines would choose others."""
    monkeypatch.chdir(tmp_path)
    place = Recorded()
    job = Job(variant="ppo", env_id="CartPole-v1", seed=1, steps=1000, label="ppo", overrides={})
    for where in (Where(on="ray"), Where(on="slurm", job_threads=3)):
        start_jobs(Work(folder=Path("out"), place=place, where=where, command=FAKE), [job])
    first, second = place.tasks
    assert all(isinstance(word, str) for word in first.words) and str(tmp_path / "out") in first.run_dir
    assert first.words[-2:] == ("--threads", "1") and second.words[-2:] == ("--threads", "3")
    assert second.env["OMP_NUM_THREADS"] == "3" and "auto" in first.words and Path(first.log).is_absolute()
    own = job.__class__(**{**vars(job), "overrides": {"threads": 2}})
    start_jobs(Work(folder=Path("out"), place=place, where=Where(on="ray"), command=FAKE), [own])
    assert place.tasks[-1].words[-2:] == ("--threads", "2") and place.tasks[-1].words.count("--threads") == 1


@pytest.mark.parametrize(("where", "processes", "cores", "threads"), [
    (Where(), 1, 16, None), (Where(workers=4), 1, 4, "1"), (Where(workers=4), 2, 4, "1"), (Where(workers=40), 1, 1, "1"),
    (Where(workers=4, job_threads=3), 1, 4, "3"), (Where(on="ray", workers=2), 1, 1, "1"),
    (Where(on="ray", job_threads=3), 2, 6, "3"), (Where(on="slurm", job_threads=3), 1, 3, "3")])
def test_runs_that_are_trained_at_once_share_the_cores(where, processes, cores, threads, monkeypatch):
    """A convolutional network has as many threads as there are cores, and Atari as many worker processes."""
    monkeypatch.setattr("proximo.bench.task.usable_cores", lambda: 16)
    variables = where.variables(processes)
    assert variables["PROXIMO_CORES"] == str(cores) and variables.get("OMP_NUM_THREADS") == threads
    monkeypatch.undo()
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert default_threads(Config(model="cnn"), processes) == max(1, cores // processes)


def test_a_killed_run_continues_and_its_signal_is_said(file, tmp_path, monkeypatch, capfd):
    """The run of seed 1 is killed by SIGKILL in its 8th part: it goes on with that part, and every part is logged once."""
    monkeypatch.setenv("FAKE_KILL", "1@7")
    assert bench(file, out=tmp_path / "out", command=FAKE) == 0
    said = capfd.readouterr().err
    assert "again CartPole-v1/ppo/1 (stopped by SIGKILL): it continues from its newest checkpoint" in said
    assert rows(tmp_path / "out" / "CartPole-v1" / "ppo" / "1") == [str(k) for k in range(1, 21)]


def test_a_run_that_is_killed_without_progress_is_given_up(file, tmp_path, monkeypatch, capfd):
    """Three times before the first checkpoint: it has failed, the other seed goes through, and the next call tries it."""
    monkeypatch.setenv("FAKE_KILL", "1@0")
    assert bench(file, out=tmp_path / "out", command=FAKE) == 1
    said = capfd.readouterr().err
    assert said.count("again CartPole-v1/ppo/1") == 2 and "stopped by SIGKILL, 3 times without a new checkpoint" in said
    assert "1 run finished, 1 failed" in said
    monkeypatch.delenv("FAKE_KILL")
    assert bench(file, out=tmp_path / "out", command=FAKE) == 0


def test_what_a_place_loses_is_handed_over_again(file, tmp_path, monkeypatch, capfd):
    """A place that loses every task gets the same words three times."""
    place = Recorded()
    place.close = lambda: None
    monkeypatch.setattr("proximo.bench.runner.open_place", lambda where, folder: place)
    assert bench(file, seeds=1, out=tmp_path / "out", command=FAKE) == 1
    assert len(place.tasks) == 3 and len({task.words for task in place.tasks}) == 1
    assert "lost (gone), 3 times without a new checkpoint" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_a_process_ends_with_the_one_that_started_it(tmp_path):
    """The parent is killed by SIGKILL: its child, which sleeps for a minute, is gone at once."""
    fields = (("sleep", "60"), {}, str(tmp_path), str(tmp_path / "run"), str(tmp_path / "log"), 1)
    program = (f"import time; from proximo.bench.places.child import start_child; from proximo.bench.task import Task; "
               f"print(start_child(Task(*{fields!r})).pid, flush=True); time.sleep(60)")
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    wait_for(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[:1])
    parent.kill()
    parent.communicate()
    wait_for(lambda: not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text(), 5)


def test_a_process_that_does_not_end_is_killed(tmp_path):
    """It ignores SIGTERM; after the patience comes SIGKILL, also for what it has started."""
    from proximo.bench.places.local import LocalHandle

    task = Task(words=("sh", "-c", "trap '' TERM; echo ready; sleep 60 & wait; sleep 60"), env={}, cwd=str(tmp_path),
                run_dir=str(tmp_path / "run"), log=str(tmp_path / "log"), processes=1)
    handle = LocalHandle(task)
    wait_for(lambda: (tmp_path / "log").read_text())
    stop_all([handle], 0.3)
    assert handle.poll() == Ended(-signal.SIGKILL)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_process_is_ended_where_there_are_no_groups_of_processes(tmp_path, monkeypatch, end):
    """As on Windows, which has neither os.killpg nor SIGKILL."""
    from proximo.bench.places.local import LocalHandle

    handle = LocalHandle(Task(words=("sleep", "60"), env={}, cwd=str(tmp_path), run_dir=str(tmp_path / "run"),
                              log=str(tmp_path / "log"), processes=1))
    monkeypatch.delattr(os, "killpg")
    monkeypatch.delattr(signal, "SIGKILL")
    getattr(handle, end)()
    wait_for(lambda: handle.poll() is not None, 5)


def test_the_log_of_a_task_is_appended(tmp_path):
    task = Task(words=("sh", "-c", "echo $NAME"), env={"NAME": "a"}, cwd="/none", run_dir="", log=str(tmp_path / "log"),
                processes=1)
    for name in "ab":
        start_child(task._replace(env={"NAME": name})).wait()
    assert (tmp_path / "log").read_text() == "a\nb\n"


def test_a_folder_in_use_is_named_in_the_log_whatever_its_name(tmp_path, monkeypatch):
    """Also if it has bytes that are no text."""
    monkeypatch.setattr("proximo.bench.places.child.PATIENCE", 0)
    run_dir = tmp_path / os.fsdecode(b"r\xff")
    with locked(run_dir, new=True):
        assert not is_ready(Task(words=(), env={}, cwd="", run_dir=str(run_dir), log=str(tmp_path / "log"), processes=1))
    assert f"{tmp_path}/r\\udcff is in use" in (tmp_path / "log").read_text()


def test_status_is_read_from_the_folder_alone(file, tmp_path, monkeypatch, capsys):
    """Done, running, failed, waiting and dead runs, against what was put into the folder; nothing is written."""
    out = tmp_path / "out"
    assert bench(file, out=out, command=FAKE) == 0
    record = json.loads((out / "CartPole-v1" / "ppo" / "1.job.json").read_text())
    content = json.loads((out / "bench.json").read_text())
    (out / "bench.json").write_text(json.dumps(content | {"jobs": [*content["jobs"], "CartPole-v1/ppo/9"]}))
    for seed, news in ((3, {"status": "running"}), (4, {"status": "failed"}), (5, {"status": "running"}),
                       (6, {"status": "running", "task": "Ray task \x1b[2J"}), (7, {"status": "running"})):
        run_dir = out / "CartPole-v1" / "ppo" / str(seed)
        run_dir.mkdir()
        run_dir.with_name(f"{seed}.job.json").write_text(json.dumps(record | {"stage": "train"} | news))
        if seed in (3, 5, 7):
            (run_dir / "metrics.csv").write_text("iteration,global_step,seconds\n1,512,0.5\n")
    gone = subprocess.Popen(["true"])
    gone.wait()
    (out / "CartPole-v1" / "ppo" / "5" / ".lock").write_text(f"process {gone.pid} on {os.uname().nodename}\n")
    (out / "CartPole-v1" / "ppo" / "7" / ".lock").write_text("process 1 on elsewhere\n")
    long_ago = time.time() - SILENT - 9
    for seed in (3, 7):  # run 3 waits for a line of --log-every, while episodes end
        os.utime(out / "CartPole-v1" / "ppo" / str(seed) / "metrics.csv", (long_ago, long_ago))
    (out / "CartPole-v1" / "ppo" / "3" / "episodes.csv").touch()
    before = sorted(str(path) for path in out.rglob("*"))
    with locked(out / "CartPole-v1" / "ppo" / "3"):
        assert main(["bench", "--status", str(out)]) == 0
        states = {run.name[-1]: run.state for run in run_statuses(out)}
    assert states == {"1": "done", "2": "done", "3": "running", "4": "failed", "5": "not running", "6": "queued",
                      "7": "running", "9": "waiting"}
    said = capsys.readouterr().out
    assert "2 done, 1 waiting, 1 failed, 1 not running, 1 queued, 2 running" in said and "\x1b" not in said
    assert f"512 of 10,000  0s ago  process {os.getpid()} on {os.uname().nodename}" in said
    assert [line.split()[0][-1] for line in said.splitlines() if " ago, silent " in line] == ["7"]
    assert "process 1 on elsewhere" in said and sorted(str(path) for path in out.rglob("*")) == before
    with pytest.raises(UsageError, match="contains no benchmark"):
        status(tmp_path / "none")
    assert main(["bench", "--status", str(out), str(file)]) == 2 and main(["bench"]) == 2
    assert main(["bench", "--status", str(out), "--seeds", "2"]) == 2
