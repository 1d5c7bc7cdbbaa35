"""Training by JAX on an NVIDIA GPU: the weights of the CPU, exact repetition, and exact resume.

Skipped where JAX sees no GPU. `make gpu` runs this file and tests/on_torch/test_cuda.py.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

import proximo
from proximo.catalog import parts_of
from proximo.config import Config
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.train import train

pytestmark = pytest.mark.skipif(all(device.platform != "gpu" for device in jax.local_devices()),
                                reason="JAX sees no GPU")
_, make_envs, make_agent, *_ = parts_of("ppo", "jax")
INSIDE = Config(framework="jax", engine="jax", num_envs=4, num_steps=32, total_timesteps=640, num_minibatches=2,
                update_epochs=2, hidden_sizes=(16, 16), norm_obs=True, norm_reward=True, device="cuda")
KINDS = {"inside": INSIDE, "outside": replace(INSIDE, engine="gym"),
         "memory": replace(INSIDE, engine="gym", recurrent="lstm", memory_size=8),
         "images": replace(INSIDE, engine="gym", env_id="tests.support.probes:Image-v0", norm_obs=False, model="impala")}


def run(cfg, state=None):
    """Return the snapshot and the weights of each iteration."""
    return [(it.snapshot(), it.weights()) for it in train(cfg, make_envs, make_agent, ppo_loss, state)]


def assert_close(found, expected, **tolerance):
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, err_msg=name, **tolerance)


@pytest.mark.parametrize("name", KINDS)
def test_a_gpu_trains_the_weights_of_a_cpu(name):
    """Up to rounding, with matrix products in float32 (XLA's default on a GPU is TF32) and a small learning rate."""
    cfg = replace(KINDS[name], total_timesteps=128, learning_rate=1e-4)
    with jax.default_matmul_precision("highest"):
        (_, found), (_, expected) = run(cfg)[-1], run(replace(cfg, device="cpu"))[-1]
    assert_close(found, expected, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_the_same_run_and_a_resumed_one_end_with_the_same_bits(name):
    whole, twice = run(KINDS[name]), run(KINDS[name])
    assert_close(twice[-1][1], whole[-1][1], rtol=0, atol=0)
    assert_close(run(KINDS[name], whole[1][0])[-1][1], whole[-1][1], rtol=0, atol=0)


def test_a_run_of_a_gpu_is_evaluated_and_loaded_on_a_cpu(tmp_path):
    folder = proximo.train("ppo", env_id="CartPole-v1", run_dir=tmp_path / "run", framework="jax", device="cuda",
                           total_timesteps=1024)
    assert proximo.load(folder).act(np.zeros((3, 4), np.float32)).shape == (3,)
    assert len(proximo.evaluate(folder, episodes=2).returns) == 2
