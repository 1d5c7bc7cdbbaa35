"""Several processes train as one (detail A2): two under torchrun, two nodes on loopback, resumes and lost processes."""

import json
import shutil
import time
from itertools import chain

import numpy as np
import pytest

from proximo.cli.main import main
from proximo.config import Config
from proximo.runs.folder.run import Run, write_config
from tests.support.replicas import CASES
from tests.support.runs import rows, same_logs, same_weights
from tests.support.torchrun import (
    free_port,
    launch,
    load_weights,
    run_lines_on_two_ranks,
    run_two_nodes,
    same_on_both,
    start,
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Run every case under one torchrun; return the folder that both ranks wrote to."""
    folder = tmp_path_factory.mktemp("pair")
    process = launch("tests.support.replicas", folder, *CASES, "command")
    stderr = process.communicate(timeout=300)[1]
    assert process.returncode == 0, stderr
    return folder


def test_torchrun_leaves_no_folder_of_logs_behind(tmp_path):
    """PET_LOG_DIR in tests/conftest.py is what it reads."""
    process = launch("this", tmp_path, TMPDIR=str(tmp_path))
    assert "Beautiful is better" in process.communicate(timeout=120)[0] and process.returncode == 0
    assert not list(tmp_path.glob("torchelastic_*"))


def read_results(folder, case, rank):
    return json.loads((folder / f"{case}{rank}.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_replicas_are_bit_identical(case, pair):
    """Weights, statistics of normalisation and all logged numbers, after the environments were made again twice."""
    one, other = load_weights(pair, case, 0), load_weights(pair, case, 1)
    assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    results = [read_results(pair, case, rank) for rank in (0, 1)]
    iterations = results[0]["iterations"]
    assert iterations == results[1]["iterations"] and len(iterations) == CASES[case].num_iterations
    assert all(results[0][name] == results[1][name] for name in ("obs_mean", "ret_var"))
    assert (results[0]["obs_mean"] is not None) == CASES[case].norm_obs
    assert iterations[-1]["steps"] == CASES[case].total_timesteps


@pytest.mark.parametrize("case", CASES)
def test_seeds_of_environments_never_coincide(case, pair):
    """Neither between ranks, nor between environments before and after they were made again."""
    all_seeds = [seeds for rank in (0, 1) for seeds in read_results(pair, case, rank)["seeds"]]
    count = CASES[case].num_iterations
    assert len(all_seeds) == 2 * (1 + (count - 1) // CASES[case].checkpoint_every)
    assert all(len(seeds) == CASES[case].num_envs // 2 for seeds in all_seeds)
    assert len(set(chain(*all_seeds))) == sum(map(len, all_seeds))


def test_all_ranks_stop_at_the_same_epoch(pair):
    """target_kl: fewer minibatches than without it, and the same number on both ranks."""
    steps = [[it["minibatches"] for it in read_results(pair, "target_kl", rank)["iterations"]] for rank in (0, 1)]
    cfg = CASES["target_kl"]
    assert steps[0] == steps[1] and steps[0][-1] % cfg.num_minibatches == 0
    assert cfg.num_iterations * cfg.num_minibatches <= steps[0][-1]
    assert steps[0][-1] < cfg.num_iterations * cfg.num_minibatches * cfg.update_epochs


def test_two_processes_learn(pair):
    """A probe whose reward depends on action and observation, with half of the environments on each rank. Episodes of
    both ranks are counted."""
    last = read_results(pair, "acting", 0)["iterations"][-1]
    assert np.mean(last["returns"]) > 0.9 and len(last["returns"]) == CASES["acting"].batch_size
    assert set(last["rows"]) == set(range(CASES["acting"].num_envs))


def test_only_the_first_process_writes(pair):
    assert [(pair / f"code{rank}").read_text() for rank in (0, 1)] == ["0", "0"]
    lines = (pair / "run" / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [["1", "64"], ["2", "128"], ["3", "192"]]
    assert json.loads((pair / "run" / "summary.json").read_text())["steps"] == 192


def test_only_the_first_process_writes_the_configuration(tmp_path, monkeypatch):
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    write_config(Run(tmp_path / "run", Config(), "ppo"))
    assert not (tmp_path / "run").exists()


def copy_until_4(run, copy):
    """Copy a run as it was between its checkpoints 4 and 8."""
    shutil.copytree(run, copy)
    (copy / "summary.json").unlink()
    for name in ("00000008", "00000010"):
        shutil.rmtree(copy / "checkpoints" / name)
    return copy


def test_two_processes_resume_exactly(tmp_path, capsys):
    """Resumed in the middle by two processes, against the uninterrupted run, with and without normalisation. Another
    number of processes resumes it too, with a warning that the result differs: five environments become four, and the
    iterations that are left become smaller and more."""
    sizes = ("--num-envs 4 --num-steps 64 --num-minibatches 2 --update-epochs 2 --total-timesteps 2560 "
             "--checkpoint-every 4 --keep-checkpoints 0 --run-dir")
    commands = {"ppo": f"train ppo {sizes}", "pendulum": f"train ppo_continuous_action --env-id Pendulum-v1 {sizes}"}
    run_lines_on_two_ranks([f"{words} {tmp_path / name}" for name, words in commands.items()], tmp_path)
    single = commands["ppo"].replace("--num-envs 4", "--num-envs 5").replace("2560", "3200")
    assert main([*single.split(), str(tmp_path / "single")]) == 0
    halves = {name: copy_until_4(tmp_path / name, tmp_path / f"{name}-half") for name in commands}
    fewer, more = (copy_until_4(tmp_path / run, tmp_path / name) for run, name in (("ppo", "fewer"), ("single", "more")))
    said = run_lines_on_two_ranks([f"resume {folder}" for folder in (*halves.values(), more)], tmp_path)
    assert said.count("training continues after iteration 4 of 10") == 2
    for name, half in halves.items():
        assert same_weights(tmp_path / name, half) and same_logs(tmp_path / name, half)
    assert "more was trained with 1 process and is resumed with 2." in said
    assert "more: training continues after iteration 4 of 11." in said and "Changed: num_envs 5 -> 4" in said
    steps = [int(row["global_step"]) for row in rows(more, "metrics.csv")]
    assert steps == [*range(320, 4 * 320 + 1, 320), *range(4 * 320 + 256, 4 * 320 + 7 * 256 + 1, 256)]
    assert main(["resume", str(fewer)]) == 0
    assert "was trained with 2 processes and is resumed with 1." in capsys.readouterr().err
    assert [json.loads((run / "summary.json").read_text())["steps"] for run in (more, fewer)] == [steps[-1], 2560]
    assert main(["resume", str(fewer)]) == 0  # nothing is left to do
    said = capsys.readouterr().err
    assert "all 10 iterations are done" in said and "is resumed with" not in said


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_killed_process_ends_the_other_with_exit_code_6(framework, tmp_path):
    """Without torchrun, which would end the other process itself: as if the killed one ran on another machine."""
    words = (f"proximo train ppo --framework {framework} --num-envs 4 --num-steps 16 --total-timesteps 100000000 "
             f"--checkpoint-every 1 --logger none --run-dir {tmp_path / 'run'}").split()
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "JAX_PLATFORMS": "cpu"}
    first, second = (start(words, RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in (0, 1))
    while not (tmp_path / "run" / "checkpoints").exists() and first.poll() is None:
        time.sleep(0.2)
    second.kill()
    said = first.communicate(timeout=60)[1]
    second.communicate()
    assert first.returncode == 6, said
    assert "Another process of this run has ended" in said and "Traceback" not in said


def test_a_loss_that_gloo_does_not_report_ends_the_process(tmp_path):
    """Neither the operation nor the end of the process waits for --collective-timeout (300 s)."""
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    first, second = (start(["tests.support.deaf", str(tmp_path)], RANK=str(rank), LOCAL_RANK=str(rank), **shared)
                     for rank in (0, 1))
    try:
        said = first.communicate(timeout=60)[1]
    finally:
        first.kill(), second.kill()
    second.communicate()
    assert first.returncode == 0, said
    assert (tmp_path / "said").read_text() == ("Another process of this run has ended or cannot be reached: rank 1 of 2 "
                                               "(An operation was given up after the loss of a process).")


def test_one_process_takes_one_device_id(tmp_path, capsys):
    words = ["train", "ppo_atari_multigpu", "--logger", "none", "--run-dir", str(tmp_path / "run")]
    assert main([*words, "--device-ids", "0", "0", "1", "1"]) == 2
    assert "--device-ids names 4 GPUs for 1 process. Give one id for each, such as 0." in capsys.readouterr().err


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_process_that_dies_in_training_ends_the_run(framework, tmp_path):
    """Rank 1 dies in iteration 7. Rank 0, which waits for it, ends with a sentence (or by torchrun's signal, if that is
    faster) and without a traceback. One process resumes from the checkpoint of iteration 6."""
    run = tmp_path / "run"
    words = (f"torch.distributed.run --standalone --nproc_per_node=2 -m proximo train ppo --framework {framework} "
             "--env-id tests.support.probes:Mortal-v0 --num-envs 4 --num-steps 16 --total-timesteps 640 "
             f"--checkpoint-every 2 --keep-checkpoints 0 --logger none --run-dir {run}")
    process = start(words.split(), JAX_PLATFORMS="cpu")
    said = process.communicate(timeout=200)[1]
    assert process.returncode != 0 and "exitcode  : 7" in said
    assert "Another process of this run has ended" in said or "Stopped by SIGTERM after iteration 6" in said
    assert "proximo/runs/" not in said and "proximo resume" in said
    assert main(["resume", str(run), "--allow-import", "tests"]) == 0
    assert json.loads((run / "summary.json").read_text())["steps"] == 640


def test_two_nodes_equal_one(pair, tmp_path):
    """Two torchrun agents on loopback, against one torchrun with two processes: the same weights, bit for bit."""
    run_two_nodes("tests.support.replicas", tmp_path, "cartpole")
    assert same_on_both(pair, tmp_path, "cartpole")


@pytest.mark.parametrize("words,sentence", [
    ("--device-ids 0 0 1 1", "--device-ids names 4 GPUs for 2 processes. Give one id for each, such as 0 0."),
    ("--num-envs 5 --num-minibatches 1", "num_envs=5 is not divisible by 2 processes. Use a multiple of 2."),
    ("--recurrent lstm", "Each of 2 processes has 2 rows, which are not divisible by num_minibatches=4.")])
def test_sizes_that_do_not_fit_are_one_sentence(words, sentence, tmp_path, monkeypatch, capsys):
    """Reported before the processes meet, so that none waits for another."""
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert main(["train", "ppo", *words.split(), "--logger", "none", "--run-dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert sum(sentence in line for line in said) == 1 and sentence in said[-1]
    assert not (tmp_path / "run").exists()
