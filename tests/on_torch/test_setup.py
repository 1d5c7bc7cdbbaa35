"""What is made before the first step: the first weights, and what is left behind if something fails."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import proximo
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.normalize import make_normalizer
from proximo.errors import EnvError, UsageError
from proximo.on_torch import distributed, setup
from proximo.on_torch.assemble import assemble
from proximo.on_torch.compile.aot_cache import describe_layout
from proximo.on_torch.compile.compiled import Compiler
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.setup import first_carry, make_storage, seeded_agent, set_up
from proximo.on_torch.train import train
from proximo.processes import World
from proximo.protocols import Spec
from proximo.streams import stream_seed

SPEC = Spec((4,), np.dtype(np.float32), gym.spaces.Discrete(2))


def test_first_weights_are_those_of_manual_seed_and_no_generator_changes(monkeypatch):
    """torch.manual_seed would seed the generators of GPUs, too, which nothing restores."""
    cfg, seeded = Config(seed=7), []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    before = torch.get_rng_state()
    found = seeded_agent(assemble, SPEC, cfg)
    assert torch.equal(torch.get_rng_state(), before) and not seeded
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(7, "init"))
        expected = assemble(SPEC, cfg)
    assert seeded, "the probe does not see seeds of GPUs"
    pairs = zip(found.parameters(), expected.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_first_observations_have_the_layout_of_all_others():
    """Acting is compiled for the former, and reads rows of the rollout buffer. The observations here have turned axes."""
    cfg = Config(num_envs=3, threads=1).resolved()
    envs = make_gym(cfg, [1, 2, 3])
    normalizer, reset = make_normalizer(cfg, envs), envs.reset
    envs.reset = lambda: (step := reset())._replace(obs=np.asfortranarray(step.obs))
    agent = assemble(normalizer.spec, cfg)
    carry = first_carry(agent, envs, normalizer, None, torch.device("cpu"))
    storage = make_storage(cfg, envs, normalizer.spec.obs_dtype, agent, carry, torch.device("cpu"))
    envs.close()
    assert describe_layout(carry.obs) == describe_layout(storage.rows["obs"][0])


def test_environments_that_cannot_be_reset_are_closed():
    """Also those that take the place of others at a checkpoint."""
    made, closed = [], []

    def fail():
        raise EnvError("not ready")

    def make_envs(cfg, seeds):
        envs = make_gym(cfg, seeds)
        envs._replays, close = False, envs.close  # keeps_state is False, as if their state could not be saved
        envs.close = lambda: closed.append(envs) or close()
        made.append(envs)
        if len(made) == 2:
            envs.reset = fail
        return envs

    cfg = Config(num_envs=2, num_steps=8, num_minibatches=2, total_timesteps=64, checkpoint_every=1, threads=1)
    training = train(cfg, make_envs, assemble)
    next(training)
    with pytest.raises(EnvError, match="not ready"):
        next(training)
    assert len(made) == 2 and {*map(id, closed)} == {*map(id, made)}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_training_is_refused_where_gradients_are_switched_off(mode):
    """The first minibatch ended with a traceback of torch about a tensor that requires no gradient."""
    with mode(), pytest.raises(UsageError, match="Gradients are switched off"):
        next(proximo.iterations(Config(env_id="CartPole-v1")))


def test_training_is_refused_in_float64():
    """A resume in another program would continue in float32, with other bits."""
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(UsageError, match=r"default dtype of torch is torch\.float64"):
            next(proximo.iterations(Config(env_id="CartPole-v1")))
    finally:
        torch.set_default_dtype(torch.float32)


def test_networks_made_in_several_threads_have_the_weights_of_one_thread():
    """Several programs train in threads; torch's global generator, which draws first weights, is one for all of them."""
    def slow(spec, cfg):
        agent = assemble(spec, cfg)
        time.sleep(0.05)  # others draw here
        for parameter in agent.parameters():
            nn.init.normal_(parameter)
        return agent

    def first_weights(make_agent):
        training = proximo.iterations("ppo", make_agent=make_agent, num_envs=2, num_steps=16, total_timesteps=32,
                                      num_minibatches=1, update_epochs=1)
        return np.concatenate([x.ravel() for it in training for x in it.weights().values()])

    alone = first_weights(slow)
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(first_weights, [slow] * 4))
    assert all((found == alone).all() for found in together)


class Left:
    """Notes that a process has left the others."""

    closed = False

    def close(self):
        self.closed = True


def no_envs(cfg, seeds):
    raise RuntimeError("no environments")


