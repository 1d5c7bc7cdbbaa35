"""Training on JAX: exact resume, numbers of compilations, several seeds and devices, and runs that stop early."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.errors import NumbersError, UsageError
from proximo.on_jax.advance import Results
from proximo.on_jax.agent import SeparateAgent
from proximo.on_jax.assemble import make_head
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.parameters import make_bind
from proximo.on_jax.setup import set_up
from proximo.on_jax.train import History, train
from proximo.on_jax.train_group import train_group
from proximo.on_jax.train_step import Metrics
from proximo.protocols import Episode
from tests.support.runs import rows
from tests.support.runs import train as train_line

_, make_envs, make_agent, *_ = parts_of("ppo", "jax")
SMALL = Config(framework="jax", engine="jax", num_envs=4, num_steps=32, total_timesteps=640, num_minibatches=2,
               update_epochs=2, hidden_sizes=(16, 16), norm_obs=True, norm_reward=True)
HOST = replace(SMALL, engine="gym")
POOL = replace(SMALL, engine="envpool", checkpoint_every=2)


def run(cfg, state=None, loss_fn=ppo_loss):
    return list(with_snapshots(train(cfg, make_envs, make_agent, loss_fn, state)))


def with_snapshots(iterations):
    """Read each iteration before the next one reuses its memory."""
    for it in iterations:
        yield it, it.snapshot(), it.weights()


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert np.array_equal(a[name], b[name]), name


@pytest.mark.parametrize("cfg", [SMALL, HOST, POOL, replace(HOST, recurrent="lstm", memory_size=8)],
                         ids=["inside", "outside", "pool", "memory"])
def test_a_resumed_run_is_bit_identical(cfg):
    if cfg.engine == "envpool":
        pytest.importorskip("envpool_assets")
    whole = run(cfg)
    latest = {name: x.copy() for name, x in whole[1][1]["latest"].items()}
    again = run(cfg, whole[1][1])
    np.testing.assert_equal(whole[1][1]["latest"], latest, "the snapshot belongs to the caller")
    assert [it.iteration for it, _, _ in again] == [3, 4, 5]
    for (a, kept, weights), (b, other, reached) in zip(whole[2:], again):
        assert a.stats == pytest.approx(b.stats, abs=0, nan_ok=True) and a.steps == b.steps
        assert_same(weights, reached)
        assert_same(kept["adam"], other["adam"])
        assert np.array_equal(a.finished.ret, b.finished.ret) and np.array_equal(a.finished.step, b.finished.step)


class ListOfParams(nnx.Module):
    """A network whose parameters are in a list."""

    def __init__(self, inputs, outputs):
        draw = np.random.default_rng(0).normal
        self.layers = nnx.List([nnx.Param(draw(0, 0.3, shape).astype("f4")) for shape in ((inputs, 8), (8, outputs))])

    def __call__(self, x):
        return jnp.tanh(x @ self.layers[0][...]) @ self.layers[1][...]


class LayersOfFlax(nnx.Module):
    """A network of flax's own layers, and of a parameter that is read by `value`."""

    def __init__(self, inputs, outputs):
        self.norm, self.last = nnx.LayerNorm(inputs, rngs=nnx.Rngs(0)), nnx.Linear(inputs, outputs, rngs=nnx.Rngs(1))
        self.bias = nnx.Param(jnp.zeros(outputs))

    def __call__(self, x):
        return self.last(self.norm(x)) + self.bias.get_value()


@pytest.mark.parametrize("network", [ListOfParams, LayersOfFlax])
def test_a_network_of_ones_own_plays_with_the_weights_that_it_learns(network, monkeypatch):
    """Few environments are played as many are, where acting is compiled."""
    cfg, trained = replace(HOST, norm_obs=False, norm_reward=False, learning_rate=0.1, total_timesteps=384), []

    def make_custom(spec, cfg):
        size = spec.obs_shape[0]
        return SeparateAgent(network(size, 1), make_head(lambda outputs: network(size, outputs), spec.action_space))

    for most in (64, 0):
        monkeypatch.setattr("proximo.on_jax.play_host.NUMPY_ROWS", most)
        *_, last = train(cfg, make_envs, make_custom)
        trained.append(last.weights())
    assert_same(*trained)


