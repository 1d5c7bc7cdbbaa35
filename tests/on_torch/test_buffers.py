"""What a network remembers besides its parameters (BatchNorm): in the model, in checkpoints, after a resume."""

import threading
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import proximo
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.errors import UsageError
from proximo.models.read_folder import models_over_time, read_model
from proximo.on_torch.agent import SharedAgent
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.modes import check_network, copy_if_in_use
from proximo.on_torch.snapshot import saved_buffers
from proximo.on_torch.train import train
from proximo.processes import World
from tests.support.runs import CrashError, at_iteration, crash, same_logs, same_weights

STATISTICS = {"trunk.norm.running_mean", "trunk.norm.running_var", "trunk.norm.num_batches_tracked"}


class Trunk(nn.Module):
    """Normalises by running statistics; `scale` is a constant."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 8)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)

    def forward(self, obs):
        return torch.tanh(self.linear(self.norm(obs))) * self.scale


def make_agent(envs, cfg):
    return SharedAgent(Trunk(), nn.Linear(8, 1), CategoricalHead(nn.Linear(8, 2), 2))


def cfg(folder, **fields):
    return Config(num_envs=2, num_steps=16, num_minibatches=2, update_epochs=2, total_timesteps=320, logger="none",
                  checkpoint_every=3, run_dir=str(folder), **fields)


NETWORK = make_agent(None, None)


def make_shared(spec, cfg):
    """Return parts of the program's one network, as for a pretrained encoder in a variable of a module."""
    return NETWORK


def test_evaluations_do_not_change_the_training_of_a_network_that_is_returned_again(tmp_path):
    """They loaded their weights into the network that was learning, and put its BatchNorm into evaluation mode."""
    begun = {name: x.clone() for name, x in NETWORK.state_dict().items()}
    runs = []
    for name, every in (("plain", 0), ("evaluated", 64)):
        NETWORK.load_state_dict(begun)
        runs.append(proximo.train(cfg(tmp_path / name, eval_every=every, eval_episodes=2), make_agent=make_shared))
    assert same_weights(*runs)


def test_models_of_a_network_that_is_returned_again_keep_their_weights(tmp_path):
    """Those of an earlier iteration, and of another run."""
    obs = np.ones((1, 4), np.float32)
    early = None
    for it in proximo.iterations(cfg(""), make_agent=make_shared):
        if early is None:
            early = it.model()
            first = early.value(obs)
    assert np.array_equal(early.value(obs), first)
    one, other = (proximo.train(cfg(tmp_path / str(seed), seed=seed), make_agent=make_shared) for seed in (1, 2))
    model = proximo.load(one, make_agent=make_shared)
    before = model.value(obs)
    another = proximo.load(other, make_agent=make_shared)
    assert np.array_equal(model.value(obs), before) and not np.array_equal(another.value(obs), before)


def test_a_network_that_is_returned_again_and_cannot_be_copied_is_refused():
    agent = make_agent(None, None)
    agent.lock = threading.Lock()
    assert copy_if_in_use(agent) is agent
    with pytest.raises(UsageError, match=r"cannot be copied \(.*lock.*\). Make a new network at every call"):
        copy_if_in_use(agent)


def test_a_resumed_run_and_a_loaded_model_have_the_buffers(tmp_path, monkeypatch):
    """Against the run that was not interrupted, and against the iterations of the loop."""
    weights = {it.steps: it.weights() for it in proximo.iterations(cfg(""), make_agent=make_agent)}
    trained = weights[320]
    whole, broken = (proximo.train(cfg(tmp_path / "whole"), make_agent=make_agent), tmp_path / "broken")
    at_iteration(monkeypatch, 5, crash)
    with pytest.raises(CrashError):
        proximo.train(cfg(broken), make_agent=make_agent)
    proximo.resume(broken, make_agent=make_agent)
    assert same_weights(whole, broken) and same_logs(whole, broken)
    saved = read_model(broken)["weights"]
    assert saved.keys() == trained.keys() and saved.keys() >= STATISTICS
    assert all(np.array_equal(saved[name], x) for name, x in trained.items())
    assert abs(saved["trunk.norm.running_mean"]).min() > 0
    loaded = saved_buffers(proximo.load(broken, make_agent=make_agent).actor.agent)
    assert all(np.array_equal(loaded[name], saved[name]) for name in STATISTICS)
    checkpoints = dict(models_over_time(broken))
    assert [*checkpoints] == [288, 320]
    assert all(np.array_equal(model["weights"][name], x) for steps, model in checkpoints.items() for name, x in weights[steps].items())


def test_several_processes_are_refused():
    """Each would have statistics of its own."""
    world = World(rank=0, size=2, local_rank=0, local_size=2)
    with pytest.raises(UsageError, match="buffers trunk.norm.running_mean, .* differ between 2 processes. Use one"):
        check_network(make_agent(None, None), world, Config())
    check_network(nn.Linear(1, 1), world, Config())


def test_a_part_that_does_not_learn_is_allowed():
    check_network(nn.Sequential(nn.Linear(1, 1).requires_grad_(False), nn.Linear(1, 1)), World(0, 1, 0, 1), Config())