class Counting(nn.Module):
    """A network that several processes cannot share: a buffer of it changes."""

    def __init__(self, spec, cfg):
        super().__init__()
        self.agent = assemble(spec, cfg)
        self.register_buffer("count", torch.zeros(1))

    def __getattr__(self, name):
        return super().__getattr__(name) if name in ("agent", "count") else getattr(self.agent, name)


@pytest.mark.parametrize(("parts", "sentence"), [
    ({"make_envs": no_envs}, "no environments"), ({"make_agent": Counting}, "The network has the buffers count")])
def test_a_failed_start_leaves_the_other_processes(parts, sentence, monkeypatch):
    """Otherwise they would wait for this one, and the next training of this process would not join anybody."""
    presence, checked = Left(), []
    monkeypatch.setattr(setup, "join", lambda cfg: World(0, 2, 0, 2, presence))
    monkeypatch.setattr(setup, "check_same_start", lambda *_: checked.append(1))
    monkeypatch.setattr(setup, "check_same_settings", lambda *_: checked.append(1))
    parts = {"make_envs": make_gym, "make_agent": assemble} | parts
    with pytest.raises((RuntimeError, ValueError), match=sentence):
        set_up(Config(threads=1), **parts, loss_fn=ppo_loss, state=None)
    assert presence.closed and len(checked) == 2


def test_environments_that_cannot_be_closed_leave_the_other_processes(monkeypatch):
    """The others waited for this one until their time limit."""
    class Stuck(GymEnvs):
        def close(self):
            super().close()
            raise RuntimeError("cannot be closed")

    left = []
    monkeypatch.setattr("proximo.on_torch.train.leave", left.append)
    training = train(Config(num_steps=8, num_minibatches=2),
                     lambda cfg, seeds: Stuck(lambda: gym.make("CartPole-v1"), seeds, "CartPole-v1"), assemble)
    next(training)
    with pytest.raises(RuntimeError, match="cannot be closed"):
        training.close()
    assert left


def test_the_weights_of_all_processes_are_compared_at_the_start_only(monkeypatch):
    """A resume restores those of the checkpoint."""
    compared = []
    monkeypatch.setattr(setup, "check_same_weights", lambda world, weights: compared.append(len(weights)))
    made = set_up(Config(threads=1), make_gym, assemble, ppo_loss, None)
    assert compared == [len(made.adam.weights)]
    made.envs.close()


@pytest.mark.parametrize(("other", "refused"), [
    ([4, 2.0, 3.0], False), ([4, 2.00001, 3.0], False), ([4, 2.1, 3.0], True), ([5, 2.0, 3.0], True)])
