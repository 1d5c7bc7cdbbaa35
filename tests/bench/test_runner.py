"""Benchmarks with a fake trainer: every run once, failures reported, nothing repeated after a kill."""

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from proximo.bench.jobs import Job, flags_of, jobs_of
from proximo.bench.process import RunningJob, Work, is_finished, read_job, record_path
from proximo.bench.progress import BenchState, BenchView, last_step, progress
from proximo.bench.runner import bench, run_jobs
from proximo.bench.sets import label_of, load_set
from proximo.bench.status import run_statuses
from proximo.bench.task import Ended, Where
from proximo.bench.text import duration_text
from proximo.catalog import config_class
from proximo.cli.flags import parse_flags
from proximo.cli.main import main
from proximo.errors import UsageError
from proximo.runs.folder.lock import locked
from proximo.runs.presets import preset
from tests.support.fake_trainer import FAKE
from tests.support.run_folders import RunFolder

SET = """
title = "two tasks"
seeds = 2
evaluate = true
[[run]]
variant = "ppo"
env_ids = ["CartPole-v1", "Acrobot-v1"]
steps = 10000
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(SET)
    return path


def test_every_run_is_trained_once_and_finished_ones_are_skipped(file, tmp_path, capfd):
    """The documented folders exist, and a second call leaves every log as it is. It records what finished unseen."""
    out = tmp_path / "out"
    assert bench(file, where=Where(workers=2), out=out, command=FAKE) == 0
    for env_id in ("CartPole-v1", "Acrobot-v1"):
        for seed in (1, 2):
            run_dir = out / env_id / "ppo" / str(seed)
            assert json.loads((run_dir / "summary.json").read_text())["steps"] == 10_000
            assert json.loads((run_dir / "eval.json").read_text())["episodes"] == 3
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.log")}
    job = jobs_of(load_set(file), None)[0][0]
    record_path(out, job).write_text(json.dumps(read_job(out, job) | {"status": "running"}))
    assert bench(file, out=out, command=FAKE) == 0
    assert read_job(out, job)["status"] == "finished"
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*.log")}
    assert "4 runs finished, 0 failed" in capfd.readouterr().err


def test_a_row_can_be_evaluated_with_sampled_actions(file, tmp_path):
    """Evaluated again, but not trained again, after the row has changed."""
    out, found = tmp_path / "out", []
    evaluation, metrics = (out / "CartPole-v1" / "ppo" / "1" / name for name in ("eval.json", "metrics.csv"))
    for row in ("deterministic = false", ""):
        file.write_text(SET + row)
        assert bench(file, out=out, command=FAKE) == 0
        found.append((json.loads(evaluation.read_text())["deterministic"], metrics.stat().st_mtime_ns))
    assert [how for how, _ in found] == [False, True] and found[0][1] == found[1][1]


def test_missing_packages_of_the_report_are_named_before_anything_runs(file, tmp_path, monkeypatch, capfd):
    """Otherwise hours of training would end with a report that cannot be made."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name in ("rliable", "scipy")
                        else find_spec(name, *rest))
    assert bench(file, seeds=1, out=tmp_path / "out", command=FAKE) == 0
    lines = capfd.readouterr().err.splitlines()
    assert 'will need rliable and scipy for these runs: pip install "proximo[bench]"' in lines[0]
    for words in (["report", str(tmp_path / "out")], ["compare", str(tmp_path / "out"), str(tmp_path / "out")]):
        assert main(words) == 2
        assert capfd.readouterr().err == (f"proximo: proximo {words[0]} needs rliable and scipy: pip install "
                                          '"proximo[bench]"\n')


def test_packages_that_environments_lack_are_named_before_anything_runs(tmp_path, monkeypatch, capfd):
    """Thirty runs of MiniGrid would fail one after the other. The lines are those of an installed package."""
    lines = ["numpy>=1", 'numpy>=1; extra == "mujoco"', 'not-there>=3; extra == "mujoco"', 'neither<4; extra == "dm-control"',
             'others; extra == "atari"']
    monkeypatch.setattr("proximo.bench.extras.requires", lambda name: lines)
    (tmp_path / "set.toml").write_text(f'extra = "mujoco,dm_control"\n{SET}')
    assert bench(tmp_path / "set.toml", seeds=1, out=tmp_path / "out", command=FAKE) == 0
    assert ('neither and not-there are not installed: runs that need them will fail. pip install '
            '"proximo[mujoco,dm_control]"') in capfd.readouterr().err


