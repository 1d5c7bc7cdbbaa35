"""Several processes as one (detail A2): torchrun with two, two nodes on loopback, and the averaging by itself."""

import json
import shutil
import threading
import time
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch

from proximo.cli.main import main
from proximo.config import Config
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.learner import draw, explained_variance, flat_batch, make_learner, normalized_advantage, update
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.networks import mlp
from proximo.on_torch.optimizer import flat_adam
from proximo.on_torch.rollout import Rollout
from proximo.runs.run import write_config
from tests.support.replicas import CASES
from tests.support.runs import same_logs, same_weights
from tests.support.torchrun import free_port, launch, play_lines, same_on_both, start, two_nodes, weights_of


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """What both ranks of one torchrun left of every case."""
    folder = tmp_path_factory.mktemp("pair")
    process = launch("tests.support.replicas", folder, *CASES, "command")
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    return folder


def notes_of(folder, case, rank):
    return json.loads((folder / f"{case}{rank}.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_replicas_are_bit_identical(case, pair):
    """Weights, statistics of normalisation, and every number that is logged, after several rebuilds."""
    one, other = weights_of(pair, case, 0), weights_of(pair, case, 1)
    assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    told = [notes_of(pair, case, rank) for rank in (0, 1)]
    assert told[0]["told"] == told[1]["told"] and len(told[0]["told"]) == CASES[case].num_iterations
    assert told[0]["obs_mean"] == told[1]["obs_mean"] and told[0]["ret_var"] == told[1]["ret_var"]
    assert (told[0]["obs_mean"] is not None) == CASES[case].norm_obs
    assert told[0]["told"][-1]["steps"] == CASES[case].total_timesteps


@pytest.mark.parametrize("case", CASES)
def test_seeds_of_environments_never_coincide(case, pair):
    """Between ranks, nor before and after a rebuild."""
    made = [seeds for rank in (0, 1) for seeds in notes_of(pair, case, rank)["seeds"]]
    count = CASES[case].num_iterations
    assert len(made) == 2 * (1 + (count - 1) // CASES[case].checkpoint_every)
    assert all(len(seeds) == CASES[case].num_envs // 2 for seeds in made)
    assert len(set(chain(*made))) == sum(map(len, made))


def test_all_ranks_stop_at_the_same_epoch(pair):
    """target_kl: fewer minibatches than without, as many on one rank as on the other."""
    steps = [[told["minibatches"] for told in notes_of(pair, "stopped", rank)["told"]] for rank in (0, 1)]
    cfg = CASES["stopped"]
    assert steps[0] == steps[1] and steps[0][-1] % cfg.num_minibatches == 0
    assert cfg.num_iterations * cfg.num_minibatches <= steps[0][-1]
    assert steps[0][-1] < cfg.num_iterations * cfg.num_minibatches * cfg.update_epochs


def test_two_processes_learn(pair):
    """The probe whose reward depends on action and observation, with half of the environments on each rank; episodes
    of both are counted."""
    last = notes_of(pair, "acting", 0)["told"][-1]
    assert np.mean(last["returns"]) > 0.9 and len(last["returns"]) == CASES["acting"].batch_size
    assert set(last["rows"]) == set(range(CASES["acting"].num_envs))


def test_only_the_first_process_writes(pair):
    assert [(pair / f"code{rank}").read_text() for rank in (0, 1)] == ["0", "0"]
    lines = (pair / "run" / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [["1", "64"], ["2", "128"], ["3", "192"]]
    assert json.loads((pair / "run" / "summary.json").read_text())["steps"] == 192


def test_only_the_first_process_writes_the_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    write_config(tmp_path / "run", Config(), "ppo")
    assert not (tmp_path / "run").exists()


def middle_of(run, copy):
    """A copy of a run that was ended between its checkpoints 4 and 8."""
    shutil.copytree(run, copy)
    (copy / "summary.json").unlink()
    for name in ("00000008", "00000010"):
        shutil.rmtree(copy / "checkpoints" / name)
    return copy


@pytest.mark.parametrize("variant,env_id", [("ppo", "CartPole-v1"), ("ppo_continuous_action", "Pendulum-v1")])
def test_a_pair_resumes_exactly(variant, env_id, tmp_path, capsys):
    """Taken up from a checkpoint in the middle by as many processes, against the run in one go. Another number of
    processes goes on too, and says that it differs."""
    words = (f"train {variant} --env-id {env_id} --num-envs 4 --num-steps 64 --num-minibatches 2 --update-epochs 2 "
             "--total-timesteps 2560 --checkpoint-every 4 --keep-checkpoints 0 --run-dir")
    pair, alone = tmp_path / "pair", tmp_path / "alone"
    play_lines([f"{words} {pair}"], tmp_path)
    assert main([*words.split(), str(alone)]) == 0
    half, fewer, more = (middle_of(run, tmp_path / name) for run, name in
                         ((pair, "half"), (pair, "fewer"), (alone, "more")))
    said = play_lines([f"resume {half}", f"resume {more}"], tmp_path)
    assert "goes on after iteration 4 of 10" in said and same_weights(pair, half) and same_logs(pair, half)
    assert "more was trained by 1 process, which is not how many go on now" in said
    assert main(["resume", str(fewer)]) == 0
    assert "was trained by 2 processes, which is not how many go on now" in capsys.readouterr().err
    assert all(json.loads((run / "summary.json").read_text())["steps"] == 2560 for run in (more, fewer))
    assert main(["resume", str(fewer)]) == 0  # nothing goes on now
    said = capsys.readouterr().err
    assert "has run all of its 10 iterations" in said and "how many go on now" not in said


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_process_that_is_killed_ends_the_other_with_a_code_of_its_own(framework, tmp_path):
    """Without torchrun, which would end the other one itself: as on another machine."""
    words = (f"proximo train ppo --framework {framework} --num-envs 4 --num-steps 16 --total-timesteps 100000000 "
             f"--logger none --run-dir {tmp_path / 'run'}").split()
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "JAX_PLATFORMS": "cpu"}
    first, second = (start(words, RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in (0, 1))
    while not (tmp_path / "run" / "checkpoints").exists() and first.poll() is None:
        time.sleep(0.2)
    second.kill()
    said = first.communicate(timeout=60)[1]
    second.communicate()
    assert first.returncode == 6, said
    assert "another process of this run has ended" in said and "Traceback" not in said


def test_one_process_takes_one_device_id(tmp_path, capsys):
    words = ["train", "ppo_atari_multigpu", "--logger", "none", "--run-dir", str(tmp_path / "run")]
    assert main([*words, "--device-ids", "0", "0", "1", "1"]) == 2
    assert "--device-ids names 4 GPUs for 1 process; give one id for each process, such as 0" in capsys.readouterr().err


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_process_that_dies_in_mid_training_ends_the_run(framework, tmp_path):
    """Rank 1 dies in iteration 7: rank 0, which waits for it, ends with a sentence (or by torchrun's signal, if that is
    faster), never a traceback of its own; one process goes on from the checkpoint of iteration 6."""
    run = tmp_path / "run"
    words = (f"torch.distributed.run --standalone --nproc_per_node=2 -m proximo train ppo --framework {framework} "
             "--env-id tests.support.probes:Mortal-v0 --num-envs 4 --num-steps 16 --total-timesteps 640 --checkpoint-every 2 "
             f"--logger none --run-dir {run}")
    process = start(words.split(), JAX_PLATFORMS="cpu")
    said = process.communicate(timeout=200)[1]
    assert process.returncode != 0 and "exitcode  : 7" in said
    assert "another process of this run has ended" in said or "stopped by SIGTERM after iteration 6" in said
    assert "proximo/run.py" not in said and "proximo resume" in said
    assert main(["resume", str(run)]) == 0 and json.loads((run / "summary.json").read_text())["steps"] == 640


def test_two_nodes_equal_one(pair, tmp_path):
    """Two torchrun agents on loopback: the same weights, bit for bit."""
    two_nodes("tests.support.replicas", tmp_path, "cartpole")
    assert same_on_both(pair, tmp_path, "cartpole")


@pytest.mark.parametrize("words,sentence", [
    ("--device-ids 0 0 1 1", "--device-ids names 4 GPUs for 2 processes; give one id for each process, such as 0 0"),
    ("--num-envs 5 --num-minibatches 1", "num_envs=5 does not divide into 2 processes; use a multiple"),
    ("--recurrent lstm", "each of 2 processes holds 2 rows, which do not divide into num_minibatches=4")])
def test_sizes_that_do_not_fit_are_one_sentence(words, sentence, tmp_path, monkeypatch, capsys):
    """Said before the processes meet, so that none waits for another."""
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert main(["train", "ppo", *words.split(), "--logger", "none", "--run-dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert sum(sentence in line for line in said) == 1 and sentence in said[-1]
    assert not (tmp_path / "run").exists()


T, N, OBS, ACTIONS = 8, 4, 3, 5


class Meeting:
    """Adds up the tensors of threads as all_reduce does those of processes."""

    def __init__(self, size):
        self.barrier, self.parts = threading.Barrier(size, timeout=60), [None] * size

    def average(self, rank):
        def summed(x):
            self.parts[rank] = x.clone()
            self.barrier.wait()
            total = torch.stack(self.parts).sum(0)
            self.barrier.wait()
            return x.copy_(total)

        return summed


def make_batch():
    """A rollout whose last environment is mostly filler, its advantages and returns."""
    torch.manual_seed(5)
    flags, valid = torch.zeros(T, N, dtype=torch.bool), torch.ones(T, N, dtype=torch.bool)
    valid[2:, -1] = False
    logprob = -torch.rand(T, N) - 1
    logprob[:, N // 2:] -= 1.5  # far from the policy that learns: only the second half alone has a large KL
    rollout = Rollout(torch.randn(T, N, OBS), flags, None, torch.randint(ACTIONS, (T, N)), logprob, torch.randn(T, N),
                      torch.randn(T, N), torch.randn(T, N), flags, flags, valid)
    return rollout, torch.randn(T, N), torch.randn(T, N)


def columns(parts, start, end):
    """Some environments of (T, N, ...) tensors."""
    rollout, *rest = parts
    kept = Rollout(*(None if x is None else x[:, start:end] for x in rollout))
    return kept, *(x[:, start:end] for x in rest)


def learn(parts, cfg, average, alone):
    """(weights, stats, minibatches) after one update; one minibatch holds all rows, so no shuffle matters."""
    rollout, advantage, ret = parts
    with LOCK:
        torch.manual_seed(3)
        agent = SeparateAgent(mlp([OBS, 8, 1], 1.0), CategoricalHead(mlp([OBS, 8, ACTIONS], 0.5), ACTIONS))
    adam, calls = flat_adam(agent), []
    learner = make_learner(agent, adam, lambda *given: calls.append(1) or ppo_loss(*given), cfg)
    draws = draw(cfg, agent, rollout.valid.shape, np.random.default_rng(0), torch.Generator(), torch.device("cpu"))
    normalized, count = normalized_advantage(advantage, rollout.valid, draws.minibatch, False, cfg, average)
    stats = update(learner if alone else learner._replace(step=None), flat_batch(rollout, ret, (), False), normalized,
                   count, draws, 1e-3, cfg.clip_coef, cfg, average)
    stats["explained_variance"] = explained_variance(rollout.value, ret, rollout.valid, average)
    return adam.weights, stats, len(calls)


LOCK = threading.Lock()
WHOLE = Config(num_envs=N, num_steps=T, num_minibatches=1, total_timesteps=1000)


def learn_in_two(cfg):
    parts, meeting, found = make_batch(), Meeting(2), [None, None]

    def work(rank):
        found[rank] = learn(columns(parts, rank * N // 2, (rank + 1) * N // 2), cfg, meeting.average(rank), False)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("norm_adv", ["minibatch", "batch", "none"])
def test_two_times_two_environments_equal_one_times_four(norm_adv):
    """The same rows, filler on one rank only: the gradient, every statistic and so the weights are the same up to the
    order of sums."""
    cfg = replace(WHOLE, norm_adv=norm_adv)
    weights, stats, calls = learn(make_batch(), cfg, lambda x: x, True)
    one, other = learn_in_two(cfg)
    assert torch.equal(one[0], other[0]) and one[1] == other[1] and one[2] == other[2] == calls == cfg.update_epochs
    torch.testing.assert_close(one[0], weights, rtol=1e-5, atol=1e-6)
    assert one[1] == pytest.approx(stats, rel=1e-4, abs=1e-6)


def test_ranks_agree_when_one_alone_would_go_on():
    """The KL of the first rank's rows is below target_kl, that of all is above: both stop after the first epoch."""
    parts = make_batch()
    once = replace(WHOLE, update_epochs=1)
    first, whole = (learn(part, once, lambda x: x, True)[1]["approx_kl"] for part in (columns(parts, 0, 2), parts))
    assert first < 0.5 * whole
    cfg = replace(WHOLE, target_kl=0.5 * (first + whole))
    assert learn(columns(parts, 0, 2), cfg, lambda x: x, True)[2] == cfg.update_epochs
    assert [calls for _, _, calls in learn_in_two(cfg)] == [1, 1]
