"""What a failed run does to a search, by its exit code; test_tune.py runs whole searches."""

from pathlib import Path

import pytest

from proximo.bench.tune.failure import TrialRefusedError, TrialRunError, failure_of
from proximo.bench.tune.messages import report_best
from proximo.bench.tune.search import load_search
from proximo.bench.tune.study import NOT_FINITE, REASON
from proximo.errors import FilesError

optuna = pytest.importorskip("optuna")


@pytest.mark.parametrize(("code", "kind"), [(3, TrialRunError), (5, FilesError)])
def test_a_run_with_an_empty_log(code, kind):
    """A full disk may leave it empty, and is the fault that must be told."""
    error = failure_of(trial=None, study=None, code=code, folder=Path("runs/one"), lines="")
    assert type(error) is kind and str(error).startswith("runs/one: ")


def test_a_run_that_is_refused_after_impossible_trials_ends_the_search():
    """These have trained nothing, so the run is the first one. After a trial that was given up, its values may be the cause."""
    study = optuna.create_study(direction="maximize")
    for key, kind in ((REASON, TrialRefusedError), ("other", TrialRunError)):
        trial = study.ask({})
        trial.set_user_attr(key, "these sizes cannot be divided")
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        error = failure_of(trial=None, study=study, code=2, folder=Path("runs/one"), lines="env_id=X is unknown.")
        assert type(error) is kind


def test_a_search_whose_numbers_are_all_infinite_says_what_to_change(tmp_path, caplog):
    """Not where other trials have failed for another reason."""
    (tmp_path / "search.toml").write_text('variant = "ppo"\nenv_ids = ["CartPole-v1"]\nsteps = 10000\n[space]\ngamma = {low = 0.9, high = 0.99}\n')
    search, study = load_search(tmp_path / "search.toml"), optuna.create_study(direction="maximize")
    for state, key in (("PRUNED", NOT_FINITE), ("PRUNED", NOT_FINITE), ("FAIL", REASON)):
        trial = study.ask({})
        trial.set_user_attr(key, "a run")
        study.tell(trial, state=optuna.trial.TrialState[state])
        caplog.clear()
        assert report_best(study, tmp_path, search) == 1
        assert ("Narrow the ranges of [space], such as the largest learning_rate" in caplog.text) == (state == "PRUNED")
        assert "The logs are" in caplog.text