def test_a_failed_run_is_reported_with_its_last_lines_and_the_others_go_through(file, tmp_path, monkeypatch, capfd):
    """Seed 1 fails with exit code 4: seed 2 still finishes, and the next call tries seed 1 again."""
    monkeypatch.setenv("FAKE_FAIL", "1")
    out = tmp_path / "out"
    assert bench(file, out=out, command=FAKE) == 1
    said = capfd.readouterr().err
    assert "the loss is not finite at iteration 1" in said and "failed: CartPole-v1/ppo/1" in said
    assert "proximo: proximo:" not in said  # the log says it too
    assert (out / "CartPole-v1" / "ppo" / "2" / "summary.json").exists()
    record = json.loads((out / "CartPole-v1" / "ppo" / "1.job.json").read_text())
    assert record["status"] == "failed" and record["exit_code"] == 4
    monkeypatch.delenv("FAKE_FAIL")
    assert bench(file, out=out, command=FAKE) == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_after_a_kill_the_same_command_continues(file, tmp_path, how):
    """metrics.csv would show an iteration that was repeated, or a restart from the beginning."""
    out = tmp_path / "out"
    program = (f"import signal, sys; from proximo.bench.runner import bench; from proximo.bench.task import Where; "
               f"signal.signal(signal.SIGINT, signal.default_int_handler); "  # where the tests run in the background
               f"sys.exit(bench({str(file)!r}, where=Where(workers=2), out={str(out)!r}, command={FAKE!r}))")
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"FAKE_SECONDS": "6"})
    first = out / "CartPole-v1" / "ppo" / "1"
    deadline = time.monotonic() + 20
    while progress(first)[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(how)
    assert process.wait(timeout=20) == (-how if how == signal.SIGKILL else 128 + how)
    assert not (first / "summary.json").exists()
    assert bench(file, out=out, command=FAKE) == 0
    iterations = [line.split(",")[0] for line in (first / "metrics.csv").read_text().splitlines()[1:]]
    assert iterations == [str(k) for k in range(1, 21)]
    words = json.loads((out / "CartPole-v1" / "ppo" / "1.job.json").read_text())["command"]
    assert "eval" in words


class EndingPlace:
    """A place whose only task interrupts the benchmark when it is polled, and finishes when it is asked to end."""

    name, polled, ended = "process 0 on another machine", False, None

    def submit(self, tasks):
        (task,) = tasks
        self.run_dir = Path(task.run_dir)
        return [self]

    def poll(self):
        if not self.polled:
            self.polled = True
            raise KeyboardInterrupt
        return self.ended

    def stop(self):
        self.run_dir.mkdir()
        (self.run_dir / "summary.json").write_text('{"steps": 10}')
        self.ended = Ended(0)


def test_a_run_that_finishes_while_the_benchmark_is_stopped_is_recorded(tmp_path, capsys):
    first, second = (Job("ppo", "CartPole-v1", seed, 10, "ppo", {}) for seed in (1, 2))
    state = BenchState(waiting=[first, second])
    assert run_jobs(Work(folder=tmp_path, place=EndingPlace(), where=Where(), command=FAKE), state) == 130
    assert read_job(tmp_path, first)["status"] == "finished" and read_job(tmp_path, second) == {}
    assert state.done == [first] and "stopped after 1 finished run." in capsys.readouterr().err


def test_a_run_with_other_settings_is_moved_aside_and_run_again(file, tmp_path):
    """The same folder with another number of steps: old results neither count nor vanish."""
    out = tmp_path / "out"
    assert bench(file, seeds=1, out=out, command=FAKE) == 0
    file.write_text(SET.replace("10000", "20000"))
    assert bench(file, seeds=1, out=out, command=FAKE) == 0
    folder = out / "CartPole-v1" / "ppo"
    assert json.loads((folder / "1" / "summary.json").read_text())["steps"] == 20_000
    assert [json.loads((old / "summary.json").read_text())["steps"] for old in folder.glob("1.*.old")] == [10_000]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text('{"key": "ab')])