@pytest.mark.parametrize("cfg", [SMALL, HOST], ids=["inside", "outside"])
def test_a_checkpoint_of_several_processes_continues_in_one(cfg):
    """Such a checkpoint holds no environments, and running returns of one rank only: new environments start at 0."""
    cfg = replace(cfg, checkpoint_every=2)
    kept = run(cfg)[1][1]
    share = {name: x for name, x in kept.items() if name not in ("carry", "envs")}
    share["statistics"] = {name: x[:2] if "running" in name else x for name, x in kept["statistics"].items()}
    again = run(cfg, share)
    assert [it.steps for it, _, _ in again] == [384, 512, 640] and not any(it.keeps_state for it, _, _ in again)


def test_an_iteration_inside_is_compiled_once():
    player, state = set_up(SMALL, make_envs, make_agent, ppo_loss)
    for _ in range(3):
        state, _ = player.iterate(state)
    assert player.iterate._cache_size() == 1


def test_acting_and_the_update_outside_are_compiled_once():
    player, state = set_up(replace(HOST, shared_network=True), make_envs, make_agent, ppo_loss)
    for _ in range(3):
        state, _ = player.iterate(state)
    act = player.policy(state.adam.weights).act.func
    assert player.learn._cache_size() == 1 and act._cache_size() == 1
    player.envs.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "tests.support.probes:Several-v0",
                                    "tests.support.probes:Masked-v0"])
def test_acting_in_numpy_equals_acting_compiled(env_id):
    """Few rows of separate networks act in numpy: the same choices as compiled, the same Gaussian actions up to
    rounding, and no action that is not allowed."""
    player, state = set_up(replace(HOST, env_id=env_id), make_envs, make_agent, ppo_loss)
    agent, weights, rng = player.agent, state.adam.weights, np.random.default_rng(0)
    weights = {name: x + 0.3 * rng.normal(size=x.shape).astype(np.float32) for name, x in weights.items()}
    mask = None if state.carry.mask is None else rng.random((500, 3)) < [1, 0.5, 0.5]
    obs = rng.normal(size=(500, *player.envs.obs_shape)).astype(np.float32)
    noise = np.asarray(agent.head.noise(jax.random.key(1), 500))
    args = (obs, mask, np.zeros(500, bool), (), noise)
    fast = player.policy(weights).act(*args).action
    slow = np.asarray(jax.jit(lambda weights, *args: make_bind(agent)(weights).act(*args))(weights, *args).action)
    assert isinstance(fast, np.ndarray) and fast.dtype == slow.dtype
    np.testing.assert_allclose(fast, slow, atol=1e-5 if fast.dtype == np.float32 else 0)
    assert len(np.unique(fast)) > 1 and (mask is None or mask[np.arange(500), fast].all())
    player.envs.close()


def test_every_seed_learns_what_it_learns_alone():
    cfgs = [replace(SMALL, seed=SMALL.seed + s) for s in range(3)]
    lanes = [[(it.stats, it.steps, it.snapshot(), it.weights()) for it in row]
             for row in train_group(cfgs, make_envs, make_agent)]
    alone = run(replace(SMALL, seed=SMALL.seed + 2))
    for row, (it, _, weights) in zip(lanes, alone, strict=True):
        assert row[2][1] == it.steps
        for name, x in weights.items():
            np.testing.assert_allclose(row[2][3][name], x, atol=5e-5)
    states = [lane[2] for lane in lanes[2]]
    late = [*train_group(cfgs, make_envs, make_agent, states=states)]
    with pytest.raises(UsageError, match=r"weights\(\) of iteration .* had begun"):
        late[0][0].weights()
    again = [[it.weights() for it in row] for row in train_group(cfgs, make_envs, make_agent, states=states)]
    for s in range(3):
        assert_same(again[-1][s], lanes[-1][s][3])


def test_seeds_need_pure_environments():
    with pytest.raises(UsageError, match="--engine jax"):
        next(train_group([HOST, replace(HOST, seed=2)], make_envs, make_agent))


def test_target_kl_stops_and_annealing_reaches_the_end():
    stopped = replace(SMALL, target_kl=1e-9, anneal_clip=True)
    (it, kept, _), *_ = run(replace(stopped, total_timesteps=128))
    assert int(kept["adam"][".step"]) == SMALL.num_minibatches, "the first epoch runs, the second does not"
    assert it.stats["charts/learning_rate"] == SMALL.learning_rate


