"""Rollouts that are played while updates run: the lag, the decoupled objective, and results that depend on no timing."""

import math
import queue
import signal
import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv

import proximo
from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.custom.factory import make_from_factory
from proximo.envs.gym import make_gym
from proximo.envs.normalize import make_normalizer
from proximo.errors import UsageError
from proximo.on_torch import overlap_collector, precision
from proximo.on_torch.assemble import assemble
from proximo.on_torch.learner import make_batch, make_gradient
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.overlap import Proximal, decoupled, lag_statistics, train_overlapped, with_proximal_logprob
from proximo.on_torch.setup import set_up
from proximo.on_torch.train import train
from proximo.problems import config_problems
from proximo.runs.folder.checkpoint import checkpoints
from proximo.types import Coefficients, Minibatches
from tests.runs.test_resume import KINDS
from tests.support import runs
from tests.support.probes import Probe
from tests.support.runs import CrashError, at_iteration, crash, rows, same_logs, same_weights, terminate

SMALL = {"num_envs": 4, "num_steps": 16, "num_minibatches": 2, "update_epochs": 2, "hidden_sizes": (8,), "threads": 1}


def configuration(iterations, **fields):
    return Config(**(SMALL | {"overlap": True, "total_timesteps": iterations * 64} | fields))


@pytest.mark.parametrize("fields", [{}, {"norm_obs": True, "norm_reward": True}, {"shared_network": True},
                                    {"precision": "bf16"}], ids=str)
def test_a_policy_that_does_not_change_learns_what_the_plain_loop_learns(fields, monkeypatch):
    """A learning rate too small for float32: episodes and losses of both loops, up to rounding."""
    monkeypatch.setattr(precision, "has_bf16", lambda device: True)  # a processor without bfloat16 emulates it
    cfg = configuration(4, learning_rate=1e-30, **fields)
    plain = list(train(replace(cfg, overlap=False), make_gym, assemble))
    overlapped = list(train_overlapped(cfg, make_gym, assemble))
    assert len(plain) == len(overlapped) == 4 and any(len(it.finished.ret) for it in plain)
    with pytest.raises(UsageError, match=r"weights\(\) of iteration 1 was called when iteration 4 had begun"):
        overlapped[0].weights()
    for one, other in zip(plain, overlapped):
        assert one.steps == other.steps and all(map(np.array_equal, one.finished, other.finished))
        for name, value in one.stats.items():
            assert other.stats[name] == pytest.approx(value, rel=1e-3, abs=1e-5, nan_ok=True), name
        assert other.stats["losses/lag_kl"] == pytest.approx(0, abs=1e-6)


def test_whole_floats_are_converted():
    """The check of configurations accepts them."""
    cfg = replace(configuration(2), total_timesteps=128.0, num_envs=4.0)
    assert [it.iteration for it in train_overlapped(cfg, make_gym, assemble)] == [1, 2]


