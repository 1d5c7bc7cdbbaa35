"""Compilation just in time: by graphs that reuse memory as CUDA graphs do, by Dynamo, and by inductor.

No test needs a GPU: FakeGraph treats memory as a CUDA graph does, and copies to a GPU are counted on the meta device.
"""

from collections import Counter
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.normalize import make_normalizer
from proximo.errors import UsageError
from proximo.on_torch import setup
from proximo.on_torch.assemble import assemble
from proximo.on_torch.compile import compiled, jit
from proximo.on_torch.compile.aot import compile_ahead, functional, trace_function, unshared
from proximo.on_torch.compile.compiled import (
    Compiler,
    compile_gradient,
    example_minibatch,
    pack_minibatch,
    pick_compiler,
    unpack_gradient,
    usable_compiler,
)
from proximo.on_torch.compile.jit import compile_just_in_time, unsupported_by_inductor
from proximo.on_torch.learner import flat_adam, make_gradient, make_step
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.overlap import train_overlapped
from proximo.on_torch.rollout import collect, make_policy
from proximo.on_torch.setup import first_carry, make_storage
from proximo.on_torch.train import train
from proximo.problems import config_problems
from proximo.protocols import Spec
from proximo.types import Coefficients
from proximo.variants import Continuous

SMALL = {"num_envs": 4, "num_steps": 16, "num_minibatches": 2, "update_epochs": 2, "hidden_sizes": (8,), "threads": 1,
         "memory_size": 8, "total_timesteps": 192, "learning_rate": 1e-2, "compile": True, "compile_with": "inductor"}
PROBE = "tests.support.probes:{}-v0"
KINDS = {
    "mlp": Config(**SMALL),
    "adaptive rate": Config(**SMALL, desired_kl=1e-3),
    "continuous": Continuous(**SMALL, env_id="Pendulum-v1"),
    "masked": Config(**SMALL, env_id=PROBE.format("Masked")),
    "truncated": Config(**SMALL, env_id=PROBE.format("Truncated"), shared_network=True),
    "lstm": Config(**SMALL, recurrent="lstm"),
    "images": Config(**SMALL, env_id=PROBE.format("Image"), model="impala"),
    "overlap": Config(**SMALL, overlap=True),
}


class FakeGraph:
    """What a CUDA graph does with memory, in the place of CudaGraph. Arguments that it does not change are copied to
    its own; those that it changes are the same tensors at every call."""

    every: list = []

    def __init__(self, run, changed):
        self.run, self.changed, self.inputs = run, changed, None
        self.every.append(self)

    def __call__(self, *tensors):
        assert not torch.is_grad_enabled()
        self.inputs = self.inputs or [x if stays else x.clone() for x, stays in zip(tensors, self.changed, strict=True)]
        for own, given, stays in zip(self.inputs, tensors, self.changed, strict=True):
            assert own.data_ptr() == given.data_ptr() if stays else own.shape == given.shape
            own.copy_(given)
        return [x.clone() for x in self.run(*self.inputs)]


def compile_by(monkeypatch, finish):
    """Replace what --compile does after the operations are traced."""
    compiler = Compiler(partial(compile_just_in_time, finish=finish), lambda: None, compiles_evaluation=True,
                        compiles_recurrent=True)
    monkeypatch.setattr(compiled, "pick_compiler", lambda cfg, device: compiler)


def fake_graph(graph, changed, name):
    return FakeGraph(graph, changed)


def final_weights(cfg, after_first=lambda: None):
    """Train, and return the last weights; `after_first` is called after the first iteration."""
    for it in (train_overlapped if cfg.overlap else train)(cfg, make_gym, assemble):
        if it.iteration == 1:
            after_first()
        weights = it.weights()
    return weights


def assert_close(found, expected, **tolerance):
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, **tolerance)


def eager(cfg):
    return final_weights(replace(cfg, compile=False, compile_with="auto"))


@pytest.mark.parametrize(("name", "graphs"), [
    ("mlp", 3), ("adaptive rate", 3), ("continuous", 3), ("masked", 3), ("truncated", 3), ("lstm", 2), ("overlap", 5)])
