"""Searches with a fake trainer whose best setting is known, also when they are killed."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from proximo.bench.jobs import Job
from proximo.bench.names import file_name
from proximo.bench.process import RunningJob
from proximo.bench.progress import progress
from proximo.bench.records import SearchFile
from proximo.bench.sets import check_set_imports, load_set
from proximo.bench.task import Ended, Where
from proximo.bench.tune import study as tune_study
from proximo.bench.tune.halt import Halt
from proximo.bench.tune.journal import journal
from proximo.bench.tune.main import Context, _run_trial, _watch, tune
from proximo.bench.tune.messages import report_best, report_start
from proximo.bench.tune.search import SEARCH_KEYS, is_evaluated, latest_score, load_search, scaled, suggest
from proximo.bench.tune.study import REASON, SharedStudy, make_sampler, queue_again, shared_study
from proximo.cli.main import main
from proximo.cli.messages import printed_messages
from proximo.errors import FilesError, UsageError
from proximo.runs.folder.lock import holder
from tests.support.fake_trainer import FAKE
from tests.support.full_disk import full_disk

optuna = pytest.importorskip("optuna")
ROOT = Path(__file__).resolve().parents[3]

SEARCH = """
title = "anneal or not"
variant = "ppo"
env_ids = ["CartPole-v1"]
steps = 10000
seeds = 2
trials = 4
pruner = "none"
[space]
anneal_lr = {choices = [true, false]}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "search.toml"
    path.write_text(SEARCH)
    return path


def test_the_best_trial_is_written_while_the_folder_is_locked(file, tmp_path, monkeypatch):
    """Processes that share a study may end at the same time, and write the same best.json."""
    found = []
    monkeypatch.setattr("proximo.bench.tune.main._run_trials", lambda context: None)
    monkeypatch.setattr("proximo.bench.tune.main.report_best", lambda study, folder, search: found.append(holder(folder)) or 0)
    assert tune(file, out=tmp_path / "out") == 0
    assert found[0].startswith(f"process {os.getpid()} on ")


def study_of(place):
    return optuna.load_study(study_name="anneal or not", storage=journal(place))


def test_the_best_is_found_and_equal_settings_run_once(file, tmp_path, capsys):
    """The fake trainer loses 50 points without annealing; the value is the mean over both seeds' summaries."""
    out = tmp_path / "out"
    assert tune(file, out=out, command=FAKE) == 0
    best = json.loads((out / "best.json").read_text())
    assert best["params"] == {"anneal_lr": True}
    study = study_of(out)
    folder = out / "CartPole-v1" / study.best_trial.user_attrs["folder"]
    means = [json.loads((folder / seed / "summary.json").read_text())["episodic_return_mean"] for seed in "12"]
    assert best["value"] == pytest.approx(sum(means) / 2)
    assert len(study.trials) == 4
    assert len(list((out / "CartPole-v1").iterdir())) <= 2
    said = capsys.readouterr().err
    assert "best of 4 trials" in said and "trials: 4, runs of each: 2," in said
    (command,) = [line.partition("Next: proximo train ")[2] for line in said.splitlines() if "Next: " in line]
    assert command.startswith("ppo --env-id CartPole-v1") and command.endswith("--seed 3 --anneal-lr")