def test_the_policy_that_acts_is_exactly_one_update_old():
    """The weights at every call of act(), against those of the learner after each update."""
    agents, acted = [], []

    def make_agent(spec, cfg):
        agent = assemble(spec, cfg)
        agents.append(agent)
        if len(agents) == 2:
            act = agent.act
            agent.act = lambda *arguments: acted.append(flat(agent)) or act(*arguments)
        return agent

    def flat(agent):
        return torch.cat([p.detach().reshape(-1) for p in agent.parameters()]).clone()

    learned = []
    for it in train_overlapped(configuration(5, learning_rate=1e-2), make_gym, make_agent):
        learned.append(flat(agents[0]))
        if it.iteration > 2:
            assert it.stats["losses/lag_kl"] > 1e-6
    assert len(acted) == 5 * 16
    expected = [acted[0], acted[0], *learned[:3]]  # rollouts 1 and 2: the first weights; rollout 3: after update 1
    for t, weights in enumerate(acted):
        assert torch.equal(weights, expected[t // 16])
    assert not torch.equal(learned[0], acted[0]) and not torch.equal(learned[1], learned[0])


def test_the_divergence_of_the_lag_is_over_valid_rows_and_stays_finite():
    """w - 1 - log w, also where w = exp(-200) is 0 in float32."""
    valid = torch.tensor([False, False, False, True])
    (kl,) = lag_statistics(Proximal(torch.tensor([0.0, 0.0, 0.0, math.log(2)]), torch.zeros(4), valid)).values()
    assert kl == pytest.approx(1 - math.log(2))
    (kl,) = lag_statistics(Proximal(torch.tensor([-200.0, 0.0]), torch.zeros(2), torch.ones(2, dtype=torch.bool))).values()
    assert kl == pytest.approx(199 / 2)


def set_up_and_play(cfg):
    """Make everything for four environments, and play a rollout of 16 steps."""
    setup = set_up(cfg, make_gym, assemble, ppo_loss, None)
    setup.envs.close()
    torch.manual_seed(0)
    with torch.no_grad():
        noise = setup.agent.head.noise(torch.Generator().manual_seed(0), 16, 4)
        return setup, setup.collect(setup.envs, setup.normalizer, setup.carry, setup.storage, noise).rollout


def test_the_lag_is_that_of_allowed_actions_in_valid_rows():
    """Log-softmax over the allowed logits, row by row in float64; 0 in filler rows."""
    cfg = replace(configuration(1, env_id="tests.support.probes:Masked-v0", autoreset="next-step"), overlap=False)
    setup, played = set_up_and_play(cfg)
    with torch.no_grad():
        setup.adam.weights.add_(0.1 * torch.randn_like(setup.adam.weights))
        logits = setup.agent(played.obs.flatten(0, 1), None, None, ())[0].logits.double().view(16, 4, 3)
    rollout, proximal = with_proximal_logprob(setup.agent, played, 7)
    assert not played.valid.all() and not played.mask.all()
    for t, n in np.ndindex(16, 4):
        allowed = {a: math.exp(logits[t, n, a]) for a in range(3) if played.mask[t, n, a]}
        logprob = math.log(allowed[int(played.action[t, n])] / sum(allowed.values()))
        assert float(rollout.logprob[t, n]) == pytest.approx(logprob, abs=1e-5)
        lag = logprob - float(played.logprob[t, n]) if played.valid[t, n] else 0.0
        assert float(proximal.lag.view(16, 4)[t, n]) == pytest.approx(lag, abs=1e-5)


def test_the_decoupled_objective():
    """Finite differences of the objective of Hilton et al. (2021), and of the clipped loss of values, row by row in float64."""
    cfg = replace(configuration(1), overlap=False, ent_coef=0.0, vf_coef=0.5, norm_adv="none", clip_coef=0.1)
    setup, played = set_up_and_play(cfg)
    with torch.no_grad():
        behaviour = played.logprob.flatten().double()
        setup.adam.weights.add_(0.1 * torch.randn_like(setup.adam.weights))  # the policy that the update begins with
        value_before = setup.agent.value(played.obs.flatten(0, 1), None, ()).double()
    rollout, found = with_proximal_logprob(setup.agent, played, 7)
    proximal, ret = rollout.logprob.flatten().double(), torch.linspace(-1, 1, 64)
    assert (proximal - behaviour).abs().max() > 0.05
    setup.adam.weights.add_(0.1 * torch.randn_like(setup.adam.weights))  # and after some minibatches
    advantage = torch.randn(64)
    index = torch.randperm(64)[:40]
    gradient = make_gradient(setup.agent, ppo_loss, cfg)
    capturing = setup._replace(learner=setup.learner._replace(step=lambda batch, minibatch, rate, coefficients: gradient(
        batch, minibatch, coefficients)))
    minibatch = Minibatches(index=index, advantage=advantage[index], count=torch.tensor(40.0), noise=None)
    found, _ = decoupled(capturing, found).learner.step(make_batch(rollout, ret.view(16, 4), (), False), minibatch,
                                                        None, Coefficients(torch.tensor(cfg.clip_coef), torch.tensor(0.0)))

    obs, action = rollout.obs.flatten(0, 1).double(), rollout.action.flatten(0, 1)
    double = setup.agent.double()  # parameters of their own
    parameters = list(double.parameters())

    def objective():
        with torch.no_grad():
            dist, value, _ = double(obs, None, None, ())
            current = dist.logprob(action)
        total, clipped, error, limits = 0.0, 0, 0.0, 0
        for i in index.tolist():
            ratio = float((current[i] - proximal[i]).exp())
            limited = min(max(ratio, 1 - cfg.clip_coef), 1 + cfg.clip_coef)
            clipped += ratio != limited
            total += float((proximal[i] - behaviour[i]).exp()) * min(ratio * float(advantage[i]), limited * float(advantage[i]))
            change = min(max(float(value[i] - value_before[i]), -cfg.clip_coef), cfg.clip_coef)
            limits += change != float(value[i] - value_before[i])
            error += max(float(value[i] - ret[i]) ** 2, float(value_before[i] + change - ret[i]) ** 2)
        assert 0 < clipped < 40 and limits
        return -total / 40 + cfg.vf_coef * 0.5 * error / 40

    step, start = 1e-6, 0
    for parameter in parameters:
        values = parameter.data.view(-1)
        for i in range(0, len(values), 1 + len(values) // 5):
            before = float(values[i])
            values[i] = before + step
            above = objective()
            values[i] = before - step
            slope = (above - objective()) / (2 * step)
            values[i] = before
            assert float(found[start + i]) == pytest.approx(slope, rel=1e-3, abs=1e-5)
        start += len(values)


def overlapped(folder, kind, *words):
    """Ten iterations, with checkpoints after 3, 6 and 9; returns the exit code."""
    variant, flags = KINDS[kind]
    return runs.train(folder, "--overlap", *flags.split(), *words, variant=variant)


@pytest.mark.parametrize(("kind", "number"), [("cartpole", 2), ("normalised", 7), ("gsde", 6), ("rebuilt", 8), ("masked", 4)])
def test_a_run_that_crashed_ends_as_if_it_had_not(kind, number, tmp_path, monkeypatch):
    """Before the first checkpoint, right at one, and between two, while the next rollout is in flight."""
    assert overlapped(tmp_path / "whole", kind) == 0
    at_iteration(monkeypatch, number, crash)
    with pytest.raises(CrashError):
        overlapped(tmp_path / "broken", kind)
    assert main(["resume", str(tmp_path / "broken"), "--allow-import", "tests"]) == 0
    assert same_weights(tmp_path / "whole", tmp_path / "broken") and same_logs(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize("done", [1, 3])
def test_a_resume_plays_other_episodes_where_no_state_was_saved(done):
    """Here it begins between two iterations at which the environments are made again."""
    played = set()

    class Opaque(Probe):
        def __init__(self):
            self.handle = {1, 2}  # cannot be saved

        def reset(self, *, seed=None, options=None):
            self.begun_with = self.begun_with if seed is None else seed
            return super().reset(seed=seed)

        def step(self, action):
            played.add(self.begun_with)
            return super().step(action)

    make_envs = partial(make_from_factory, Opaque)
    for it in train_overlapped(configuration(done, checkpoint_every=2), make_envs, assemble):
        state = it.snapshot()
    before = set(played)
    played.clear()
    for _ in train_overlapped(configuration(done + 1, checkpoint_every=2), make_envs, assemble, state=state):
        pass
    assert len(before) == {1: 4, 3: 8}[done] and len(played) == 4 and not before & played


def test_sigterm_saves_the_iteration_and_the_rollout_in_flight(tmp_path, monkeypatch):
    """Steps that take up to 2 ms in one run and none in the other: the same weights, also after a resume between two
    scheduled checkpoints."""
    words = ["--env-id", "tests.support.probes:Irregular-v0"]
    runs.train(tmp_path / "slow", "--overlap", *words, "--env-kwargs", "most=0.002")
    at_iteration(monkeypatch, 8, terminate)
    assert runs.train(tmp_path / "fast", "--overlap", *words) == 128 + signal.SIGTERM
    assert checkpoints(tmp_path / "fast")[-1].name == "00000008"
    assert main(["resume", str(tmp_path / "fast"), "--allow-import", "tests"]) == 0
    assert same_weights(tmp_path / "slow", tmp_path / "fast") and same_logs(tmp_path / "slow", tmp_path / "fast")
    assert len(rows(tmp_path / "fast", "metrics.csv")) == 10


def test_environments_are_closed_when_a_rollout_in_flight_has_ended(monkeypatch):
    """The end of training does not wait for a long step, and closes no environment in the middle of it."""
    monkeypatch.setattr(overlap_collector, "CLOSING_SECONDS", 0.1)
    stepping, go_on, closed = threading.Event(), threading.Event(), queue.Queue()

    class Slow(Probe):
        steps, inside = 0, False

        def step(self, action):
            self.steps += threading.current_thread().name == "overlap"  # not when it is tested whether there is a state
            if self.steps > 16:  # the second rollout
                self.inside = True
                stepping.set()
                assert go_on.wait(60)
            answer = super().step(action)
            self.inside = False
            return answer

        def close(self):
            closed.put(self.inside)

    training = train_overlapped(configuration(3), partial(make_from_factory, Slow), assemble)
    next(training)
    assert stepping.wait(60)
    while not closed.empty():  # the copies of that test
        closed.get()
    training.close()
    assert closed.empty()
    waiting = [thread for thread in threading.enumerate() if thread.name.startswith("overlap")]
    assert len(waiting) == 2 and all(thread.daemon for thread in waiting), "the process would wait for the step"
    go_on.set()
    assert [closed.get(timeout=60) for _ in range(4)] == [False] * 4


@pytest.mark.parametrize("refused", [False, True])
def test_environments_are_closed_when_training_ends(refused):
    """By the thread that trained, if no step is in flight; also where the network cannot be used."""
    made, closed = [], []

    class Counted(Probe):
        def __init__(self):
            made.append(self)

        def close(self):
            closed.append((self, threading.current_thread()))

    def make_agent(spec, cfg):
        agent = assemble(spec, cfg)
        if refused:
            agent.register_buffer("mean", torch.zeros(1))
        return agent

    with pytest.raises(UsageError) if refused else nullcontext():
        for _ in train_overlapped(configuration(2), partial(make_from_factory, Counted), make_agent):
            pass
    assert made and all(any(env is other for other, _ in closed) for env in made)
    assert {thread for _, thread in closed} == {threading.current_thread()}


def test_a_fault_of_an_environment_in_the_thread_ends_the_run(tmp_path, capsys):
    words = ["--env-id", "tests.support.probes:Faulty_raises-v0", "--env-kwargs", "at=100"]
    assert runs.train(tmp_path / "run", "--overlap", *words) == 3
    assert "the motor is on fire" in capsys.readouterr().err


@pytest.mark.long
def test_compiled_acting_has_weights_of_its_own():
    """--compile compiles acting for both networks: equal to the run without, up to rounding."""
    cfg = configuration(3, learning_rate=1e-3)
    plain, compiled = ([it.weights() for it in train_overlapped(replace(cfg, compile=on), make_gym, assemble)][-1]
                       for on in (False, True))
    for name, x in plain.items():
        np.testing.assert_allclose(x, compiled[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("fields", "sentence"), [
    ({"framework": "jax"}, "overlap=True runs with framework=torch only"),
    ({"recurrent": "lstm"}, "overlap=True does not support recurrent=lstm"),
])
def test_what_does_not_fit_says_so(fields, sentence):
    assert [problem for problem in config_problems(Config(overlap=True, **fields)) if sentence in problem]


def test_the_plain_loop_and_buffers_are_refused():
    with pytest.raises(UsageError, match="needs the loop train_overlapped"):
        next(train(configuration(1), make_gym, assemble))

    def with_buffer(spec, cfg):
        agent = assemble(spec, cfg)
        agent.register_buffer("mean", torch.zeros(1))
        return agent

    with pytest.raises(UsageError, match="overlap=True does not support buffers of the network \\(mean\\)"):
        next(train_overlapped(configuration(1), make_gym, with_buffer))


def test_a_network_that_is_made_once_is_refused():
    """Its weights were moved to the copy that acts: the network learned nothing, without a word."""
    cfg = configuration(1)
    envs = make_gym(cfg, [0])
    agent = assemble(make_normalizer(cfg, envs).spec, cfg)
    envs.close()
    with pytest.raises(UsageError, match="make_agent returned the same network, or parts of it, at its second call"):
        next(train_overlapped(cfg, make_gym, lambda spec, cfg: agent))


def test_autocast_in_the_thread_of_overlap_is_refused():
    """It is on for a thread: that of the loop did not see what an environment had switched on in that of rollouts."""
    class Switching(CartPoleEnv):
        def step(self, action):
            if threading.current_thread().name == "overlap":
                torch.set_autocast_enabled("cpu", True)
            return super().step(action)

    run = proximo.iterations("ppo", env=Switching, num_envs=2, num_steps=8, num_minibatches=2, hidden_sizes=(8,),
                             total_timesteps=64, overlap=True)
    with pytest.raises(UsageError, match="torch.autocast is on"):
        list(run)
