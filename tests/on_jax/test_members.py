"""The members of a group: on cores, together on a GPU, and alone. tests/cli/test_sweep.py has whole sweeps."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from proximo.config import Config
from proximo.envs.machine.cores import default_threads
from proximo.on_jax import device
from proximo.on_jax.advance import run_several
from proximo.on_jax.device import devices_for
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.members import MEMBERS, fill_up, make_member_step, one_by_one, run_members, stack_members
from proximo.on_jax.setup import make_inside_player
from proximo.on_jax.train_group import differing_values, first_states, train_group
from tests.on_jax.test_train import SMALL, assert_same, make_agent, make_envs, run


@pytest.mark.parametrize(("runs", "threads", "devices"), [
    (1, 8, 1), (2, 1, 1), (2, 8, 2), (10, 2, 2), (10, 4, 4), (10, 7, 5), (9, 8, 5), (64, 6, 6), (3, 0, 1)])
def test_no_device_has_more_runs_than_it_must(runs, threads, devices):
    """Ten runs on seven threads: one device would have two of them anyway, so five devices with two each are enough."""
    assert devices_for(runs, threads) == devices
    assert -(-runs // devices) == -(-runs // max(1, threads))
    assert len(fill_up(range(runs), devices)) % devices == 0


def test_several_runs_of_small_networks_get_a_core_each(monkeypatch):
    monkeypatch.setattr("proximo.envs.machine.cores.usable_cores", lambda processes: 8 // processes)
    small, images = Config(), Config(model="nature_cnn")
    assert [default_threads(small, 1, runs) for runs in (-1, 0, 1, 3, 64)] == [1, 1, 1, 3, 8]  # wrong numbers are refused
    assert default_threads(small, 4, 64) == 2 and default_threads(images, 1, 3) == 8


@pytest.mark.parametrize("learns", [{}, {"target_kl": 1e-3}, {"norm_reward": True, "anneal_clip": True}], ids=str)
def test_a_member_has_the_bits_that_it_has_alone(learns):
    """On a CPU, every iteration: weights, statistics and what a checkpoint contains, of the second of three seeds."""
    cfgs = [replace(SMALL, seed=seed, **learns) for seed in (5, 6, 7)]
    together = [(row[1].stats, row[1].snapshot(), row[1].weights()) for row in train_group(cfgs, make_envs, make_agent)]
    alone = run(cfgs[1])
    assert len(alone) == len(together) == SMALL.num_iterations
    for (it, kept, weights), (stats, kept_too, weights_too) in zip(alone, together, strict=True):
        assert stats == pytest.approx(it.stats, abs=0, rel=0, nan_ok=True)
        assert_same(weights_too, weights)
        for name in ("adam", "carry", "envs"):
            assert_same(kept_too[name], kept[name])


def test_members_of_a_gpu_are_those_of_a_cpu_up_to_rounding():
    """Together (vmap) and one after another, two of three iterations at once, with a value that differs."""
    cfgs = [replace(SMALL, seed=seed, gamma=gamma) for seed, gamma in ((5, 0.9), (6, 0.99), (7, 0.5))]
    player = make_inside_player(cfgs[0], make_envs, make_agent, ppo_loss)
    mesh, step = Mesh(np.array(jax.devices("cpu")[:1]), (MEMBERS,)), make_member_step(cfgs[0], player)

    def run_two(values, state, count):
        return run_several(partial(step, values), 3, state, count)

    given = differing_values(cfgs), stack_members(first_states(cfgs, player, make_agent)), 2
    found, expected = (jax.jit(run_members(share, mesh))(*given)
                       for share in (jax.vmap(run_two, in_axes=(0, 0, None)), one_by_one(run_two)))
    assert found[1].ok.shape == (3, 3), "iterations before members"
    for one, other in zip(*(jax.tree.leaves((state.adam, state.carry, results)) for state, results in (found, expected)),
                          strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    weights = expected[0].adam.weights["critic.layers.0.weight"]
    assert np.abs(weights[0] - weights[2]).max() > 1e-3


CORES = """
import json
from dataclasses import replace
import jax
import numpy as np
from proximo.on_jax import members
from tests.on_jax.test_train import SMALL, make_agent, make_envs
from proximo.on_jax.train_group import train_group
compiled, started = [], []
start = members.Several._start
def noted(self, state, done):
    began = start(self, state, done)
    started.append((done, began.number))
    return began
members.Several._start = noted
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, fun_name="", **__: compiled.append(fun_name)
    if name.endswith("backend_compile_duration") else None)
cfgs = [replace(SMALL, seed=seed, threads=THREADS, total_timesteps=128 * 9, checkpoint_every=4) for seed in range(1, 4)]
rows, at_start = [], []
for row in train_group(cfgs, make_envs, make_agent):
    rows.append([it.weights() if it.iteration in (2, 9) else {} for it in row])
    at_start.append(sum(number for _, number in started))
    kept = [it.snapshot() for it in row] if row[0].iteration == 4 else kept if rows[4:] else None
again = list(train_group(cfgs, make_envs, make_agent, states=kept))[-1]
again = [it.weights() for it in again]
print(json.dumps({"devices": len(jax.devices("cpu")), "started": at_start, "compiled": sum("run_all" in name for name in compiled),
    "same": all((again[m][k] == x).all() for m in range(3) for k, x in rows[-1][m].items()),
    "sums": [[sum(float(np.abs(x).sum(dtype=np.float64)) for x in w.values()) for w in row] for row in rows]}))
"""


def test_members_divided_over_cores():
    """Three members on one device, on two, of which the second has a repeated one, and on three. The second call begins
    before the first iteration is yielded. In separate processes, because the number of devices is fixed when JAX starts.
    """
    found = []
    for threads in "123":
        env = {name: x for name, x in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"} | {"PYTHONPATH": os.getcwd()}
        done = subprocess.run([sys.executable, "-c", CORES.replace("THREADS", threads)], env=env, capture_output=True,
                              text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    one, two, three = found
    assert [each["devices"] for each in found] == [1, 2, 3]
    assert all(each["same"] for each in found), "a resume is exact"
    assert two["sums"] == three["sums"], "bit for bit"
    np.testing.assert_allclose(one["sums"], two["sums"], rtol=1e-6)
    assert len({*one["sums"][-1]}) == 3
    assert [each["compiled"] for each in found] == [2, 2, 2], "once for each training"
    assert one["started"][0] == 1 and two["started"][0] > 1 and three["started"][0] > 1, "only several devices run ahead"
    assert [each["started"][-1] for each in found] == [9, 9, 9], "and not beyond the end"


def test_devices_that_somebody_has_chosen_stay(monkeypatch):
    """JAX_NUM_CPU_DEVICES takes precedence; the tests set it."""
    changed = []
    monkeypatch.setattr(device.jax.config, "update", lambda name, value: changed.append(name))
    device.start_cpu(4, 1, devices=4)
    assert changed == []
    device.start_cpu(4, 1)
    assert changed == ["jax_cpu_enable_async_dispatch"]


def test_cores_that_jax_does_not_know_are_said(monkeypatch, capsys):
    """The tests start JAX with one device, which somebody who sets the variable wants."""
    cpu = jax.devices("cpu")[0]
    assert device.devices_of_runs(cpu, 3, 2) == [cpu]
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES")
    assert device.devices_of_runs(cpu, 3, 2) == [cpu]
    assert "3 runs train on 1 instead of 2 threads" in capsys.readouterr().err
    assert device.devices_of_runs(cpu, 3, 1) == [cpu]
    assert capsys.readouterr().err == ""
