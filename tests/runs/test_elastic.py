"""Runs whose number of processes changes: which sizes they continue with, and where they end."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proximo.cli.main import main
from proximo.config import Config
from proximo.errors import FilesError
from proximo.problems import check_shares
from proximo.runs.elastic import continue_schedule, fit_to_processes
from proximo.variants import SelfPlay
from tests.support.runs import train


@pytest.mark.parametrize("fields,processes,sizes", [
    ({"num_envs": 12}, 1, (12, 4)), ({"num_envs": 12}, 3, (12, 4)), ({"num_envs": 12}, 5, (10, 4)),
    ({"num_envs": 64, "num_minibatches": 7}, 3, (63, 7)), ({"num_envs": 64, "num_minibatches": 6}, 5, (60, 6)),
    ({"num_envs": 12, "recurrent": "lstm"}, 2, (12, 3)), ({"num_envs": 4}, 6, (4, 4)),
    ({"local_num_envs": 3, "num_envs": 6}, 5, (15, 4)), ({"local_num_envs": 3, "num_envs": 6}, 1, (3, 4))])
def test_sizes_are_chosen_by_the_rule(fields, processes, sizes):
    fitted = fit_to_processes(Config(**fields), processes)
    assert (fitted.num_envs, fitted.num_minibatches) == sizes


def test_worker_processes_are_counted_for_each_process_and_games_stay_whole():
    """What the rule chooses can be trained."""
    fitted = fit_to_processes(Config(num_envs=12, env_workers=6), 3)
    assert fitted.env_workers == 4
    check_shares(fitted, 3, "processes")
    assert fit_to_processes(Config(num_envs=18, env_workers=4, env_groups=2), 3).env_workers == 2, "as many for each group"
    assert [fit_to_processes(SelfPlay(num_envs=30), processes).num_envs for processes in (2, 4, 16)] == [30, 16, 16]


@given(st.integers(1, 200), st.integers(1, 64), st.integers(1, 64), st.integers(2, 16), st.booleans())
def test_chosen_sizes_can_be_divided_and_choosing_again_changes_nothing(num_envs, steps, minibatches, processes, memory):
    cfg = Config(num_envs=num_envs, num_steps=steps, num_minibatches=minibatches, total_timesteps=100_000,
                 recurrent="lstm" if memory else "none")
    fitted = fit_to_processes(cfg, processes)
    assert fit_to_processes(fitted, processes) == fitted
    assert fitted.num_envs <= num_envs and fitted.num_minibatches <= minibatches
    if num_envs >= processes:
        assert num_envs - fitted.num_envs < processes
        check_shares(fitted, processes, "processes")


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=6), st.integers(40 * 8, 5000))
def test_steps_and_schedules_continue_through_any_changes(segments, total):
    """Against a count of steps: however often the number of environments changes, a run plays no step twice, ends less
    than one (largest) batch before or after total_timesteps, and its schedule follows the share of steps played."""
    cfg = Config(num_steps=8, num_envs=segments[0][0], total_timesteps=total, learning_rate=1.0)
    steps = iteration = 0
    for num_envs, length in [*segments, (segments[-1][0], 10**6)]:
        checkpoint = {"fixed": {"num_envs": cfg.num_envs, "iteration_shift": cfg.iteration_shift},
                      "state": {"iteration": iteration, "steps": steps}}
        cfg = continue_schedule(replace(cfg, num_envs=num_envs), checkpoint if iteration else None)
        assert continue_schedule(cfg, checkpoint | {"fixed": {"num_envs": num_envs, "iteration_shift": cfg.iteration_shift}}) == cfg
        for _ in range(length):
            if iteration >= cfg.num_iterations:
                break
            iteration += 1
            remaining = cfg.learning_rate_at(iteration)
            assert 0 < remaining <= 1
            assert remaining == pytest.approx(1 - steps / total, abs=1.01 * cfg.batch_size / total)
            steps += cfg.batch_size
    assert total - 40 * 8 < steps < total + 40 * 8
    assert iteration >= cfg.num_iterations


def test_a_finished_run_stays_finished():
    cfg = Config(num_envs=12, num_steps=8, total_timesteps=1000)
    checkpoint = {"fixed": {"num_envs": 12}, "state": {"iteration": 10, "steps": 960}}
    assert cfg.num_iterations == 10
    assert continue_schedule(replace(cfg, num_envs=4), checkpoint).num_iterations == 10
    assert continue_schedule(replace(cfg, num_envs=4, total_timesteps=2000), checkpoint).num_iterations == 10 + 32


def test_an_unfinished_run_has_an_iteration_left_where_its_steps_are_fewer_than_a_larger_batch():
    """136 of 1,000 steps: one more iteration goes beyond total_timesteps, otherwise the run would end before them."""
    cfg = Config(num_envs=12, num_steps=8, total_timesteps=1000)
    checkpoint = {"fixed": {"num_envs": 12}, "state": {"iteration": 9, "steps": 864}}
    assert continue_schedule(replace(cfg, num_envs=48), checkpoint).num_iterations == 10


def test_a_checkpoint_without_environments_is_damaged():
    with pytest.raises(FilesError, match="has num_envs=0. Move the newest folder of checkpoints/ to"):
        continue_schedule(Config(), {"fixed": {"num_envs": 0}, "state": {"iteration": 1, "steps": 1}})


def test_only_a_resume_sets_the_shift(tmp_path, capsys):
    assert train(tmp_path / "run", "--iteration-shift", "3") == 2
    assert "iteration_shift=3 was given. A resume that changes num_envs sets it." in capsys.readouterr().err
    assert train(tmp_path / "run") == 0
    assert main(["resume", str(tmp_path / "run"), "--iteration-shift", "3"]) == 2
    assert "iteration_shift=3 was given. A resume that changes num_envs sets it." in capsys.readouterr().err