def test_the_rate_of_a_schedule_in_jax_is_a_number():
    """It was an array of JAX, which json refuses."""
    class Halved(Config):
        def learning_rate_at(self, iteration):
            return jnp.where(iteration > 2, 0.5, 1.0) * self.learning_rate

    nothing = np.zeros((1, 1), np.int32)
    results = Results(Metrics({}, {}, Episode(nothing == 1, nothing, nothing), np.ones(1, int)), True, np.ones(()), None)
    player = SimpleNamespace(charts_latest=False, envs=SimpleNamespace(players=()), normalizer=SimpleNamespace(spec=None),
                             keeps_state=True)
    stats = History(Halved(learning_rate=0.25, num_envs=1), None).add(3, results, player, lambda: None).stats
    assert json.dumps(stats) == '{"charts/learning_rate": 0.125}'


def test_numbers_that_are_not_finite_end_the_run_and_move_nothing():
    def broken(batch, cfg):
        loss, stats = ppo_loss(batch, cfg)
        return loss * jnp.nan, stats

    with pytest.raises(NumbersError, match="iteration 1"):
        run(SMALL, loss_fn=broken)


def test_nothing_is_charted_before_the_first_episode_ends():
    stats = [it.stats for it, _, _ in run(replace(SMALL, env_id="MountainCar-v0", total_timesteps=128 * 7))]
    assert np.isnan([x["charts/avg_episodic_return"] for x in stats]).tolist() == [True] * 6 + [False]
    assert stats[6]["charts/avg_episodic_return"] == -200 and stats[6]["charts/avg_episodic_length"] == 200


MESH = """
import json
from dataclasses import replace
from tests.on_jax.test_train import SMALL, make_agent, make_envs, ppo_loss, run, set_up
two = run(replace(SMALL, device_ids=(0, 1)))
kept = two[2][1]
again = run(replace(SMALL, device_ids=(0, 1)), kept)
player, state = set_up(replace(SMALL, device_ids=(0, 1)), make_envs, make_agent, ppo_loss)
state, _ = player.iterate(player.place(state))
statistics = [[float(x[0].sum()), float(x[1].sum())] for x in state.carry.statistics.obs]
print(json.dumps({"steps": [it.steps for it, _, _ in two], "statistics": statistics,
    "same": all((again[-1][2][k] == x).all() for k, x in two[-1][2].items()),
    "count": float(two[-1][0].statistics.obs.count), "kl": two[-1][0].stats["losses/approx_kl"]}))
"""


def test_two_devices_learn_as_one():
    """In a separate process, because the number of devices is fixed when JAX starts."""
    env = os.environ | {"JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", MESH], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["steps"] == [128, 256, 384, 512, 640] and found["same"]
    assert all(a == b for a, b in found["statistics"]), "the ranks normalise differently"
    assert 0 <= found["kl"] < 0.1 and found["count"] == pytest.approx(5 * 128 + 4, abs=0.1)


def test_means_of_latest_episodes_have_columns_before_the_first_ends(tmp_path, capsys):
    """An episode of Acrobot has at most 500 steps and 320 are played, so the columns exist and are empty."""
    assert train_line(tmp_path / "run", "--framework", "jax", "--env-id", "Acrobot-v1") == 0
    found = rows(tmp_path / "run", "metrics.csv")
    assert len(found) == 10
    assert all(row["charts/avg_episodic_return"] == row["charts/avg_episodic_length"] == "" for row in found)


def test_the_losses_have_the_columns_of_torch_in_the_same_order(tmp_path, capsys):
    """Against the header of a run on torch. Compiled functions of JAX return dictionaries in the order of their keys."""
    for framework in ("torch", "jax"):
        assert train_line(tmp_path / framework, "--framework", framework, "--env-id", "CartPole-v1") == 0
    torch, jax = ((tmp_path / framework / "metrics.csv").read_text().partition("\n")[0].split(",") for framework in ("torch", "jax"))
    losses = [name for name in torch if name.startswith("losses/")]
    assert len(losses) == 8 and losses == [name for name in jax if name.startswith("losses/")] == sorted(losses)