def test_a_run_without_its_record_is_kept_however_often_it_is_lost(damage, file, tmp_path, capfd):
    """Nothing is known of its settings, so it may be one that somebody has put there. Each keeps a name of its own."""
    out, folder = tmp_path / "out", tmp_path / "out" / "CartPole-v1" / "ppo"
    for times in range(3):
        assert bench(file, seeds=1, out=out, command=FAKE) == 0
        (folder / "1" / "mine").write_text(str(times))
        damage(folder / "1.job.json")
    assert bench(file, seeds=1, out=out, command=FAKE) == 0
    kept = {old.name: (old / "mine").read_text() for old in folder.glob("1.*.old")}
    assert kept == {"1.unknown.old": "0", "1.unknown-2.old": "1", "1.unknown-3.old": "2"}
    said = capfd.readouterr().err
    assert "CartPole-v1/ppo/1 has results whose settings 1.job.json does not say. They are kept in 1.unknown-3.old." in said
    assert "of other settings" not in said


def test_two_benchmarks_never_run_in_one_folder(file, tmp_path):
    """The lock of the folder is held: the call is refused with the process that holds it."""
    out = tmp_path / "out"
    out.mkdir()
    with locked(out), pytest.raises(UsageError, match="in use: another thread of this program"):
        bench(file, out=out, command=FAKE)


def test_a_run_that_another_process_writes_is_not_touched(file, tmp_path):
    """A killed benchmark may leave a process that its records do not know."""
    run_dir = tmp_path / "out" / "CartPole-v1" / "ppo" / "1"
    run_dir.mkdir(parents=True)
    with locked(run_dir), pytest.raises(UsageError, match="in use: another thread of this program"):
        bench(file, out=tmp_path / "out", command=FAKE)
    assert list(run_dir.parent.glob("1*")) == [run_dir]


@pytest.mark.parametrize("words", ['env_ids = [".."]', 'env_ids = ["CartPole-v1"]\nlabel = ".."', 'env_ids = ["."]',
                                   'env_ids = ["CartPole-v1"]\nlabel = 5'])
def test_no_name_of_a_file_leads_out_of_the_folder_of_the_benchmark(words, tmp_path):
    (tmp_path / "a.toml").write_text(f'[[run]]\nvariant = "ppo"\nsteps = 1000\n{words}\n')
    with pytest.raises(UsageError, match="is not a name|is not the id of an environment. Use ids such as|label=5 is not allowed"):
        load_set(tmp_path / "a.toml")


def test_every_problem_of_a_file_is_named_at_once(tmp_path):
    """A file with ten problems: one message has them all."""
    path = tmp_path / "bad.toml"
    path.write_text('seeds = 0\nsed = 1\n[[run]]\nvariant = "pop"\nenv_ids = []\nsteps = -1\n[[run]]\nvariant = "ppo"\n'
                    'env_ids = ["A-v0"]\nsteps = 1000\nspeed = 1\n'
                    'overrides = {gama = 0.9, clip_vloss = 1, seed = 3, gamma = 2.0}\n')
    with pytest.raises(UsageError) as fault:
        load_set(path)
    for part in ("Use 3, or [1, 2, 3].", "sed is unknown", "variant='pop'", "env_ids=[]", "steps=-1 is not allowed.", "gamma=2.0 must be", "speed is unknown",
                 "ppo has no field gama. Did you mean gamma",
                 "clip_vloss=1 is not allowed. Use True or False.", "seed is set by the benchmark"):
        assert part in str(fault.value)
    with pytest.raises(UsageError, match="cannot be read"):
        load_set(tmp_path / "none.toml")
    path.write_text("title = ")
    with pytest.raises(UsageError, match="is not TOML"):
        load_set(path)


def test_an_impossible_configuration_is_refused_before_anything_runs(tmp_path):
    """num_envs * num_steps is not divisible by num_minibatches: the message is that of the configuration."""
    path = tmp_path / "bad.toml"
    path.write_text(SET + "overrides = {num_envs = 3, num_steps = 7}\n")
    with pytest.raises(UsageError, match="is not divisible by num_minibatches"):
        load_set(path)


def test_two_runs_may_not_write_one_folder(tmp_path):
    """Runs that differ in the steps only have the same name, unless one has a label."""
    row = '[[run]]\nvariant = "ppo"\nenv_ids = ["A-v0"]\nsteps = {}\n{}\n'
    path = tmp_path / "same.toml"
    path.write_text(row.format(1000, "") + row.format(2000, ""))
    with pytest.raises(UsageError, match="both write to A-v0/ppo"):
        load_set(path)
    path.write_text(row.format(1000, "") + row.format(2000, 'label = "longer"'))
    assert [entry.label for entry in load_set(path).rows] == ["", "longer"]


