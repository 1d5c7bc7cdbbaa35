"""--precision bf16 against float64, and what stays in float32. The processor of the tests may emulate bfloat16."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import proximo
from proximo.catalog import parts_of
from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout, write_rows
from proximo.errors import UsageError
from proximo.on_torch import precision
from proximo.on_torch.assemble import assemble
from proximo.on_torch.compile.aot import functional
from proximo.on_torch.learner import flat_adam
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.precision import use_bf16
from proximo.problems import config_problems
from tests.support.runs import train
from tests.support.spec import Spec

CPU = torch.device("cpu")
ROUNDING = 2.0**-8  # of one number
BOX, CHOICES = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)
MIXED = spaces.Dict({"image": spaces.Box(0, 255, (3, 9, 8), np.uint8), "vector": spaces.Box(-9, 9, (2,), np.float32)})
SMALL = Config(num_envs=2, num_steps=16, num_minibatches=2, update_epochs=2, total_timesteps=128, logger="none",
               hidden_sizes=(8, 8), precision="bf16")
NETWORKS = {"mlp": (Config(hidden_sizes=(32, 32)), CHOICES, (5,)),
            "layer_norm": (Config(hidden_sizes=(32, 32), layer_norm=True, activation="gelu"), CHOICES, (5,)),
            "shared": (Config(hidden_sizes=(32, 32), shared_network=True), BOX, (5,)),
            "gsde": (Config(hidden_sizes=(32, 32), distribution="gsde"), BOX, (5,)),
            "squashed": (Config(hidden_sizes=(32, 32), distribution="squashed", state_dependent_std=True), BOX, (5,)),
            "beta": (Config(hidden_sizes=(32, 32), distribution="beta"), BOX, (5,)),
            "joint": (Config(hidden_sizes=(32, 32)), spaces.Tuple((CHOICES, BOX)), (5,)),
            "lstm": (Config(hidden_sizes=(32, 32), recurrent="lstm", memory_size=16), CHOICES, (5,)),
            "cnn": (Config(model="cnn"), CHOICES, (2, 36, 36)), "impala": (Config(model="impala"), CHOICES, (3, 16, 16)),
            "mixed": (Config(), CHOICES, None)}


@pytest.fixture(autouse=True)
def has_bf16(monkeypatch):
    monkeypatch.setattr(precision, "has_bf16", lambda device: True)


def make_case(name):
    """Make an agent, and observations and actions for 16 rows (lstm: for 8 steps of 2 environments)."""
    cfg, space, shape = NETWORKS[name]
    layout = obs_layout(MIXED)
    dtype = np.dtype(np.float32 if len(shape or ()) == 1 else np.uint8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        agent = assemble(Spec(obs_shape=shape or (layout.size,), obs_dtype=dtype, action_space=space,
                              observation_space=None if shape else MIXED), cfg)
        lead = (8, 2) if agent.recurrent else (16,)
        obs = torch.randn(*lead, *shape) if dtype == np.float32 else torch.randint(
            256, (*lead, *(shape or (layout.size,))), dtype=torch.uint8)
        if shape is None:
            rows = [{"image": np.arange(216).reshape(3, 9, 8) + row, "vector": np.array([row / 8, -1])} for row in range(16)]
            for row, one in zip(obs.numpy(), rows):
                write_rows(layout, one, row[None])
        noise = agent.head.noise(torch.Generator().manual_seed(1), *lead)
        with torch.no_grad():
            action = call(agent, obs)[0].sample(noise)
    return agent, obs, action


def call(agent, obs):
    """Return distribution and value; half of the recurrent rows begin an episode."""
    lead = obs.shape[:2] if agent.recurrent else obs.shape[:1]
    first = torch.arange(lead[0]) % 4 == 0
    state = tuple(x.to(agent.critic.weight.dtype) for x in agent.initial_state(2)) if agent.recurrent else ()
    return agent(obs, None, first[:, None].expand(lead) if agent.recurrent else first, state)


def gradient(agent, obs, action):
    """Return the gradient of a sum of log-probabilities, entropies and squared values, as one vector of float64."""
    dist, value, _ = call(agent, obs)
    assert value.dtype == dist.logprob(action).dtype == dist.entropy().dtype == agent_dtype(agent)
    loss = (dist.logprob(action) * torch.linspace(-1, 1, action.shape[0]).view(-1, *[1] * (value.ndim - 1))).sum()
    parts = torch.autograd.grad(loss + (value - 1).square().sum() + dist.entropy().sum(), list(agent.parameters()))
    assert all(part.dtype == agent_dtype(agent) for part in parts)
    return torch.cat([part.double().reshape(-1) for part in parts])


def agent_dtype(agent):
    return next(agent.parameters()).dtype


@pytest.mark.parametrize("name", NETWORKS)
def test_the_gradient_is_that_of_float64_up_to_the_rounding_of_bfloat16(name):
    """At most one rounding for each layer; in float32 the same gradient is a thousand times as close."""
    agent, obs, action = make_case(name)
    exact = copy.deepcopy(agent).double()
    wanted = gradient(exact, obs.double() if obs.is_floating_point() else obs, action)
    plain = gradient(agent, obs, action)
    names = [one for one, _ in agent.named_parameters()]
    use_bf16(agent, CPU)
    error, least = ((one - wanted).norm() / wanted.norm() for one in (gradient(agent, obs, action), plain))
    layers = sum(isinstance(one, (nn.Linear, nn.Conv2d, nn.LSTM)) for one in agent.modules())
    assert least < ROUNDING / 1000 and ROUNDING / 100 < error < layers * ROUNDING
    assert [one for one, _ in agent.named_parameters()] == names


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_last_layers_get_features_of_bfloat16_and_compute_in_float32(name):
    """The value is a product in float32 of numbers that bfloat16 holds exactly."""
    agent, obs, _ = make_case(name)
    use_bf16(agent, CPU)
    last = agent.critic if name == "cnn" else agent.critic.layers[-1]
    seen = []
    last.register_forward_pre_hook(lambda layer, args: seen.append(args[0].float()))
    value = call(agent, obs)[1]
    assert torch.equal(seen[0], seen[0].bfloat16().float()) and not torch.equal(value, value.bfloat16().float())
    assert torch.equal(value, nn.functional.linear(seen[0], last.weight, last.bias).squeeze(-1))


def test_a_copy_computes_with_its_own_weights():
    agent, obs, _ = make_case("mlp")
    use_bf16(agent, CPU)
    other = copy.deepcopy(agent)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
        assert not call(other, obs)[1].any() and call(agent, obs)[1].all()


def test_what_compile_traces_computes_in_bfloat16_what_is_computed_without():
    """The recorded operations, as a function of the weights, against the plain gradient, bit for bit."""
    from torch.fx.experimental.proxy_tensor import make_fx

    agent, obs, action = make_case("cnn")
    use_bf16(agent, CPU)
    weights = flat_adam(agent).weights

    def of_tensors(obs, action):
        return (gradient(agent, obs, action).float(),)

    graph = make_fx(functional(agent, of_tensors), tracing_mode="fake", _allow_non_fake_inputs=True)(
        weights, obs, action)
    convolutions = [node for node in graph.graph.nodes if node.target is torch.ops.aten.convolution.default]
    assert len(convolutions) == 3 and all(node.meta["val"].dtype == torch.bfloat16 for node in convolutions)
    assert torch.equal(graph(weights, obs, action)[0], gradient(agent, obs, action).float())


@pytest.mark.parametrize("fields", [{}, {"recurrent": "lstm", "memory_size": 8, "num_minibatches": 1},
                                    {"model": "impala", "env_id": "tests.support.probes:Image-v0"}])
def test_acting_and_learning_agree_and_weights_and_adam_are_float32(fields):
    """In the loop itself: the ratios of the first minibatch are near 1, in later ones they are not all."""
    cfg, ratios = replace(SMALL, total_timesteps=32, threads=1, **fields), []

    def loss(batch, cfg):
        ratios.append((batch.logprob - batch.old_logprob).detach().exp())
        return ppo_loss(batch, cfg)

    parts = parts_of("ppo", "torch")
    (it, adam), = ((it, it.snapshot()["adam"]) for it in parts.train(cfg, parts.make_envs, parts.make_agent, loss))
    first = next(ratio for ratio in ratios if ratio.numel() > 1)
    assert float((first - 1).abs().max()) < 0.02
    assert all(adam[name].dtype == np.float32 for name in ("weights", "exp_avg", "exp_avg_sq"))
    assert all(x.dtype == np.float32 for x in it.weights().values())


def test_a_resumed_run_equals_one_that_was_not_interrupted():
    """Bit for bit, from the second of four snapshots; a run in float32 has other weights."""
    parts = parts_of("ppo", "torch")
    whole = [it.snapshot() for it in parts.train(SMALL, parts.make_envs, parts.make_agent)]
    *_, last = (it.snapshot() for it in parts.train(SMALL, parts.make_envs, parts.make_agent, state=whole[1]))
    for name, x in last["adam"].items():
        assert np.array_equal(x, whole[3]["adam"][name])
    *_, plain = (it.snapshot() for it in parts.train(replace(SMALL, precision="float32"), parts.make_envs, parts.make_agent))
    assert not np.array_equal(plain["adam"]["weights"], whole[3]["adam"]["weights"])


def test_a_trained_model_acts_in_float32(tmp_path):
    """Its values are those of a network with the same weights that never was in bfloat16, and are not rounded."""
    proximo.train(replace(SMALL, run_dir=str(tmp_path / "run")))
    model, obs = proximo.load(tmp_path / "run"), np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    agent = assemble(model.spec, Config(hidden_sizes=(8, 8)))
    agent.load_state_dict(model.module.state_dict())
    with torch.no_grad():
        assert np.array_equal(model.value(obs), agent.critic(torch.from_numpy(obs)).squeeze(-1).numpy())
        use_bf16(agent, CPU)
        assert not np.array_equal(model.value(obs), agent.critic(torch.from_numpy(obs)).squeeze(-1).numpy())


@pytest.mark.parametrize(("flags", "expected"), [
    ("flags : fpu avx512f avx512_vnni", False), ("flags : fpu avx512f avx512_bf16", True), ("flags : amx_bf16", True),
    ("", False)])
def test_a_processor_that_would_emulate_it_is_refused(flags, expected, monkeypatch, tmp_path, capsys):
    """One sentence before anything is written, by what the processor says of itself."""
    monkeypatch.undo()
    monkeypatch.setattr(precision, "cpu_flags", lambda: flags)
    assert precision.has_bf16(CPU) == expected
    if not expected:
        assert train(tmp_path / "run", "--precision", "bf16") == 2 and not (tmp_path / "run").exists()
        assert "precision=bf16 is not available: this processor would emulate it" in capsys.readouterr().err


def test_jax_and_agents_of_other_kinds_are_refused():
    assert config_problems(Config(precision="bf16")) == []
    assert [problem.partition(":")[0] for problem in config_problems(Config(precision="bf16", framework="jax"))] == [
        "precision=bf16 runs with framework=torch only"]
    with pytest.raises(UsageError, match="does not know the networks of Linear"):
        use_bf16(nn.Linear(2, 2), CPU)