def test_graphs_that_reuse_memory_train_what_eager_training_does(name, graphs, monkeypatch):
    """Bit for bit. Nothing that a graph returned is read after the next call of any, and weights change in place."""
    monkeypatch.setattr(FakeGraph, "every", [])
    expected = eager(KINDS[name])
    compile_by(monkeypatch, fake_graph)
    assert_close(final_weights(KINDS[name]), expected, rtol=0, atol=0)
    called = [one for one in FakeGraph.every if one.inputs]
    assert (len(FakeGraph.every), len(called)) == (graphs, min(graphs, 3))  # overlap: another network acts
    assert sum(any(one.changed) for one in FakeGraph.every) == ("lstm" not in name)  # only the minibatch step


def test_the_halves_of_a_step_for_several_processes_train_the_same(monkeypatch):
    """Gradient and optimizer as two graphs; the sum over processes between them is that of one."""
    monkeypatch.setattr(FakeGraph, "every", [])
    expected = eager(KINDS["mlp"])
    compile_by(monkeypatch, fake_graph)
    monkeypatch.setattr(setup, "compile_step", lambda *parts: make_step(*compile_gradient(*parts), lambda x: x))
    assert_close(final_weights(KINDS["mlp"]), expected, rtol=0, atol=0)
    assert len(FakeGraph.every) == 4


def test_dynamo_takes_each_function_as_one_graph_and_compiles_it_once(monkeypatch):
    """The real torch.compile up to code generation: equal weights, no graph break, no second compilation."""
    expected = eager(KINDS["masked"])
    counters.clear()
    compile_by(monkeypatch, lambda graph, changed, name: torch.compile(
        graph, fullgraph=True, dynamic=False, backend="eager"))
    try:
        found = final_weights(KINDS["masked"], lambda: torch.compiler.set_stance("fail_on_recompile"))
    finally:
        torch.compiler.set_stance("default")
    assert_close(found, expected, rtol=0, atol=0)
    assert counters["stats"]["unique_graphs"] == 3 and not counters["graph_break"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["mlp", "continuous", "lstm"])
def test_inductor_trains_what_eager_training_does(name, tmp_path, monkeypatch):
    """Up to rounding, with an empty cache and without a second compilation."""
    if reason := unsupported_by_inductor(torch.device("cpu")):
        pytest.skip(reason)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    expected = eager(KINDS[name])
    torch._dynamo.reset()
    try:
        found = final_weights(KINDS[name], lambda: torch.compiler.set_stance("fail_on_recompile"))
    finally:
        torch.compiler.set_stance("default")
    assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_which_compiler_is_chosen():
    """For a device that is only named: kernels of eager training on a GPU, joined by torch.compile if it is asked for."""
    gpu, cpu = torch.device("cuda", 1), torch.device("cpu")

    def chosen(way, device):
        compile = pick_compiler(Config(compile=True, compile_with=way), device).compile
        return compile.keywords["finish"] if isinstance(compile, partial) else compile

    assert chosen("auto", cpu) is chosen("aot", cpu) is compile_ahead
    assert (chosen("auto", gpu), chosen("inductor", gpu), chosen("inductor", cpu)) == (
        jit.record, jit.fuse_and_record, jit.fuse)
    with pytest.raises(UsageError, match="compile_with=aot compiles for CPUs only, and this run learns on cuda:1. Leave"):
        chosen("aot", gpu)


def test_what_a_gpu_does_not_compile_runs_eager_and_says_so(monkeypatch, caplog):
    """Without Triton torch.compile; recurrent layers, whose weights cuDNN would move away from Adam's."""
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: False)
    spec = Spec((4,), np.dtype(np.float32), gym.spaces.Discrete(2))
    plain, recurrent = (assemble(spec, Config(recurrent=kind)) for kind in ("none", "lstm"))
    graphs, joined = (Config(compile=True, compile_with=way) for way in ("auto", "inductor"))
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert usable_compiler(Config(), plain, gpu) is None
    assert usable_compiler(graphs, plain, gpu) and not caplog.text
    assert usable_compiler(joined, plain, gpu) is None
    assert "--compile-with inductor on a GPU needs Triton" in caplog.text and "Running without it" in caplog.text
    caplog.clear()
    assert usable_compiler(graphs, recurrent, gpu) is None
    assert "--compile does not support recurrent layers on a GPU. Running without it." in caplog.text
    assert usable_compiler(joined, recurrent, cpu)


@pytest.mark.parametrize("fields", [{}, {"compile": True, "framework": "jax"}], ids=str)
def test_without_compile_or_with_jax_it_is_refused(fields):
    assert config_problems(Config(compile_with="inductor", **fields)) == [
        "compile_with=inductor says how --compile works with framework=torch. Add --compile and --framework torch, or "
        "leave --compile-with out."]


