"""Making environments of which a process can have only one, as those of stable-retro."""

import csv

import pytest

import proximo
from proximo.envs.gym_loop import GymEnvs
from proximo.errors import EnvError
from tests.support.probes import Probe


class Alone(Probe):
    """Cannot be made while another one is open."""

    open = []

    def __init__(self):
        if self.open:
            raise RuntimeError("one emulator for each process")
        self.open.append(self)

    def close(self):
        if self in self.open:
            self.open.remove(self)


def test_training_says_how_each_gets_a_process(tmp_path):
    """And what was made before is closed."""
    with pytest.raises(EnvError, match="one emulator .*: as many --env-workers as --num-envs.$"):
        proximo.train("ppo", env=Alone, num_envs=2, env_workers=0, logger="none", run_dir=tmp_path / "run")
    assert not Alone.open


def test_the_first_environment_has_no_such_advice():
    def broken():
        raise EnvError("no licence")

    with pytest.raises(EnvError, match="^no licence$"):
        GymEnvs(broken, [1, 2], "Broken-v0")


def test_the_check_says_how_each_gets_a_process():
    """It ends there, with the code of an environment that fails, because the defaults of training fail."""
    *others, last = proximo.check_env(Alone)
    assert last.what.startswith("a second one cannot be made while one is open: Alone could") and "one emulator" in last.what
    assert last.advice.startswith("Training with --num-envs 1 works") and last.ends
    assert "as many --env-workers as --num-envs" in last.advice
    assert all(finding.ok for finding in others) and not Alone.open


def test_one_environment_trains_and_the_evaluation_says_how_it_gets_a_process(tmp_path, caplog):
    proximo.train("ppo", env=Alone, num_envs=1, num_steps=32, total_timesteps=32, eval_every=32, env_workers=0,
                  logger="none", run_dir=tmp_path / "run")
    (said,) = [one.message for one in caplog.records if one.message.startswith("No evaluation after 32 steps")]
    assert said.endswith("one, use --env-workers and --eval-num-envs 1.") and "one emulator" in said
    assert not Alone.open


def test_evaluations_open_as_many_environments_as_they_are_told(tmp_path):
    """One after the other plays all episodes, where training has a process for its own environment."""
    run = proximo.train("ppo", env=Alone, num_envs=1, num_steps=32, total_timesteps=32, eval_every=32, eval_episodes=3,
                        eval_num_envs=1, env_workers=1, logger="none", run_dir=tmp_path / "run")
    (row,) = csv.DictReader((run / "metrics.csv").read_text().splitlines())
    assert float(row["eval/length_mean"]) > 0 and not Alone.open