def test_settings_of_every_run_may_not_make_two_runs_one_folder(tmp_path, capsys):
    """The rows differ in what the command line sets, so each would move the results of the other aside."""
    row = '[[run]]\nvariant = "ppo"\nenv_ids = ["A-v0"]\nsteps = 2000\n'
    path = tmp_path / "same.toml"
    path.write_text(f"{row}overrides = {{gamma = 0.9}}\n{row}overrides = {{gamma = 0.5}}\n")
    assert len(jobs_of(load_set(path))[0]) == 6
    assert main(["bench", str(path), "--out", str(tmp_path / "out"), "--gamma", "0.8"]) == 2
    assert "two runs would both write to A-v0/ppo-gamma=0.8. Give one of them a label that" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    path.write_text(f'{row}{row}label = "ppo-changed_norm_adv"\n')
    with pytest.raises(UsageError, match="both write to A-v0/ppo-changed_norm_adv"):
        jobs_of(load_set(path), ablate=["norm_adv"])


def test_rows_of_presets(tmp_path):
    """Each preset is a row with its own variant, steps and values, against proximo.runs.presets; seeds of a run win over the
    file's, and those of the call over both."""
    path = tmp_path / "presets.toml"
    path.write_text('seeds = 2\noverrides = {threads = 1}\n[[run]]\npresets = ["CartPole-v1"]\n'
                    '[[run]]\npresets = ["Hopper-v4"]\nseeds = [7]\n')
    jobs, _ = jobs_of(load_set(path))
    assert [(job.env_id, job.seed, job.label) for job in jobs] == [
        ("CartPole-v1", 1, "preset"), ("CartPole-v1", 2, "preset"), ("Hopper-v4", 7, "preset")]
    for job in jobs:
        kind = config_class(job.variant)
        cfg = kind(env_id=job.env_id, seed=1, total_timesteps=job.steps, **parse_flags(kind, job.flags()))
        assert cfg == preset(job.env_id, threads=1)
    assert {job.seed for job in jobs_of(load_set(path), [3])[0]} == {3}
    path.write_text('overrides = {threads = 1}\n[[run]]\npresets = ["CartPole-v1"]\nenv_ids = ["A-v0", "B-v0"]\n'
                    'steps = 3000\nseeds = [1]\n')
    assert jobs_of(load_set(path))[0] == [replace(jobs[0], env_id=env_id, steps=3000) for env_id in ("A-v0", "B-v0")]
    path.write_text('[[run]]\npresets = ["CartPole-v0"]\nsteps = 0\nseeds = 0\nprocesses = 2\nenv_ids = ["."]\n[[run]]\npresets = []')
    with pytest.raises(UsageError) as error:
        load_set(path)
    said = str(error.value)
    assert all(words in said for words in ("processes is unknown", "steps=0 is not allowed", "env_ids has '.'",
                                           "seeds=0 is neither", "no preset CartPole-v0. Did you "
                                           "mean CartPole-v1", "run 2: presets=[] is not a list of presets"))


def test_an_ablation_changes_one_detail_with_the_seeds_of_the_base(file):
    """Each run differs from the base in one detail only; a detail that changes nothing is reported."""
    jobs, notes = jobs_of(load_set(file), [1, 2], ["norm_adv", "anneal_lr", "shared_network", "noop_max"])
    assert {(job.ablates, job.seed) for job in jobs} == {
        (detail, seed) for detail in ("", "norm_adv", "anneal_lr", "shared_network") for seed in (1, 2)}
    changed = {job.ablates: job.overrides for job in jobs}
    assert changed == {"": {}, "norm_adv": {"norm_adv": "none"}, "anneal_lr": {"anneal_lr": "none"},
                       "shared_network": {"shared_network": True}}
    assert len({job.folder for job in jobs}) == len(jobs)
    assert len(notes) == 1 and "noop_max" in notes[0]
    with pytest.raises(UsageError, match="unknown details: norm_avd"):
        jobs_of(load_set(file), [1], ["norm_avd"])