def test_processes_begin_with_the_same_weights(other, refused, monkeypatch):
    """Weights that numpy had drawn differed, and gradients of different networks were added up; other numbers ended
    one process by a signal. Rounding differs between types of processors."""
    weights, second = torch.tensor([1.0, 1.0, -1.0, 1.0]), torch.tensor(other, dtype=torch.float64)
    weights[3] = 1.0
    sums = torch.tensor([[4.0, 2.0, 4.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    second[2] += 1

    def add(given):
        assert torch.equal(given, sums)
        given[1] = second
        return given

    monkeypatch.setattr(distributed, "all_reduce_sum", lambda world: add)
    if not refused:
        distributed.check_same_weights(World(0, 2, 0, 2, None), weights)
        return
    with pytest.raises(UsageError, match="make_agent made other weights in process 1 than in process 0. Draw them"):
        distributed.check_same_weights(World(0, 2, 0, 2, None), weights)


class OneMore(gym.RewardWrapper):
    def reward(self, reward):
        return reward + 1.0


def test_parts_of_the_setup_can_be_replaced():
    """Rewards that `collect` raises are learned from as those of environments that return them."""
    cfg = Config(num_envs=2, num_steps=16, total_timesteps=64, threads=1)

    def set_up_with_one_more(*arguments):
        made = set_up(*arguments)

        def collect(*played):
            found = made.collect(*played)
            return found._replace(rollout=found.rollout._replace(reward=found.rollout.reward + 1.0))

        return made._replace(collect=collect)

    def weights(make_envs, **replaced):
        return [it.weights() for it in train(cfg, make_envs, assemble, **replaced)][-1]

    found = weights(make_gym, set_up=set_up_with_one_more)
    expected = weights(lambda cfg, seeds: GymEnvs(lambda: OneMore(gym.make(cfg.env_id)), seeds, cfg.env_id))
    plain = weights(make_gym)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert any((found[name] != plain[name]).any() for name in plain)


@pytest.mark.parametrize(("number", "name"), [(0, "logprob"), (1, "value")])
def test_an_evaluation_of_ones_own_gives_one_number_per_row(number, name):
    """(T, N, 1) was broadcast against (T, N) without a word."""
    def make(spec, cfg):
        agent = assemble(spec, cfg)
        evaluate = agent.evaluate

        def wide(*given):
            found = list(evaluate(*given))
            found[number] = found[number][..., None]
            return tuple(found)

        agent.evaluate = wide
        return agent

    with pytest.raises(UsageError, match=rf"computes {name} of shape \(16, 4, 1\) for a rollout of shape \(16, 4\)"):
        next(train(Config(num_envs=4, num_steps=16, total_timesteps=64), make_gym, make))


@pytest.mark.parametrize(("fields", "words"), [
    ({"num_minibatches": 8}, "a minibatch has whole environments, and 4 of them are not divisible by num_minibatches=8"),
    ({"overlap": True}, "overlap=True does not support a recurrent network")])
def test_a_recurrent_network_of_ones_own_has_the_limits_of_recurrent(fields, words):
    """The configuration does not say that it is recurrent. It was an error of numpy after the first rollout."""
    cfg = Config(num_envs=4, num_steps=16, total_timesteps=64, **fields)
    with pytest.raises(UsageError, match=words):
        next(proximo.iterations(cfg, make_agent=lambda spec, cfg: assemble(spec, replace(cfg, recurrent="lstm"))))


def test_a_configuration_for_jax_is_refused_by_the_loop_of_torch():
    """It trained with torch without a word."""
    with pytest.raises(UsageError, match="framework=jax, and this loop trains with torch"):
        next(train(Config(framework="jax", total_timesteps=512), make_gym, assemble))


def test_a_network_of_jax_is_refused():
    """It ended with an AttributeError."""
    with pytest.raises(UsageError, match="which is not a torch.nn.Module. Return one, or use framework=jax"):
        proximo.train("ppo", env_id="CartPole-v1", make_agent=lambda spec, cfg: Plain(), logger="none", total_timesteps=512)


class Plain:
    """Has the parts of an agent, and is no module."""

    head = CategoricalHead(nn.Linear(4, 2), 2)
    recurrent = evaluates_later = initial_state = act = value = evaluate = None


def test_training_within_autocast_is_refused():
    """It would compute in bfloat16."""
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(UsageError, match="torch.autocast is on where training begins"):
        next(proximo.iterations(Config(env_id="CartPole-v1")))


@pytest.mark.parametrize(("switch", "back", "sentence"), [
    (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32), "The default dtype of torch is torch.float64"),
    (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.set_autocast_enabled("cpu", False), "torch.autocast is on")])
@pytest.mark.parametrize("overlap", [False, True])
def test_defaults_of_torch_that_change_while_a_run_trains_are_refused(switch, back, sentence, overlap):
    """It went on, with other noise or in bfloat16: a resume in another process has other bits."""
    cfg = Config(env_id="Pendulum-v1", num_envs=2, num_steps=8, num_minibatches=2, hidden_sizes=(8,), total_timesteps=64, overlap=overlap)
    try:
        with pytest.raises(UsageError, match=sentence):
            for _ in proximo.iterations(cfg):
                switch()  # as a callback or an environment could
    finally:
        back()


def test_another_default_device_is_refused():
    """Tensors of the loop would be on it."""
    with torch.device("meta"), pytest.raises(UsageError, match="The default device of torch is meta"):
        next(proximo.iterations(Config(env_id="CartPole-v1")))


@pytest.mark.parametrize(("fields", "names"), [
    ({}, {"acting", "the minibatch step"}), ({"recurrent": "lstm"}, {"acting"})])
def test_a_compiler_gets_acting_and_the_minibatch_step(fields, names, monkeypatch, caplog):
    """A recurrent agent learns from segments whose lengths change: it is said that its step is not compiled."""
    given = set()
    compiler = Compiler(lambda function, example, name: given.add(name) or function, lambda: None, False, True)
    monkeypatch.setattr(setup, "usable_compiler", lambda cfg, agent, device: compiler)
    made = set_up(Config(num_envs=4, num_steps=8, total_timesteps=32, threads=1, **fields).resolved(), make_gym, assemble,
                  ppo_loss, None)
    made.envs.close()
    assert given == names and ("--compile compiles acting only" in caplog.text) == bool(fields)
