"""Training on an NVIDIA GPU: the weights of the CPU, CUDA graphs, exact repetition and resume, and what is waited for.

Skipped where torch sees no GPU. `make gpu` runs this file and tests/on_jax/test_gpu.py.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

import proximo
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.normalize import make_normalizer
from proximo.on_torch.assemble import assemble
from proximo.on_torch.compile import jit
from proximo.on_torch.compile.cuda_graph import CudaGraph
from proximo.on_torch.overlap import train_overlapped
from proximo.on_torch.rollout import collect, make_policy
from proximo.on_torch.setup import first_carry, make_storage
from proximo.on_torch.train import train
from proximo.variants import Continuous
from tests.support.batched import Carts

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
SMALL = {"num_envs": 4, "num_steps": 16, "num_minibatches": 2, "update_epochs": 2, "hidden_sizes": (8,), "threads": 1,
         "memory_size": 8, "total_timesteps": 192, "learning_rate": 1e-2, "device": "cuda"}
PROBE = "tests.support.probes:{}-v0"
KINDS = {
    "mlp": Config(**SMALL),
    "adaptive rate": Config(**SMALL, desired_kl=1e-3),
    "continuous": Continuous(**SMALL, env_id="Pendulum-v1"),
    "normalised": Continuous(**SMALL, env_id="Pendulum-v1", norm_obs=True, norm_reward=True),
    "masked": Config(**SMALL, env_id=PROBE.format("Masked")),
    "structured": Config(**SMALL, env_id=PROBE.format("Rich")),
    "hybrid": Config(**SMALL, env_id=PROBE.format("Hybrid")),
    "truncated": Config(**SMALL, env_id=PROBE.format("Truncated"), shared_network=True),
    "lstm": Config(**SMALL, recurrent="lstm"),
    "gru": Config(**SMALL, recurrent="gru"),
    "images": Config(**SMALL, env_id=PROBE.format("Image"), model="impala"),
    "overlap": Config(**SMALL, overlap=True),
    "groups": Config(**SMALL, env_groups=2, env_workers=2),
}


def iterations(cfg, state=None, make_envs=make_gym):
    return (train_overlapped if cfg.overlap else train)(cfg, make_envs, assemble, state=state)


def final_weights(cfg, after_first=lambda: None, make_envs=make_gym):
    """Train, and return the last weights; `after_first` is called after the first iteration."""
    for it in iterations(cfg, make_envs=make_envs):
        if it.iteration == 1:
            after_first()
        weights = it.weights()
    return weights


def assert_close(found, expected, **tolerance):
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, err_msg=name, **tolerance)


@pytest.fixture(autouse=True)
def _float32_products():
    """Matrix products of float32 in float32: TF32 would hide errors below 1e-3. Graphs of other tests are forgotten."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    torch._dynamo.reset()
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("name", KINDS)
def test_a_gpu_trains_the_weights_of_a_cpu(name):
    """Up to rounding: all random numbers come from the host, so the actions are the same."""
    assert_close(final_weights(KINDS[name]), final_weights(replace(KINDS[name], device="cpu")), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_the_same_run_gives_the_same_bits(name):
    assert_close(final_weights(KINDS[name]), final_weights(KINDS[name]), rtol=0, atol=0)


@pytest.fixture
def graphs(monkeypatch):
    """The CUDA graphs that a test makes."""
    made = []

    class Counted(CudaGraph):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(jit, "CudaGraph", Counted)
    return made


@pytest.mark.parametrize("name", KINDS)
def test_cuda_graphs_train_what_eager_training_does(name, graphs):
    """Bit for bit: the graphs start the kernels of eager training. Recurrent agents have none."""
    expected = final_weights(KINDS[name])
    assert_close(final_weights(replace(KINDS[name], compile=True)), expected, rtol=0, atol=0)
    called = [one for one in graphs if one._graph is not None]
    assert len(called) == (3 if KINDS[name].recurrent == "none" else 0)
    assert len(graphs) == len(called) + 2 * (name == "overlap")


@pytest.mark.parametrize("name", ["mlp", "adaptive rate", "continuous", "masked", "structured", "truncated"])
def test_joined_kernels_train_what_eager_training_does(name, graphs):
    """--compile-with inductor: up to rounding, and nothing is compiled again."""
    expected = final_weights(KINDS[name])
    counters.clear()
    try:
        found = final_weights(replace(KINDS[name], compile=True, compile_with="inductor"),
                              lambda: torch.compiler.set_stance("fail_on_recompile"))
    finally:
        torch.compiler.set_stance("default")
    assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == len(graphs) == 3


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["mlp", "continuous", "lstm", "normalised", "images"])
def test_a_run_that_is_continued_ends_with_the_same_bits(name, compiled):
    cfg = replace(KINDS[name], compile=compiled)
    kept, *_ = [it.snapshot() for it in iterations(cfg)]
    for it in iterations(cfg, kept):
        weights = it.weights()
    assert_close(weights, final_weights(cfg), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["mlp", "continuous", "images", "lstm"])
def test_a_step_waits_for_the_gpu_once(name):
    """torch's own record of synchronisations, instead of the counts on the meta device in test_jit.py."""
    cfg, device = KINDS[name], torch.device("cuda")
    envs = make_gym(cfg, list(range(cfg.num_envs)))
    normalizer = make_normalizer(cfg, envs)
    agent = assemble(normalizer.spec, cfg).to(device)
    carry = first_carry(agent, envs, normalizer, normalizer.start(), device)
    storage = make_storage(cfg, envs, normalizer.spec.obs_dtype, agent, carry, device)
    noise = agent.head.noise(torch.Generator(), cfg.num_steps, cfg.num_envs).to(device)
    policy = make_policy(agent)
    with torch.no_grad():
        collect(policy, envs, normalizer, carry, storage, noise)  # the first call loads kernels
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                collect(policy, envs, normalizer, carry, storage, noise)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    envs.close()
    waits = [str(one.message) for one in found if "called a synchronizing" in str(one.message)]
    assert cfg.num_steps <= len(waits) <= cfg.num_steps + 4, waits[:3]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_bf16_trains_on_a_gpu(compiled):
    """Products are rounded, so the weights differ from those of float32; nothing becomes infinite."""
    found = final_weights(replace(KINDS["images"], precision="bf16", compile=compiled))
    expected = final_weights(KINDS["images"])
    assert all(np.isfinite(x).all() for x in found.values())
    assert any((found[name] != expected[name]).any() for name in found)


def test_a_simulator_on_the_gpu_exchanges_tensors_with_the_policy():
    """Nothing crosses to the host but what the log needs."""
    cfg = replace(Continuous(**SMALL), env_id="carts")

    def on_gpu(cfg, seeds):
        return Carts(len(seeds), seeds[0], device="cuda")

    for compiled in (False, True):
        weights = final_weights(replace(cfg, compile=compiled), make_envs=on_gpu)
        assert all(np.isfinite(x).all() for x in weights.values())


def test_a_run_of_a_gpu_is_evaluated_and_loaded_on_a_cpu(tmp_path):
    """Its model has no device: `load` acts on the CPU."""
    words = {name: value for name, value in SMALL.items() if name != "memory_size"}
    folder = proximo.train("ppo", env_id="CartPole-v1", run_dir=tmp_path / "run", **words)
    assert proximo.load(folder).act(np.zeros((3, 4), np.float32)).shape == (3,)
    assert len(proximo.evaluate(folder, episodes=2).returns) == 2