def test_flags_and_labels():
    """Flags as the command line spells them."""
    assert flags_of({"clip_vloss": False, "track": True, "gamma": 0.9, "device_ids": [0, 1]}) == [
        "--no-clip-vloss", "--track", "--gamma", "0.9", "--device-ids", "0", "1"]
    assert label_of("ppo", {"norm_adv": "none", "gamma": 0.9, "track": True}) == "ppo-gamma=0.9,norm_adv=none"
    assert len(label_of("ppo", {f"field_{k}": k for k in range(50)})) < 130
    job = Job("ppo", "dm_control/cartpole-balance-v0", 1, 10, "ppo", {})
    assert str(job.folder) == "dm_control_cartpole-balance-v0/ppo/1"
    tracked = Job("ppo", "dm_control/cartpole-balance-v0", 1, 10, "ppo", {"track": True})
    assert tracked.key == job.key != Job("ppo", "dm_control/cartpole-balance-v0", 2, 10, "ppo", {}).key


def test_a_run_with_a_damaged_summary_is_not_finished(file, tmp_path):
    """A run whose summary was cut short by a full disk is run again."""
    out = tmp_path / "out"
    assert bench(file, seeds=1, out=out, command=FAKE) == 0
    job = jobs_of(load_set(file), [1])[0][0]
    assert is_finished(out, job)
    (out / job.folder / "summary.json").write_text('{"steps": 10')
    assert not is_finished(out, job)


def test_the_number_of_processes_belongs_to_what_a_run_is():
    """It changes the draws and the sums of gradients, so a run of one process is none of two."""
    job = Job("ppo", "CartPole-v1", 1, 10, "mine", {})
    assert replace(job, processes=2).key != job.key


@pytest.mark.parametrize("words,said", [
    ('env_ids = ["CartPole-v1"]\nlabel = "mine.old"', "label='mine.old' is not allowed, because reports pass "
     "over folders that end in .old. Use another label."),
    ('env_ids = ["CartPole-v1"]\noverrides = {env_file = "a.old"}', "Use another label."),
    ('env_ids = ["mine.old"]', "env_ids has 'mine.old'")])
def test_names_that_reports_pass_over_are_refused(words, said, tmp_path):
    """Such folders are results that a benchmark has moved aside."""
    (tmp_path / "a.toml").write_text(f'[[run]]\nvariant = "ppo"\nsteps = 1000\n{words}\n')
    with pytest.raises(UsageError) as error:
        load_set(tmp_path / "a.toml")
    assert said in str(error.value)


def test_progress_and_durations(tmp_path):
    """The last line is incomplete, as in the file of a live run."""
    (tmp_path / "metrics.csv").write_text("iteration,global_step,seconds\n1,512,0.5\n2,1024,1.0\n3,15")
    assert progress(tmp_path) == (1024, 1024.0)
    assert progress(tmp_path / "none") == (0, 0.0)
    assert [duration_text(s) for s in (9, 125, 3725)] == ["9s", "2m05", "1h02"]


def test_a_table_has_the_steps_of_whole_iterations(tmp_path):
    """Training ends after the last of them. Where num_envs has changed, their size is not known."""
    job = Job("ppo", "CartPole-v1", 1, 6000, "ppo", {})
    RunFolder(tmp_path / job.folder, total=6000, num_envs=8, num_steps=128).grow(4, steps=1024)
    cells = BenchView(tmp_path, BenchState())._cells(RunningJob(job, SimpleNamespace(name="process 1"), "train"))
    assert cells[3:5] == ["4,096", "5,120"]
    assert last_step({"num_envs": 8, "num_steps": 128, "iteration_shift": 2}, 6000) == 6000


def test_the_time_left_comes_from_the_speed_of_the_same_environment(tmp_path):
    """One run had 1000 steps per second, two runs of 10000 steps wait: 20 seconds for one worker, 10 for two."""
    job = Job("ppo", "CartPole-v1", 1, 10_000, "ppo", {})
    others = [Job("ppo", "CartPole-v1", seed, 10_000, "ppo", {}) for seed in (2, 3)]
    view = BenchView(tmp_path, BenchState(list(others), [], [], []))
    assert view.seconds_left() is None
    (tmp_path / job.folder).mkdir(parents=True)
    (tmp_path / job.folder / "metrics.csv").write_text("iteration,global_step,seconds\n1,10000,10\n")
    view.state.done.append(job)
    assert view.seconds_left() == 20
    view.workers = 2
    assert view.seconds_left() == 10


