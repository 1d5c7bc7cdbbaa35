"""Environments that misbehave, in the process and in workers: exit code 3, the environment and the step by name."""

import pytest

from tests.support.faults import check_end, end_of
from tests.support.runs import SMALL

pytestmark = pytest.mark.area("Environments that misbehave")

SECONDS = 20  # the limit of a worker that hangs, which must start within it, also on a busy machine
FAULTS = [("raises", "the motor is on fire"), ("nan_obs", "observation is not finite"),
          ("inf_reward", "reward"), ("no_reward", ""), ("wrong_shape", "shape (1,)"), ("four_values", "")]


def train(tmp_path, how, *words):
    return ["train", "ppo", *SMALL, "--env-id", f"tests.support.probes:Faulty_{how}-v0", "--env-kwargs", "at=71",
            "--run-dir", str(tmp_path / "run"), *words]


@pytest.mark.parametrize(("how", "part"), FAULTS)
def test_a_fault_in_the_process(how, part, tmp_path, capsys):
    check_end(end_of(capsys, *train(tmp_path, how)), 3, "environment 0", part, "step 71")
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.faults
@pytest.mark.parametrize(("how", "part"), [*FAULTS, ("dies", "SIGKILL"), ("hangs", f"did not answer within {SECONDS} s"),
                                           ("stuck", f"did not answer within {SECONDS} s")])
def test_a_fault_in_a_worker(how, part, tmp_path, capsys):
    end = end_of(capsys, *train(tmp_path, how, "--env-workers", "2", "--env-timeout", SECONDS))
    check_end(end, 3, "environment", part, "step 71")


@pytest.mark.faults
@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("how", ["dies", "hangs", "stuck"])
def test_a_worker_that_is_lost_is_replaced(how, framework, tmp_path, capsys):
    """Both workers are lost at step 71, and again at step 142."""
    end = end_of(capsys, *train(tmp_path, how, "--env-workers", "2", "--env-timeout", SECONDS, "--restart-envs", "4",
                                "--framework", framework))
    check_end(end, 0, "replaced (restart 4 of 4)")
    assert (tmp_path / "run" / "summary.json").exists()