def test_rollouts_are_played_in_evaluation_mode_and_learned_from_as_made():
    """One environment is a batch of one row, whose statistics BatchNorm cannot learn from. A part that was made in evaluation
    mode stays there."""
    seen = []

    class Watched(Trunk):
        def __init__(self):
            super().__init__()
            self.frozen = nn.BatchNorm1d(4).eval()

        def forward(self, obs):
            seen.append((torch.is_grad_enabled(), self.norm.training, self.frozen.training))
            return super().forward(self.frozen(obs))

    def watched(spec, cfg):
        return SharedAgent(Watched(), nn.Linear(8, 1), CategoricalHead(nn.Linear(8, 2), 2))

    *_, last = proximo.iterations(replace(cfg(""), num_envs=1), make_agent=watched)
    assert seen[0] == (False, True, False)  # the call before training, which checks the network
    assert {*seen[1:]} == {(False, False, False), (True, True, False)}
    assert not last.weights()["trunk.frozen.running_mean"].any() and last.weights()["trunk.norm.running_mean"].any()


class Drops(nn.Sequential):
    """Random layers that torch has, and some that are switched off."""

    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.Dropout(0.1), nn.Dropout(0.0), nn.Dropout(0.5).eval(),
                         nn.LSTM(8, 8, 2, dropout=0.1), nn.LSTM(8, 8, 2), nn.LSTM(8, 8, 2, dropout=0.1).eval(),
                         nn.MultiheadAttention(8, 2, dropout=0.1), nn.RReLU(), nn.RReLU().eval())


@pytest.mark.parametrize(("make_trunk", "sentence"), [
    (Drops, r"The layers trunk\.1, trunk\.4, trunk\.7, trunk\.8 of the network draw random numbers \(dropout\)"),
    (lambda: nn.LazyLinear(8), r"The parameters trunk\.weight, trunk\.bias of the network have no shape yet"),
    (lambda: nn.Linear(4, 8).double(), r"several dtypes: trunk\.bias is float64, .* is float32\. Use one")])
def test_networks_that_cannot_be_trained_are_refused(make_trunk, sentence, tmp_path):
    def make(spec, cfg):
        return SharedAgent(make_trunk(), nn.Linear(8, 1), CategoricalHead(nn.Linear(8, 2), 2))

    with pytest.raises(UsageError, match=sentence):
        proximo.train(cfg(tmp_path / "run"), make_agent=make)
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(("change", "sentence"), [
    (nn.Module.half, "parameters of the network are float16, .* Use network.float"),
    (nn.Module.bfloat16, "parameters of the network are bfloat16, .* --precision bf16"),
    (lambda agent: agent.requires_grad_(False), "no parameter that learns")])
def test_networks_whose_weights_cannot_follow_adam_are_refused(change, sentence):
    """Float16 trained to other numbers than float32 (its steps of Adam are rounded away); the others ended in tracebacks."""
    def make(spec, cfg):
        return change(SharedAgent(nn.Linear(4, 8), nn.Linear(8, 1), CategoricalHead(nn.Linear(8, 2), 2)))

    with pytest.raises(UsageError, match=sentence):
        next(proximo.iterations(cfg(""), make_agent=make))


def test_compile_is_left_out_with_a_sentence(tmp_path, caplog):
    """What is compiled keeps the buffers that it was compiled with."""
    proximo.train(cfg(tmp_path / "plain"), make_agent=make_agent)
    proximo.train(cfg(tmp_path / "compiled", compile=True), make_agent=make_agent)
    assert "--compile does not support buffers (trunk.norm.running_mean, " in caplog.text
    assert same_weights(tmp_path / "plain", tmp_path / "compiled")


def test_a_resume_with_the_same_weights_in_another_order_is_refused(tmp_path):
    """Checkpoints hold one vector: layers of equal sizes got each other's weights. Older checkpoints have no names."""
    def trunk(*names):
        return nn.Sequential(OrderedDict((name, nn.Linear(4, 4)) for name in names))

    def make(*names):
        return lambda spec, cfg: SharedAgent(trunk(*names), nn.Linear(4, 1), CategoricalHead(nn.Linear(4, 2), 2))

    first, *_ = [it.snapshot() for it in train(cfg(""), make_gym, make("a", "b"))]
    with pytest.raises(UsageError, match=r"has the parameter trunk.a.weight \(4, 4\) where this run's network has "
                                         r"trunk.b.weight \(4, 4\). Resume with"):
        next(train(cfg(""), make_gym, make("b", "a"), state=first))
    assert next(train(cfg(""), make_gym, make("a", "b"), state=first)).iteration == 2
    with pytest.raises(UsageError, match=r"trunk.a.weight .* trunk.c.weight \(4, 4\). Resume with .*Begin with trained weights"):
        next(train(cfg(""), make_gym, make("c", "d", "e"), state=first))
    del first["parameters"]
    with pytest.raises(UsageError, match="has a network of 55 weights, but this run's network has 75. Resume with"):
        next(train(cfg(""), make_gym, make("c", "d", "e"), state=first))
    assert next(train(cfg(""), make_gym, make("b", "a"), state=first)).iteration == 2


def test_a_constant_that_is_drawn_is_the_same_in_training_and_in_the_model(tmp_path):
    """register_buffer(persistent=False) keeps it out of the weights, so it has to be drawn again."""
    constants = []

    def make(spec, cfg):
        agent = make_agent(spec, cfg)
        agent.trunk.register_buffer("scale", torch.rand(8), persistent=False)
        constants.append(agent.trunk.scale)
        return agent

    folder = proximo.train(cfg(tmp_path / "run", seed=3), make_agent=make)
    proximo.load(folder, make_agent=make)
    assert len(constants) > 1 and all(torch.equal(x, constants[0]) for x in constants)