def test_the_time_left_has_the_starts_and_ends_of_runs(tmp_path, monkeypatch):
    """Runs of 10 seconds of steps took 25 each; the first one was there before the command."""
    jobs = [Job("ppo", "CartPole-v1", seed, 10_000, "ppo", {}) for seed in (1, 2, 3, 4)]
    for job in jobs[:3]:
        (tmp_path / job.folder).mkdir(parents=True)
        (tmp_path / job.folder / "metrics.csv").write_text("iteration,global_step,seconds\n1,10000,10\n")
    now = [1000.0]
    monkeypatch.setattr("proximo.bench.progress.time.monotonic", lambda: now[0])
    view = BenchView(tmp_path, BenchState(jobs[3:], [], jobs[:1], []))
    assert view.seconds_left() == 10
    view.state.done += jobs[1:3]
    now[0] += 50
    assert view.seconds_left() == 25
    now[0] -= 45  # two workers may be faster than one
    assert view.seconds_left() == 10


def test_progress_of_a_run_with_a_thousand_metrics(tmp_path):
    """A game of 300 agents has two columns for each. Only the end of the file is read."""
    names = ["iteration", "global_step", "seconds", *(f"charts/episodic_return-agent_{k}" for k in range(600))]
    lines = [[k, 1000 * k, 10 * k, *[100.123456789] * 600] for k in range(1, 9)]
    (tmp_path / "metrics.csv").write_text("\n".join(",".join(map(str, line)) for line in (names, *lines)) + "\n")
    assert progress(tmp_path) == (8000, 100.0)


def test_names_in_the_table_of_a_terminal_are_no_markup(tmp_path):
    """rich would leave out a word in brackets, and raise an error at [/...]."""
    jobs = [Job("ppo", "CartPole-v1", seed, 10_000, label, {}) for seed, label in enumerate(("lr[small]", "lr[/b]"))]
    running = RunningJob(jobs[0], SimpleNamespace(name="here"), "eval")
    shown = Console(file=io.StringIO(), width=200)
    shown.print(BenchView(tmp_path, BenchState([], [running], [], [(jobs[1], "")]))._table())
    assert "lr[small]" in shown.file.getvalue() and "lr[/b]" in shown.file.getvalue()


def test_the_first_estimate_of_the_time_left_knows_how_many_runs_train_at_once(tmp_path, monkeypatch, capsys):
    """Two of 10 seconds, which begin at the same time: before one of them has been started."""
    jobs = [Job("ppo", "CartPole-v1", seed, 10_000, "ppo", {}) for seed in (1, 2, 3)]
    (tmp_path / jobs[0].folder).mkdir(parents=True)
    (tmp_path / jobs[0].folder / "metrics.csv").write_text("iteration,global_step,seconds\n1,10000,10\n")

    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("proximo.bench.runner.start_jobs", interrupted)
    for workers, left in ((1, "20s"), (2, "10s"), (8, "10s")):
        work = Work(folder=tmp_path, place=None, where=Where(workers=workers), command=())
        run_jobs(work, BenchState(jobs[1:], [], jobs[:1], []))
        assert capsys.readouterr().err.startswith(f"proximo: 1 done, 0 running, 2 waiting, 0 failed, about {left} left\n")


def test_the_time_left_does_not_count_steps_of_earlier_commands_as_played(tmp_path, monkeypatch):
    """Runs that were at 8000 of 10000 steps: their last 2 seconds of steps take 10 each, as the first one shows."""
    jobs = [Job("ppo", "CartPole-v1", seed, 10_000, "ppo", {}) for seed in (1, 2, 3)]
    lines = "iteration,global_step,seconds\n1,8000,8\n"
    for job in jobs:
        (tmp_path / job.folder).mkdir(parents=True)
        (tmp_path / job.folder / "metrics.csv").write_text(lines)
    now = [1000.0]
    monkeypatch.setattr("proximo.bench.progress.time.monotonic", lambda: now[0])
    view = BenchView(tmp_path, BenchState(list(jobs)))
    assert view.seconds_left() == 6
    view.state.done.append(view.state.waiting.pop(0))
    (tmp_path / jobs[0].folder / "metrics.csv").write_text(lines + "2,10000,10\n")
    now[0] += 10
    assert view.seconds_left() == 20
    (tmp_path / jobs[1].folder / "metrics.csv").write_text(lines.replace("8", "7"))  # it was killed after its checkpoint
    now[0] += 1
    assert view.seconds_left() == pytest.approx(5 * 11 / 2)