def test_the_next_commands_are_those_of_every_environment(file, tmp_path, capsys):
    """Only the first environment had one."""
    file.write_text(SEARCH.replace('["CartPole-v1"]', '["CartPole-v1", "Acrobot-v1"]')
                    + '[target_scores]\n"CartPole-v1" = [20, 500]\n"Acrobot-v1" = [-500, -90]\n')
    study = optuna.create_study(direction="maximize")
    trial = study.ask()
    suggest(trial, load_search(file).space)
    study.tell(trial, 1.0)
    with printed_messages():
        assert report_best(study, tmp_path, load_search(file)) == 0
    commands = [line.partition("Next: ")[2] for line in capsys.readouterr().err.splitlines() if "Next: " in line]
    assert [command.partition(" --total")[0] for command in commands] == [
        "proximo train ppo --env-id CartPole-v1", "proximo train ppo --env-id Acrobot-v1"]
    assert len({command.partition(" --total")[2] for command in commands}) == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_search_continues_after_a_kill(file, tmp_path, how):
    """The interrupted trial continues with the same settings, and its run is resumed instead of restarted."""
    out = tmp_path / "out"
    program = (f"import sys; from proximo.bench.tune.main import tune; "
               f"sys.exit(tune({str(file)!r}, out={str(out)!r}, command={FAKE!r}))")
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"FAKE_SECONDS": "8"})
    deadline = time.monotonic() + 30
    while not (begun := [p.parent for p in out.glob("CartPole-v1/*/1/metrics.csv")]) and time.monotonic() < deadline:
        time.sleep(0.05)
    while progress(begun[0])[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(how)
    assert process.wait(timeout=30) == (-how if how == signal.SIGKILL else 128 + how)
    params = study_of(out).trials[0].params
    assert tune(file, out=out, command=FAKE) == 0
    study = study_of(out)
    states = [trial.state.name for trial in study.trials]
    assert states.count("COMPLETE") == 4 and states[0] == "FAIL"
    assert study.trials[1].params == params
    iterations = [line.split(",")[0] for line in (begun[0] / "metrics.csv").read_text().splitlines()[1:]]
    assert iterations == [str(k) for k in range(1, 21)]


def test_the_pruner_stops_a_run_that_falls_behind(file, tmp_path, monkeypatch):
    """The pruner gives up every trial at its first report, so no run reaches its end."""
    class Never(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return True
    monkeypatch.setattr("proximo.bench.tune.study.make_pruner", lambda name: Never())
    monkeypatch.setenv("FAKE_SECONDS", "4")
    out = tmp_path / "out"
    assert tune(file, out=out, trials=1, command=FAKE) == 1
    assert study_of(out).trials[0].state.name == "PRUNED"
    assert not list(out.rglob("summary.json"))


def test_the_pruner_compares_means_over_the_runs_of_a_trial(file, tmp_path, monkeypatch):
    """A report during the second seed is the mean of the score of the first and of the newest 100 episodes of the second,
    at a step of its own."""
    monkeypatch.setenv("FAKE_SECONDS", "1")
    assert tune(file, out=tmp_path, trials=1, command=FAKE) == 0
    (trial,) = study_of(tmp_path).trials
    one, two = (tmp_path / "CartPole-v1" / trial.user_attrs["folder"] / seed for seed in "12")
    first = json.loads((one / "summary.json").read_text())["episodic_return_mean"]
    returns = [float(line.split(",")[2]) for line in (two / "episodes.csv").read_text().splitlines()[1:]]
    means = [(first + np.mean(returns[max(0, end - 100):end])) / 2 for end in range(1, len(returns) + 1)]
    reports = {step: value for step, value in trial.intermediate_values.items() if step > 10}
    assert reports and max(reports) <= 20 and min(trial.intermediate_values) < 10
    assert all(min(abs(value - mean) for mean in means) < 1e-9 for value in reports.values())


@pytest.mark.parametrize("seeds, steps, is_pruned", [((1,), 9_999, True), ((1,), 10_000, False), ((1, 2), 10_000, True)])
def test_a_trial_that_has_trained_everything_is_not_pruned(seeds, steps, is_pruned, file, tmp_path, monkeypatch):
    """Its score costs nothing more. After the first of two seeds, there is something to save."""
    class Always(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return True

    at, polled = iter([0, steps]), iter([None, Ended(0)])
    monkeypatch.setattr("proximo.bench.tune.main.progress", lambda run_dir: (next(at), 1.0))
    monkeypatch.setattr("proximo.bench.tune.main.latest_score", lambda *given: 1.0)
    search = load_search(file)._replace(seeds=seeds)
    study = optuna.create_study(pruner=Always())
    shared = SharedStudy(study=study, folder=tmp_path, worker="", halt=Halt(), first=0)
    context = Context(search=search, work=SimpleNamespace(folder=tmp_path), shared=shared, trials=1)
    job = Job(variant="ppo", env_id="CartPole-v1", seed=1, steps=10_000, label="name", overrides={})
    running = RunningJob(job=job, handle=SimpleNamespace(poll=lambda: next(polled)), stage="train")
    with pytest.raises(optuna.TrialPruned) if is_pruned else nullcontext():
        assert _watch(study.ask(), context, running, []) == Ended(0)


@pytest.mark.parametrize("call", ["study.SharedStudy.next_trial", "main.report_trial"])
def test_a_fault_between_trials_stops_all_workers(call, file, tmp_path, monkeypatch):
    """The second trial cannot be begun, or the first not be reported: the other worker trains no further one."""
    file.write_text(SEARCH.replace("seeds = 2", "seeds = 1").replace("anneal_lr = {choices = [true, false]}",
                                                                     "gamma = {low = 0.9, high = 0.99}"))
    real, calls = tune_study.SharedStudy.next_trial, []

    def fails(*given):
        calls.append(given)
        if len(calls) == (2 if "next_trial" in call else 1):
            raise FilesError("the disk is full")
        return real(*given) if "next_trial" in call else None

    monkeypatch.setenv("FAKE_SECONDS", "1")
    monkeypatch.setattr(f"proximo.bench.tune.{call}", fails)
    with pytest.raises(FilesError, match="the disk is full"):
        tune(file, Where(workers=2), tmp_path / "out", trials=6, command=FAKE)
    assert len(list((tmp_path / "out").rglob("summary.json"))) <= 2


def test_a_failed_run_fails_its_trial_and_not_the_search(file, tmp_path, monkeypatch, capfd):
    """Seed 2 fails in every trial: the search ends and says that no trial has finished."""
    monkeypatch.setenv("FAKE_FAIL", "2")
    monkeypatch.setenv("FAKE_CODE", "3")
    assert tune(file, out=tmp_path / "out", trials=2, command=FAKE) == 1
    said = capfd.readouterr().err
    assert "no trial has finished" in said and "the loss is not finite at iteration 1" in said
    assert len(study_of(tmp_path / "out").trials) == 2
    assert tune(file, out=tmp_path / "out", trials=2, command=FAKE) == 1  # tries again
    assert len(study_of(tmp_path / "out").trials) == 4


def test_a_trial_that_is_not_finite_counts_as_the_worst(file, tmp_path, monkeypatch, capfd):
    """TPE ranks pruned trials below all with a score, and knows nothing of failed ones. It is not tried again."""
    out = tmp_path / "out"
    assert tune(file, out=out, trials=1, command=FAKE) == 0
    monkeypatch.setenv("FAKE_FAIL", "1")
    for _ in range(2):
        assert tune(file, out=out, trials=6, command=FAKE) == 0
    trials = study_of(out).trials
    assert len(trials) == 6
    (diverged, *_) = [trial for trial in trials if trial.state.name == "PRUNED"]
    said = capfd.readouterr().err
    assert f"trial {diverged.number} not finite" in said
    assert (f"It counts as worse than all trials with a score. CartPole-v1/{diverged.user_attrs['folder']}/1: the loss is "
            "not finite at iteration 1\n") in said and "first line" not in said
    with (out / "trials.csv").open() as table:
        assert [line["state"] for line in csv.DictReader(table)].count("not finite") == len(
            [trial for trial in trials if trial.state.name == "PRUNED"])


def test_a_fault_of_files_in_a_run_ends_the_search(file, tmp_path, monkeypatch, capsys):
    """The other runs would fail one by one. Afterwards the same trial continues."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setenv("FAKE_FAIL", "1")
        patch.setenv("FAKE_CODE", "5")
        with pytest.raises(FilesError, match=r"1: the loss is not finite at iteration 1\nThe search has stopped, because"):
            tune(file, out=out, command=FAKE)
    (stopped, waiting) = study_of(out).trials
    assert (stopped.state.name, waiting.state.name) == ("FAIL", "WAITING")
    assert tune(file, out=out, command=FAKE) == 0
    assert study_of(out).trials[1].params == stopped.params
    with (out / "trials.csv").open() as table:
        assert [line["state"] for line in csv.DictReader(table)] == ["stopped", *["complete"] * 4]


@pytest.mark.parametrize("code", [2, 3])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_usage_error_of_the_first_trial_ends_the_search(file, tmp_path, code, workers, capsys):
    """With its sentence, as of an environment that does not exist; another fault fails the trials only."""
    refuses = (sys.executable, "-c", f"import sys; print('proximo: env_id=X is unknown.'); sys.exit({code})")
    where, out = Where(workers=workers), tmp_path / "out"
    if code != 2:
        assert tune(file, where, out, command=refuses) == 1
    else:
        with pytest.raises(UsageError, match=r"^env_id=X is unknown\.$"):
            tune(file, where, out, command=refuses)
        assert tune(file, where, out, command=FAKE) == 0, "the search continues"
    assert len([trial for trial in study_of(out).trials if trial.state.name == "FAIL"]) <= (4 if code != 2 else 2)


def test_a_usage_error_after_a_trial_has_finished_fails_its_trial_only(file, tmp_path):
    """Its values may be the cause."""
    out = tmp_path / "out"
    assert tune(file, out=out, trials=1, command=FAKE) == 0
    assert tune(file, out=out, trials=3, command=(sys.executable, "-c", "import sys; sys.exit(2)")) == 0
    states = [trial.state.name for trial in study_of(out).trials]
    assert states[0] == "COMPLETE" and set(states[1:]) <= {"FAIL", "COMPLETE"} and "FAIL" in states


def test_processes_that_share_a_search_count_the_failed_trials_of_all(file, tmp_path):
    """As docs/searches.md says: a trial with a failed run is not replaced, also if it is that of another process."""
    search = load_search(file)
    with shared_study(search, tmp_path, Halt()) as one, shared_study(search, tmp_path, Halt()) as other:
        for _ in range(3):
            trial = one.next_trial(4)
            trial.set_user_attr(REASON, "its run failed")
            one.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        assert other.next_trial(4) is not None
        assert other.next_trial(4) is None and one.next_trial(4) is None


def test_every_problem_of_a_search_is_named_at_once(tmp_path):
    """A file with seven problems; most sentences say what is allowed."""
    path = tmp_path / "bad.toml"
    path.write_text('variant = "ppo"\nenv_ids = ["A-v0", "B-v0"]\nsteps = 0\npruner = "gardener"\nfoo = 1\n'
                    'trials = 0\n'
                    '[space]\nlearning_rate = {low = 1.0, high = 0.1}\ngama = {choices = [1]}\nentropy_coeff = {choices = [1]}\n')
    with pytest.raises(UsageError) as fault:
        load_search(path)
    for part in ("ppo has no field entropy_coeff. Use ent_coef=... (docs/coming-from.md).", "steps=0", "target_scores", "'gardener'", "foo is unknown", "learning_rate: low=1.0 must be below high=0.1.", "trials=0 must be at least 1.",
                 "ppo has no field gama. Did you mean gamma"):
        assert part in str(fault.value)


def test_problems_of_overrides_and_of_the_space_are_named_together(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text('variant = "ppo"\nenv_ids = ["CartPole-v1"]\nsteps = 1000\n[overrides]\nnum_stps = 3\ngamma = 0.9\n'
                    '[space]\nlearning_rat = {low = 1.0, high = 2.0}\ngamma = {low = 0.9, high = 0.99}\n')
    with pytest.raises(UsageError) as fault:
        load_search(path)
    for part in ("no field num_stps", "no field learning_rat", "gamma is in [overrides] and in [space]. Leave it out of one"):
        assert part in str(fault.value)


def test_a_search_has_at_least_one_trial(file):
    with pytest.raises(UsageError, match="trials=0 must be at least 1\\."):
        tune(file, trials=0)


@pytest.mark.parametrize("pair", ["[1, 1]", "[1]", "[0, 1, 2]"])
def test_target_scores_are_two_different_numbers(pair, tmp_path):
    """Scores are divided by their difference."""
    path = tmp_path / "search.toml"
    path.write_text(f'variant = "ppo"\nenv_ids = ["A-v0"]\nsteps = 1000\n[target_scores]\n"A-v0" = {pair}\n'
                    '[space]\nlearning_rate = {low = 1e-4, high = 0.1}\n')
    with pytest.raises(UsageError, match="target_scores: A-v0=.* is not allowed. Use two different numbers"):
        load_search(path)


@pytest.mark.parametrize("ids, given, sentences", [
    (["CartPole-v1"], ["Acrobot-v1"], ["Acrobot-v1 is not one of env_ids (CartPole-v1).", 'is missing. Write a line "CartPole-v1" = [']),
    (["CartPole-v1", "Acrobot-v1"], ["CartPole-v1", "Acrobt-v1"],
     ["Acrobt-v1 is not one of env_ids (CartPole-v1, Acrobot-v1).", 'Acrobot-v1 is missing. Write a line "Acrobot-v1" = [']),
    (["CartPole-v1", "Acrobot-v1"], ["Acrobot-v1"], ["CartPole-v1 is missing."]),
    (["CartPole-v1"], ["CartPole-v1", "Acrobot-v1"], ["Acrobot-v1 is not one of env_ids"]),
    (["CartPole-v1"], ["CartPole-v1"], []), (["CartPole-v1"], [], [])])
def test_target_scores_are_those_of_the_environments(ids, given, sentences, file):
    """With one environment, scores of another one changed nothing, and nobody was told."""
    targets = "".join(f'"{env_id}" = [1, 2]\n' for env_id in given)
    file.write_text(SEARCH.replace('["CartPole-v1"]', json.dumps(ids)) + f"[target_scores]\n{targets}")
    if not sentences:
        assert [*load_search(file).target_scores] == given
        return
    with pytest.raises(UsageError) as fault:
        load_search(file)
    lines = str(fault.value).splitlines()
    assert len(lines) == len(sentences) and all(part in line for part, line in zip(sentences, lines)), lines


def test_draws_are_keyed_by_seed_trial_and_field():
    """A search that starts again draws nothing a second time, fields differ, and the same seed draws the same."""
    def drawn(seed, start, count=4):
        study = optuna.create_study(sampler=make_sampler(seed))
        for _ in range(start):
            study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
        return [tuple(trial.suggest_float(name, 0, 1) for name in "ab") for trial in (study.ask() for _ in range(count))]

    whole = drawn(0, 0, 8)
    assert whole == drawn(0, 0) + drawn(0, 4) and len({value for pair in whole for value in pair}) == 16
    assert not {value for pair in whole for value in pair} & {value for pair in drawn(1, 0, 8) for value in pair}


def test_evaluations_are_what_a_pruner_sees(file, tmp_path):
    """With evaluations the last one counts, never a training score; otherwise the mean of the newest 100 episodes, as in the
    score, does: the means of metrics.csv are of few episodes, and of the long ones if an iteration is short."""
    search = load_search(file)
    assert [is_evaluated(search, {"eval_every": every}) for every in (0, 10)] == [False, True]
    assert not is_evaluated(search._replace(metric="episodic_length"), {"eval_every": 10})
    (tmp_path / "metrics.csv").write_text("global_step,charts/episodic_return,eval/return_mean\n1,5,nan\n2,6,\n")
    assert latest_score(tmp_path, search, "CartPole-v1", evaluated=False) is None
    lines = [f"{step},0,{step},{2 * step},1\n" for step in range(1, 121)]
    (tmp_path / "episodes.csv").write_text("step,row,return,length,seconds\n" + "".join(lines))
    assert latest_score(tmp_path, search, "CartPole-v1", evaluated=False) == 70.5
    assert latest_score(tmp_path, search, "CartPole-v1", evaluated=True) is None
    with (tmp_path / "metrics.csv").open("a") as table:
        table.write("3,7,20\n4,8,nan\n")
    assert latest_score(tmp_path, search, "CartPole-v1", evaluated=True) == 20
    assert latest_score(tmp_path, search._replace(metric="episodic_length"), "CartPole-v1", evaluated=False) == 141


def test_a_score_is_on_the_scale_of_its_environment(file, tmp_path):
    """260 lies in the middle between what counts as 0 and what counts as 1."""
    search = load_search(file)._replace(target_scores={"CartPole-v1": [20, 500]})
    (tmp_path / "episodes.csv").write_text("step,row,return,length,seconds\n1,0,260,1,1\n")
    assert latest_score(tmp_path, search, "CartPole-v1", evaluated=False) == scaled(260, search, "CartPole-v1") == 0.5


def test_a_line_that_is_being_written_is_no_score(file, tmp_path):
    """4 is the beginning of 480."""
    (tmp_path / "episodes.csv").write_text("step,seconds,length,return\n1,1,1,475\n2,1,1,4")
    assert latest_score(tmp_path, load_search(file), "CartPole-v1", evaluated=False) == 475


@pytest.mark.parametrize("ids", [["ALE/Pong-v5", "ALE_Pong-v5"], ["A-v0", "A-v0"]])
def test_environments_of_one_folder_are_refused(ids, tmp_path):
    """The second one would have the runs and the scores of the first."""
    path = tmp_path / "search.toml"
    targets = "".join(f'"{env_id}" = [0, 1]\n' for env_id in dict.fromkeys(ids))
    path.write_text(f'variant = "ppo"\nenv_ids = {ids}\nsteps = 10000\n[target_scores]\n{targets}'
                    '[space]\ngamma = {low = 0.9, high = 0.99}\n')
    with pytest.raises(UsageError, match=f"both write to {file_name(ids[0])}. Name each environment once."):
        load_search(path)


def test_an_empty_title_is_the_name_of_the_file(file):
    """runs/tune itself would be the folder of the search."""
    file.write_text(SEARCH.replace("anneal or not", ""))
    assert load_search(file).name == "search"


def test_a_killed_run_of_a_trial_continues(file, tmp_path, monkeypatch, capfd):
    """SIGKILL in the middle of a run: the trial has its value, and the signal was said."""
    monkeypatch.setenv("FAKE_KILL", "1@7")
    assert tune(file, out=tmp_path / "out", trials=1, command=FAKE) == 0
    said = capfd.readouterr().err
    assert "(stopped by SIGKILL): it continues from its newest checkpoint" in said and "best of 1 trials" in said


def test_two_processes_share_a_study_and_one_is_killed(tmp_path):
    """The other one takes over its trial: all trials end, none twice, and no iteration of a run was played twice."""
    file, out = tmp_path / "search.toml", tmp_path / "out"
    file.write_text(SEARCH.replace("seeds = 2", "seeds = 1").replace("anneal_lr = {choices = [true, false]}",
                                                                     "gamma = {low = 0.9, high = 0.99}"))
    program = (f"import sys; from proximo.bench.tune.main import tune; from proximo.cli.messages import exit_code; "
               f"sys.exit(exit_code(lambda: tune({str(file)!r}, out={str(out)!r}, command={FAKE!r})))")
    both = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True,
                             env=os.environ | {"FAKE_SECONDS": seconds}) for seconds in ("30", "2")]
    deadline = time.monotonic() + 60
    while len(list(out.glob("CartPole-v1/*/1/checkpoints/00000001"))) < 2:  # both have begun
        assert time.monotonic() < deadline
        time.sleep(0.05)
    both[0].kill()
    both[0].communicate()
    said = both[1].communicate(timeout=90)[1]
    assert both[1].returncode == 0 and "best of 4 trials" in said, said
    trials = study_of(out).trials
    assert [trial.state.name for trial in trials].count("COMPLETE") == 4
    assert "was interrupted. It continues as a new trial" in said
    (lost,) = [trial for trial in trials if trial.state.name == "FAIL"]
    assert len({json.dumps(trial.params) for trial in trials}) == 4
    assert [trial.params for trial in trials].count(lost.params) == 2
    for run_dir in out.glob("CartPole-v1/*/1"):
        lines = (run_dir / "metrics.csv").read_text().splitlines()[1:]
        assert [line.split(",")[0] for line in lines] == [str(k) for k in range(1, 21)]
    assert not list((out / "workers").glob("*/.lock"))


def test_a_trial_that_is_queued_again_has_the_reports_of_the_interrupted_one(file, tmp_path, monkeypatch):
    """The pruner compares them with those of other trials, as if there had been no interruption."""
    monkeypatch.setattr("proximo.bench.tune.main._run_job", lambda *_: 7.0)
    search, study = load_search(file), optuna.create_study(direction="maximize")
    shared = SharedStudy(study=study, folder=tmp_path, worker="", halt=Halt(), first=0)
    context = Context(search=search, work=SimpleNamespace(folder=tmp_path), shared=shared, trials=1)
    lost = study.ask()
    values = suggest(lost, search.space)
    for step, value in ((1, 20.0), (2, 30.0)):
        lost.report(value, step)
    study.tell(lost, state=optuna.trial.TrialState.FAIL)
    queue_again(study, study.trials[0])
    again = study.ask()
    assert _run_trial(again, context) == 7 and suggest(again, search.space) == values
    assert study.trials[1].intermediate_values == {1: 20.0, 2: 30.0}


@pytest.mark.parametrize("before, after, told", [
    ("steps = 10000", "steps = 20000", "steps=10000 instead of 20000"),
    ("seeds = 2", "seeds = [3]", "seeds=[1, 2] instead of [3]"),
    ('["CartPole-v1"]', '["Acrobot-v1"]', 'env_ids=["CartPole-v1"] instead of ["Acrobot-v1"]'),
    ('variant = "ppo"', 'variant = "ppo"\nmetric = "episodic_length"', 'metric="episodic_return" instead of "episodic_length"'),
    ("[space]", "[overrides]\ngamma = 0.9\n[space]", "overrides.gamma=nothing instead of 0.9"),
    ("[true, false]", "[true]", 'space.anneal_lr={"choices": [true, false]} instead of {"choices": [true]}'),
    ('"anneal or not"', '"another"', "title='anneal or not' instead of 'another'"),
])
def test_a_file_whose_scores_mean_something_else_is_refused(file, tmp_path, before, after, told):
    """The folder keeps its best trial, and the sentence says what differs."""
    out = tmp_path / "out"
    assert tune(file, out=out, trials=1, command=FAKE) == 0
    best = (out / "best.json").read_text()
    file.write_text(SEARCH.replace(before, after))
    with pytest.raises(UsageError, match="contains another search") as fault:
        tune(file, out=out, command=FAKE)
    assert told in str(fault.value) and "--out" in str(fault.value)
    assert (out / "best.json").read_text() == best and len(study_of(out).trials) == 1


def test_a_search_continues_with_more_trials_and_another_pruner(file, tmp_path):
    """So do another seed of the sampler and settings that only watch the runs."""
    out = tmp_path / "out"
    assert tune(file, out=out, trials=1, command=FAKE) == 0
    file.write_text(SEARCH.replace("trials = 4", "trials = 3\nsampler_seed = 7").replace('"none"', '"median"').replace(
        "[space]", "[overrides]\nlogger = \"none\"\n[space]"))
    assert tune(file, out=out, command=FAKE) == 0
    assert len(study_of(out).trials) == 3


def test_the_study_of_a_storage_is_compared_too(file, tmp_path):
    """Two folders share a study in SQLite; --out would not help there."""
    storage = f'storage = "sqlite:///{tmp_path / "studies.db"}"\n'
    file.write_text(storage + SEARCH)
    assert tune(file, out=tmp_path / "one", trials=1, command=FAKE) == 0
    file.write_text(storage + SEARCH.replace("10000", "20000"))
    with pytest.raises(UsageError, match="'anneal or not' of the storage contains another search.*another title"):
        tune(file, out=tmp_path / "two", trials=1, command=FAKE)


def test_a_study_that_recorded_nothing_continues_with_a_warning(file, tmp_path, capsys):
    """As of earlier versions; from then on it is compared."""
    out = tmp_path / "out"
    out.mkdir()
    study = optuna.create_study(study_name="anneal or not", storage=journal(out), direction="maximize")
    study.tell(study.ask(), 1.0)
    assert tune(file, out=out, trials=2, command=FAKE) == 0
    assert "begun by an earlier version" in capsys.readouterr().err
    file.write_text(SEARCH.replace("10000", "20000"))
    with pytest.raises(UsageError, match="steps=10000 instead of 20000"):
        tune(file, out=out, command=FAKE)


SPACES = {
    "gamma = {low = 0.9, high = 1.5}": "space: gamma=1.5 must be between",
    "gamma = [0.9, 0.99]": "space: gamma=[0.9, 0.99] is not allowed. Use {low, high}",
    "gamma = {low = -1.0, high = 0.9}": "space: gamma=-1.0 must be between",
    "num_minibatches = {choices = [4, 0]}": "space: num_minibatches=0 must be at least 1",
    'activation = {choices = ["tanh", "foo"]}': "space: activation='foo' is not allowed",
    "update_epochs = {low = 1.0, high = 8.0}": "space: update_epochs is a whole number",
    "gae_lambda = {low = 0, high = 1}": "space: gae_lambda would get whole numbers only, because both bounds are. Write low = 0.0 and high = 1.0",
    "learning_rate = {low = 1e-4, high = 1e-2, logg = true}": "space: learning_rate: logg is unknown. Use low and high, also with log, or choices.",
    "learning_rate = {low = 1e-4, high = inf}": "space: learning_rate: high=inf is not a finite number.",
    f"num_steps = {{low = 1, high = 1{'0' * 400}}}": "is not a finite number. Bounds are numbers",  # above every float
    "hidden_sizes = {choices = [[64, 64], [0]]}": "space: hidden_sizes=0 must be at least 1",
    "num_minibatches = {choices = [4, 3]}": "space: no trial is possible with num_minibatches=3: batch_size=512",
}


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.split()[0])
def test_impossible_values_are_refused_before_the_first_trial(file, space):
    """Both ends, every choice, and values that fit no other value."""
    file.write_text(SEARCH + space)
    with pytest.raises(UsageError) as fault:
        load_search(file)
    assert SPACES[space] in str(fault.value)


@pytest.mark.parametrize("space, sentences", [
    ("learning_rate = {low = 1e-2, high = 1e-4, choices = [1]}",
     ["learning_rate has choices and low, high. Use either", "learning_rate: low=0.01 must be below high=0.0001."]),
    ('clip_coef = {low = "a", high = -1}', ["clip_coef: low='a' is not a finite number.", "clip_coef=-1.0 must be above 0"]),
    ("gamma = {low = 1.5, high = -1.0}",
     ["gamma: low=1.5 must be below high=-1.0.", "gamma=1.5 must be between", "gamma=-1.0 must be between"]),
    ("gamma = {low = 0.9}", ["gamma: high is missing. Write both bounds"]),
    ("gamma = {high = 1.5}", ["gamma: low is missing. Write both bounds", "gamma=1.5 must be between"]),
    ("gamma = {low = 0.9, high = 0.9}", ["gamma: low=0.9 must be below high=0.9. Put one value into [overrides]."]),
    ("ent_coef = {low = 0.0, high = 0.1, log = true}", ["ent_coef: low=0.0 must be above 0 with log = true."]),
    ("ent_coef = {low = 0.01, high = 0.1, log = 1}", ["ent_coef: log=1 is not allowed. Use true or false."]),
    ("gamma = {choices = []}", ["gamma: choices is empty."]), ("gamma = {choices = 0.9}", ["gamma: choices=0.9 is not a list."]),
    ("gamma = {choices = [0.9, 0.99, 0.9]}", ["gamma: choices has a value twice: 0.9. Name each value once."]),
    ("hidden_sizes = {choices = [[8], [8]]}", ["hidden_sizes: choices has a value twice: [8]. Name each value once."]),
    ("gamma = {choices = [0.9], log = true}", ["gamma has choices and log. Use either"]),
    ("gamma = {}", ["gamma={} is not allowed. Use {low, high}"])])
def test_the_rule_that_a_range_breaks_is_named(space, sentences, file):
    """And in the same pass a value that the field does not allow."""
    file.write_text(SEARCH + space)
    with pytest.raises(UsageError) as fault:
        load_search(file)
    lines = str(fault.value).splitlines()
    assert len(lines) == len(sentences) and all(f"space: {part}" in line for part, line in zip(sentences, lines)), lines


def test_fields_that_the_search_itself_sets_are_refused(file):
    """The sentence spoke of a benchmark and of its command line."""
    file.write_text(SEARCH.replace("[space]", '[overrides]\nrun_dir = "x"\ngama = 1\n[space]') + "seed = {choices = [1, 2]}\n"
                    'env_id = {choices = ["A-v0"]}\ntotal_timesteps = {low = 1, high = 2}')
    with pytest.raises(UsageError) as fault:
        load_search(file)
    assert [line.partition(": ")[2] for line in str(fault.value).splitlines()] == [
        "overrides: run_dir is set by the flag --out. Leave it out of [overrides].",
        "space: seed is set by the key seeds. Leave it out of [space].",
        "space: env_id is set by the key env_ids. Leave it out of [space].",
        "space: total_timesteps is set by the key steps. Leave it out of [space].",
        "ppo has no field gama. Did you mean gamma?"]


@pytest.mark.parametrize("space, trials, said", [
    ("", 2, ""), ("", 3, "[space] has 2 combinations of values for 3 trials: the other trials repeat values"),
    ("update_epochs = {low = 2, high = 4}", 6, ""), ("update_epochs = {low = 2, high = 4}", 7, "has 6 combinations"),
    ("gamma = {low = 0.9, high = 0.99}", 1000, "")])
def test_a_search_says_that_trials_repeat_values(space, trials, said, file, tmp_path, capsys):
    """Four trials of two values were trained without a word."""
    file.write_text(SEARCH + space)
    with printed_messages():
        report_start(load_search(file), tmp_path, trials)
    assert said in (err := capsys.readouterr().err) and ("combination" in err) == bool(said)


def test_impossible_values_are_named_at_once(file):
    """One sentence for each; the values that fit give none."""
    alone = [line for line in SPACES if line.split()[0] in ("activation", "update_epochs", "hidden_sizes")]
    file.write_text(SEARCH + "\n".join([*alone, "num_minibatches = {choices = [4, 3]}", "gamma = {low = 0.9, high = 1.0}"]))
    with pytest.raises(UsageError) as fault:
        load_search(file)
    assert len(str(fault.value).splitlines()) == 4


def test_values_that_fit_some_others_are_allowed(file):
    """3 minibatches need a number of steps that 3 divides, which only some trials have."""
    file.write_text(SEARCH + "num_minibatches = {choices = [3, 4]}\nnum_steps = {low = 100, high = 200}")
    assert load_search(file).space["num_steps"] == {"low": 100, "high": 200}


def test_steps_that_are_too_few_for_every_trial_are_said_once(file):
    file.write_text(SEARCH.replace("10000", "100"))
    with pytest.raises(UsageError, match="no trial is possible .*total_timesteps=100 is less than one batch") as fault:
        load_search(file)
    assert len(str(fault.value).splitlines()) == 1


def test_the_reason_of_an_impossible_trial_is_said(file, tmp_path, capsys):
    """Three minibatches cannot divide 101 steps of four environments."""
    file.write_text(SEARCH.replace("anneal_lr = {choices = [true, false]}",
                                   "num_minibatches = {choices = [3, 4]}\nnum_steps = {choices = [101, 102]}"))
    assert tune(file, out=tmp_path / "out", trials=12, command=FAKE) == 0
    said = capsys.readouterr().err
    assert "impossible num_minibatches=3 num_steps=101" in said
    assert "batch_size=404 is not divisible by num_minibatches=3" in said


@pytest.mark.filterwarnings("error")
def test_choices_may_be_lists(file, tmp_path):
    """best.json has the list, the run has the network, and Optuna has nothing to warn of."""
    file.write_text(SEARCH.replace("anneal_lr = {choices = [true, false]}", "hidden_sizes = {choices = [[32, 16], [8]]}"))
    out = tmp_path / "out"
    assert tune(file, out=out, trials=2, command=FAKE) == 0
    best = json.loads((out / "best.json").read_text())["params"]
    assert best["hidden_sizes"] in ([32, 16], [8])
    folder = study_of(out).best_trial.user_attrs["folder"]
    words = json.loads((out / "CartPole-v1" / folder / "1.job.json").read_text())["command"]
    first = words.index("--hidden-sizes") + 1
    assert words[first:first + len(best["hidden_sizes"])] == list(map(str, best["hidden_sizes"]))


def test_the_page_lists_every_key_of_a_search(tmp_path, capsys):
    """The table of docs/searches.md has what the reader accepts, its example is a search, and the help names the file."""
    page = (ROOT / "docs" / "searches.md").read_text().partition("## Hyper-parameter search\n")[2].partition("\n## ")[0]
    keys = [key.strip("[]") for key in re.findall(r"^\| `(\S+)` \|", page, re.M)]
    assert sorted(keys) == sorted(SEARCH_KEYS) == sorted(SearchFile.__annotations__)
    example, _ = re.findall(r"```toml\n(.*?)```", page, re.S)
    (tmp_path / "example.toml").write_text(example)
    assert load_search(tmp_path / "example.toml").trials == 30
    assert load_search(ROOT / "benchmarks" / "tune" / "cartpole.toml").name == "tune_cartpole"
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    said = capsys.readouterr().out
    assert "benchmarks/tune/cartpole.toml" in said and "docs/searches.md" in said


def test_a_full_disk_does_not_damage_the_study(file, tmp_path):
    """The part of a line that was written is cut off; otherwise the line after it makes the study unreadable."""
    study = optuna.create_study(study_name="anneal or not", storage=journal(tmp_path))
    path = tmp_path / "study.journal"
    before = path.read_bytes()
    with full_disk(len(before) + 10), pytest.raises(FilesError, match="study.journal could not be written"):
        study.set_user_attr("a", "x")
    assert path.read_bytes() == before
    study.set_user_attr("b", "y")
    assert study_of(tmp_path).user_attrs == {"b": "y"}


def test_a_part_of_a_line_that_a_crash_has_left_does_not_damage_the_study(file, tmp_path):
    """Without the removal Optuna reads it and the next line as one, and no later line."""
    study = optuna.create_study(study_name="anneal or not", storage=journal(tmp_path))
    with (tmp_path / "study.journal").open("a") as file:
        file.write('{"op_code":2,"wor')
    study = study_of(tmp_path)
    study.set_user_attr("a", "x")
    study.set_user_attr("b", "y")
    assert study_of(tmp_path).user_attrs == {"a": "x", "b": "y"}


@pytest.mark.parametrize("content", ["garbage\n", "[1]\n", "{}\n", "\udcff\n{\n"])
def test_a_damaged_study_is_one_sentence(content, file, tmp_path, capsys):
    """And after its advice was followed, finished runs count."""
    out = tmp_path / "out"
    assert tune(file, out=out, command=FAKE) == 0
    best, runs = (out / "best.json").read_text(), {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    path = out / "study.journal"
    path.write_text(content + path.read_text(), errors="surrogateescape")
    assert main(["tune", str(file), "--out", str(out)]) == 5
    said = capsys.readouterr().err
    assert f"{path} is damaged" in said and "Move it to another place" in said and "Traceback" not in said
    path.rename(tmp_path / "old.journal")
    assert tune(file, out=out, command=FAKE) == 0
    assert (out / "best.json").read_text() == best
    assert {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")} == runs


def test_a_search_without_a_result_may_be_corrected(file, tmp_path):
    """Its first trial was refused; with a result, the same change would be."""
    out = tmp_path / "out"
    file.write_text(SEARCH.replace("[space]", "[space]\nlog_std_init = { low = -2.0, high = -1.0 }"))
    refusing = (sys.executable, "-c", "import sys; print('proximo: log_std_init has no effect.'); sys.exit(2)")
    with pytest.raises(UsageError, match="has no effect"):
        tune(file, out=out, trials=1, command=refusing)
    file.write_text(SEARCH.replace("[space]", "[space]\nlog_std_init = { low = -1.0, high = 0.0 }"))
    with pytest.raises(UsageError, match="contains another search"):  # Optuna would not take the other range
        tune(file, out=out, trials=1, command=FAKE)
    file.write_text(SEARCH)
    assert tune(file, out=out, trials=1, command=FAKE) == 0


@pytest.mark.parametrize("command", ["tune", "bench"])
def test_a_script_in_another_folder_is_allowed_as_the_sentence_says(command, tmp_path, monkeypatch, capsys):
    """A path of the file begins at the working directory. What the sentence tells to write is accepted."""
    script, path = tmp_path / "a b" / "ware.py", tmp_path / "file.toml"
    script.parent.mkdir()
    script.touch()
    task = 'variant = "ppo"\nenv_ids = ["Ware-v0"]\nsteps = 10000\n'
    script_line = '[overrides]\nenv_file = "ware.py:Ware"\n'
    path.write_text(task + script_line + "[space]\ngamma = {low = 0.9, high = 0.99}\n" if command == "tune" else
                    script_line + "[[run]]\n" + task)
    monkeypatch.chdir(tmp_path)
    assert main([command, str(path)]) == 2
    assert 'write env_file = "/PATH/ware.py:Ware"' in capsys.readouterr().err
    assert main([command, str(path), "--allow-import", "a b/ware.py"]) == 2
    said = capsys.readouterr().err
    line, allowed = re.search(r"there is no .*ware\.py\..* write (env_file = .*) in .* and add --allow-import (.*)\.$", said).groups()
    assert (line, allowed) == (f'env_file = "{script.as_posix()}:Ware"', shlex.quote(script.as_posix()))
    path.write_text(path.read_text().replace('env_file = "ware.py:Ware"', line))
    rows = [load_search(path).row] if command == "tune" else load_set(path).rows
    check_set_imports(rows, shlex.split(allowed), path)
    with pytest.raises(UsageError, match="whose code would run on this machine"):
        check_set_imports(rows, [], path)


@pytest.mark.parametrize("field", ["env_file", "env_wrappers"])
@pytest.mark.parametrize("command", ["tune", "pbt"])
def test_a_space_names_no_code(command, field, tmp_path, capsys):
    """Scripts among the choices were run without --allow-import."""
    script = tmp_path / "evil.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    path = tmp_path / "search.toml"
    path.write_text(f'variant = "ppo"\n{"env_ids" if command == "tune" else "env_id"} = '
                    f'{["Some-v0"] if command == "tune" else "Some-v0"!r}\nsteps = 1000\n[space]\n{field} = '
                    f'{{choices = ["{script}"]}}\n'.replace("'", '"'))
    assert main([command, str(path), "--out", str(tmp_path / "out")]) == 2
    assert f"space: {field} names environments, which are those of the whole file." in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_trials_that_still_train_elsewhere_are_said(file, tmp_path, capsys):
    """The process that ends first has no result of the others."""
    study = optuna.create_study(direction="maximize")
    trials = [study.ask(), study.ask()]
    suggest(trials[0], load_search(file).space)
    study.tell(trials[0], 1.0)
    with printed_messages():
        assert report_best(study, tmp_path, load_search(file)) == 0
    assert "1 trial of other processes is still training. The last process writes best.json again." in capsys.readouterr().err