def test_faults_of_torch_and_other_layouts_are_one_sentence(capsys):
    def no_compiler(graph, changed, name):
        def run(*tensors):
            raise RuntimeError("no such instruction\nand more")

        return run

    example = (torch.zeros(3),)
    with pytest.raises(UsageError) as found:
        compile_just_in_time(lambda x: (x + x,), example, "double", no_compiler)(*example)
    assert str(found.value) == "torch cannot compile double (no such instruction). Run without --compile."
    with pytest.raises(UsageError, match="double was compiled for .* and was called with"):
        compile_just_in_time(lambda x: (x + x,), example, "double", fake_graph)(torch.zeros(4))
    with pytest.raises(UsageError, match="torch cannot compile chooser .*Run without --compile"):
        compile_just_in_time(lambda x: (x if x.sum() > 0 else -x,), example, "chooser", fake_graph)


def test_which_arguments_a_function_changes():
    """CudaGraph copies the others, and would lose changes of copies."""
    graph = trace_function(lambda a, b, c: (a.add_(b), c * 2), tuple(torch.zeros(3, 2).unbind(0)), {})
    assert jit.changed_in_place(graph) == [True, False, False]


class Crossings(TorchDispatchMode):
    """Counts copies between the host and the meta device, which stands for a GPU. Those to the host bring nothing."""

    def __init__(self):
        super().__init__()
        self.count, self.largest = Counter(), torch.empty(0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        devices = [x.device.type for x in args if isinstance(x, torch.Tensor)]
        if func is torch.ops.aten.copy_.default and devices == ["cpu", "meta"]:
            self.count["to host"] += 1
            return args[0]
        if func is torch.ops.aten._to_copy.default and devices == ["cpu"] and kwargs.get("device") == torch.device("meta"):
            self.count["to device, queued" if kwargs.get("non_blocking") else "to device"] += 1
            self.largest = max(self.largest, args[0], key=torch.numel)
        return func(*args, **(kwargs or {}))


def on_meta(name):
    """Make what training makes, on a device without memory."""
    cfg, device = KINDS[name], torch.device("meta")
    envs = make_gym(cfg, list(range(cfg.num_envs)))
    normalizer = make_normalizer(cfg, envs)
    agent = assemble(normalizer.spec, cfg).to(device)
    carry = first_carry(agent, envs, normalizer, normalizer.start(), device)
    return cfg, envs, normalizer, agent, carry, make_storage(cfg, envs, normalizer.spec.obs_dtype, agent, carry, device)


@pytest.mark.parametrize("name", ["mlp", "truncated", "lstm", "images"])
def test_a_step_waits_for_the_device_once(name):
    """One copy to the host for each step, of the action, and two for the first observation; all others are queued.
    Images are uint8 on the way."""
    cfg, envs, normalizer, agent, carry, storage = on_meta(name)
    noise = agent.head.noise(torch.Generator(), cfg.num_steps, cfg.num_envs).to("meta")
    with torch.no_grad(), Crossings() as crossings:
        played = collect(make_policy(agent), envs, normalizer, carry, storage, noise)
    envs.close()
    assert crossings.count["to host"] == cfg.num_steps + 2
    truncated = int(played.episode.finished.any(1).sum()) if name == "truncated" else 0
    assert crossings.count["to device"] <= 3 + truncated
    assert crossings.count["to device, queued"] >= cfg.num_steps
    assert {x.device.type for x in played.rollout if x is not None} == {"meta"}
    assert crossings.largest.dtype == (torch.uint8 if name == "images" else torch.float32)


@pytest.mark.parametrize("name", ["mlp", "continuous", "masked", "images"])
def test_the_minibatch_step_makes_nothing_on_the_host(name):
    """CUDA graphs are left out where one operation is on the CPU: every result of the traced step is on the device."""
    cfg, envs, _, agent, _, storage = on_meta(name)
    envs.close()
    adam = flat_adam(agent)
    batch, minibatch = example_minibatch(agent, storage, cfg)
    gradient = functional(agent, unpack_gradient(make_gradient(agent, ppo_loss, cfg), batch, minibatch))
    example = (adam.weights, *pack_minibatch(batch, minibatch, Coefficients(*torch.zeros(2, device="meta"))))
    graph = trace_function(gradient, unshared(example), {})
    values = [node.meta["val"] for node in graph.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    assert len(values) > 50 and {x.device.type for x in values} == {"meta"}