def test_the_time_left_counts_what_is_left_of_a_run(tmp_path):
    """Of 6000 steps, 5120 are whole iterations. A population's waiting members have begun."""
    jobs = [Job("ppo", "CartPole-v1", seed, 6000, "ppo", {}) for seed in (1, 2)]
    for job, iterations in zip(jobs, (4, 3)):
        RunFolder(tmp_path / job.folder, total=6000, num_envs=8, num_steps=128).grow(iterations, steps=1024)
    running = RunningJob(jobs[0], SimpleNamespace(name="process 1"), "train")
    speed = progress(tmp_path / jobs[0].folder)[1]
    view = BenchView(tmp_path, BenchState([], [running], [], []))
    assert view.seconds_left() == pytest.approx(1024 / speed)
    view.state.waiting.append(jobs[1])
    assert view.seconds_left() == pytest.approx((1024 + 2048) / speed)


def test_a_terminal_shows_a_table_and_a_pipe_lines(file, tmp_path):
    """The same command in a pseudo-terminal and with a pipe."""
    import pty
    program = (f"import signal, sys; from proximo.bench.runner import bench; "
               f"signal.signal(signal.SIGINT, signal.default_int_handler); "  # where the tests run in the background
               f"from proximo.cli.messages import exit_code; "
               f"sys.exit(exit_code(lambda: bench({str(file)!r}, seeds=1, out=sys.argv[1], command={FAKE!r})))")
    leader, follower = pty.openpty()
    words = [sys.executable, "-c", program]
    process = subprocess.Popen([*words, str(tmp_path / "a")], stderr=follower,
                               env=os.environ | {"TERM": "xterm", "FAKE_SECONDS": "1.5"})
    os.close(follower)
    seen = b""
    while True:
        try:
            seen += os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
    assert process.wait() == 0
    assert "┏━" in seen.decode() and "environment" in seen.decode() and "steps/s" in seen.decode()
    piped = subprocess.run([*words, str(tmp_path / "b")], capture_output=True, text=True, check=True).stderr
    assert "finished CartPole-v1/ppo/1; 1 done" in piped and "┃" not in piped


def test_every_flag_of_train_reaches_every_run(file, capsys):
    """Values that are refused and flags that do not exist, because then nothing has to run."""
    assert main(["bench", str(file), "--gamma", "2", "--workers", "2"]) == 2
    assert "ppo-gamma=2.0: gamma=2.0 must be between 0 and 1" in capsys.readouterr().err
    assert main(["bench", str(file), "--wrokers", "2"]) == 2
    assert "--wrokers is not a flag" in capsys.readouterr().err


class StuckPlace(EndingPlace):
    """The same, but its task is stopped before it has finished."""

    def stop(self):
        self.ended = Ended(143)


def test_a_stopped_run_is_not_queued_any_more(tmp_path, capsys):
    """Whatever the place is called: here it is one of SLURM, whose jobs are cancelled."""
    job, place = Job("ppo", "CartPole-v1", 1, 10, "ppo", {}), StuckPlace()
    place.name = "SLURM job 1_0"
    assert run_jobs(Work(folder=tmp_path, place=place, where=Where(), command=FAKE), BenchState(waiting=[job])) == 130
    assert "stopped after 0 finished runs and ended 1 run in progress." in capsys.readouterr().err
    (found,) = run_statuses(tmp_path)
    assert found.state == "not running" and not found.where


def test_tasks_of_runs_that_the_file_lost_are_named(file, tmp_path, capsys, monkeypatch):
    """They are those of a benchmark that was killed, on SLURM."""
    out = tmp_path / "out"
    assert bench(file, seeds=1, out=out, command=FAKE) == 0
    record = out / "CartPole-v1" / "ppo" / "1.job.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"status": "running", "task": "SLURM job 7"}))
    monkeypatch.setattr("proximo.bench.places.local.LocalPlace.recover", lambda self, name: "SLURM" in name or None)
    file.write_text(SET.replace('"CartPole-v1", ', ""))
    assert bench(file, seeds=2, out=out, command=FAKE) == 0
    assert "SLURM job 7 still trains CartPole-v1/ppo/1, which this command does not train" in capsys.readouterr().err
