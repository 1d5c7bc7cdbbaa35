"""What a failed run does to a search, by its exit code; test_tune.py runs whole searches."""

from pathlib import Path

import pytest

from proximo.bench.tune_failure import TrialRunError, failure_of
from proximo.errors import FilesError

pytest.importorskip("optuna")


@pytest.mark.parametrize(("code", "kind"), [(3, TrialRunError), (5, FilesError)])
def test_a_run_with_an_empty_log(code, kind):
    """A full disk may leave it empty, and is the fault that must be told."""
    error = failure_of(trial=None, study=None, code=code, folder=Path("runs/one"), lines="")
    assert type(error) is kind and str(error).startswith("runs/one: ")
