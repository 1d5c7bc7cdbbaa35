"""Groups of environments that take turns: against the plain rollout, a definition, and runs with other timing."""

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch

from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.calls import groups_of
from proximo.envs.custom.suite import make_complete
from proximo.envs.episodes import finished_episodes
from proximo.envs.gym import make_gym
from proximo.on_torch.assemble import assemble
from proximo.on_torch.compile.compiled import Compiler, compile_collect
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.rollout_groups import collect_in_groups
from proximo.on_torch.setup import set_up
from proximo.problems import config_problems
from proximo.runs.timing import Recorder, timed
from proximo.variants import SelfPlay
from tests.support.probes import Probe
from tests.support.runs import CrashError, at_iteration, crash, same_logs, same_weights, train

T, N, G = 24, 6, 3


class Turns:
    """Groups of environments in this process, each with its own GymEnvs. Steps are played when they are received."""

    def __init__(self, cfg, seeds):
        size = len(seeds) // cfg.env_groups
        self.groups, alone = cfg.env_groups, replace(cfg, env_workers=0, env_groups=1)
        self.parts = [make_gym(alone, seeds[k:k + size]) for k in range(0, len(seeds), size)]
        self.num_envs, self.sent, self.raw = len(seeds), {}, []
        self.keeps_state = False

    def __getattr__(self, name):
        return getattr(self.parts[0], name)

    def reset(self):
        return joined([part.reset() for part in self.parts])

    def send(self, group, action):
        assert group not in self.sent
        self.sent[group] = action.copy()

    def receive(self, group):
        step = self.parts[group].step(self.sent.pop(group))
        self.raw.append((step.obs.copy(), step.reward.copy()))
        torch.set_grad_enabled(True)  # as an environment of a user may
        return step

    def close(self):
        pass


def joined(steps):
    """One Step of all groups."""
    whole = {name: None if getattr(steps[0], name) is None else np.concatenate([getattr(step, name) for step in steps])
             for name in ("obs", "first", "mask", "reward", "terminated", "truncated", "final_obs", "valid")}
    return steps[0]._replace(**whole)


def configuration(groups, **fields):
    return Config(**({"num_envs": N, "num_steps": T, "num_minibatches": 1, "env_workers": groups if groups > 1 else 0,
                      "env_groups": groups, "total_timesteps": 1000, "hidden_sizes": (8,), "memory_size": 8,
                      "threads": 1} | fields))


def play(cfg, make_envs):
    """Two rollouts of one setup, whose second begins where the first ends. Returns the second, and the setup."""
    setup = set_up(cfg, make_envs, assemble, ppo_loss, None)
    carry = setup.carry
    with torch.no_grad():
        for number in range(2):
            noise = setup.agent.head.noise(torch.Generator().manual_seed(number), T, N)
            played = setup.collect(setup.envs, setup.normalizer, carry, setup.storage, noise)
            carry = played.carry
    setup.envs.close()
    return played, setup


class UnevenCuts(Probe):
    """A time limit ends episodes after 2 to 5 steps, in different steps of each environment."""

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.length = 2 + int(self.np_random.integers(4))
        return answer

    def step(self, action):
        obs, reward, over, _, info = super().step(action)
        return obs, reward, False, over, info


gymnasium.register("UnevenCuts-v0", UnevenCuts)
PROBE = "tests.support.probes:{}-v0"
KINDS = {
    "cut": {"env_id": f"{__name__}:UnevenCuts-v0"},
    "truncated": {"env_id": PROBE.format("Irregular")}, "shared": {"env_id": PROBE.format("Irregular"), "shared_network": True},
    "lstm": {"env_id": PROBE.format("Irregular"), "recurrent": "lstm"},
    "masked next-step": {"env_id": PROBE.format("Masked"), "autoreset": "next-step"},
    "privileged": {"env_id": PROBE.format("DictObs"), "critic_obs": "vector"},
    "continuous": {"env_id": PROBE.format("Swinging"), "distribution": "gsde", "sde_sample_freq": 3},
    "metrics": {"env_id": "tests.envs.test_info_metrics:Succeeds-v0", "info_metrics": ("is_success", "force")},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_that_of_the_plain_rollout(kind):
    """Everything that learning reads, the carry and the episodes; the products of fewer rows round in another way."""
    plain, _ = play(configuration(1, **KINDS[kind]), make_gym)
    grouped, _ = play(configuration(G, **KINDS[kind]), Turns)
    assert plain.rollout.done.any() and np.array_equal(plain.rollout.valid, grouped.rollout.valid)
    for name, one in plain.rollout._asdict().items():
        other = getattr(grouped.rollout, name)
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    for one, other in zip((plain.carry.obs, plain.carry.first, *plain.carry.state),
                          (grouped.carry.obs, grouped.carry.first, *grouped.carry.state)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    pairs = zip(*(finished_episodes(played.episode, played.rollout.valid.numpy(), 0)[0][:4] for played in (plain, grouped)))
    assert all(np.allclose(one, other) for one, other in pairs)
    assert plain.metrics == pytest.approx(grouped.metrics) and set(plain.metrics) == {
        f"charts/{name}" for name in KINDS[kind].get("info_metrics", ())}


def test_statistics_count_the_steps_in_the_order_of_the_groups():
    """Each normalised row against mean and variance, in float64, of all observations that were counted before."""
    cfg = configuration(G, env_id=PROBE.format("Irregular"), norm_obs=True, norm_reward=True)
    setup = set_up(cfg, Turns, assemble, ppo_loss, None)
    first = np.concatenate([part._obs for part in setup.envs.parts]).astype(float)
    with torch.no_grad():
        noise = setup.agent.head.noise(torch.Generator().manual_seed(0), T, N)
        played = setup.collect(setup.envs, setup.normalizer, setup.carry, setup.storage, noise)
    counted, size = [first], N // G
    for number, (obs, _) in enumerate(setup.envs.raw):
        t, g = divmod(number, G)
        counted.append(obs)
        rows = np.concatenate(counted)
        weight = len(rows) + 1e-4  # the statistics begin with mean 0 and variance 1 of 1e-4 rows
        mean = rows.sum(0) / weight
        var = ((rows - mean) ** 2).sum(0) / weight + 1e-4 * (1 + mean**2) / weight
        expected = np.clip((obs - mean) / np.sqrt(var + 1e-8), -10, 10)
        found = setup.storage.arrays["obs"][t + 1, g * size:(g + 1) * size]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    returns = np.zeros(N)
    for number, (_, reward) in enumerate(setup.envs.raw):
        t, g = divmod(number, G)
        part = slice(g * size, (g + 1) * size)
        returns[part] = returns[part] * cfg.gamma + reward
        returns[part][setup.storage.arrays["terminated"][t, part] | setup.storage.arrays["truncated"][t, part]] = 0
    np.testing.assert_allclose(played.carry.statistics.running, returns)
    assert returns.any() and not setup.carry.statistics.running.any(), "the carry that a rollout began with has changed"


@pytest.mark.parametrize("kind", ["masked", "lstm"])
def test_acting_is_compiled_for_the_rows_of_one_group(kind):
    """The tensors of the example against those of every call."""
    cfg = configuration(G, **{"masked": {"env_id": PROBE.format("Masked"), "recurrent": "gru"}, "lstm": KINDS["lstm"]}[kind])
    setup = set_up(cfg, Turns, assemble, ppo_loss, None)
    examples, calls = [], []

    def compile_nothing(function, example, name):
        examples.append([(x.shape, x.stride(), x.dtype) for x in example])
        return lambda *given: calls.append([(x.shape, x.stride(), x.dtype) for x in given]) or function(*given)

    play = compile_collect(collect_in_groups, setup.agent, setup.adam.weights, setup.storage, setup.carry, cfg,
                           Compiler(compile_nothing, lambda: None, False, True, fuses_steps=True))
    with torch.no_grad():
        noise = setup.agent.head.noise(torch.Generator(), T, N)
    play(setup.envs, setup.normalizer, setup.carry, setup.storage, noise)
    assert len(examples) == 1 and len(calls) == T * G and all(call == examples[0] for call in calls)


def test_any_timing_and_a_crash_give_the_same_weights(tmp_path, monkeypatch):
    """Steps that take up to 4 ms, against steps without a pause in a run that crashes and is continued."""
    words = ["--num-envs", "4", "--env-workers", "2", "--env-groups", "2", "--env-id", PROBE.format("Irregular"), "--norm-obs",
             "--total-timesteps", "384"]
    assert train(tmp_path / "slow", *words, "--env-kwargs", "most=0.004") == 0
    at_iteration(monkeypatch, 4, crash)
    with pytest.raises(CrashError):
        train(tmp_path / "fast", *words)
    assert main(["resume", str(tmp_path / "fast"), "--allow-import", "tests"]) == 0
    assert same_weights(tmp_path / "slow", tmp_path / "fast") and same_logs(tmp_path / "slow", tmp_path / "fast")


@pytest.mark.parametrize(("fields", "sentence"), [
    ({}, "env_groups=2 needs worker processes, the same number for each group, and env_workers=None. Use"),
    ({"env_workers": 1}, "and env_workers=1. Use --env-workers 2"),
    ({"framework": "jax"}, "env_groups=2 runs with framework=torch only."),
    ({"engine": "envpool"}, "env_groups=2 is not available: EnvPool steps its environments on threads"),
    ({"env_workers": 2, "restart_envs": 1}, "env_groups=2 does not go together with restart_envs=1."),
])
def test_what_cannot_take_turns_says_so(fields, sentence):
    assert [problem for problem in config_problems(Config(env_groups=2, **fields)) if sentence in problem]


def test_players_of_a_game_do_not_take_turns():
    problems = config_problems(SelfPlay(env_groups=2, env_workers=2))
    assert problems == ["env_groups=2 is not available: the players of a game step together. Leave --env-groups out."]


def test_environments_of_ones_own_that_cannot_take_turns_are_refused():
    with pytest.raises(Exception, match="env_groups=2 needs environments that step in groups"):
        set_up(configuration(2), lambda cfg, seeds: make_gym(replace(cfg, env_workers=0, env_groups=1), seeds), assemble,
               ppo_loss, None)


class Around:
    """The wrapper of docs/demonstrations.md and others: it has a step of its own, and hands on everything else."""

    def __init__(self, envs):
        self.envs = envs

    def __getattr__(self, name):
        return getattr(self.envs, name)

    def step(self, action):
        return self.envs.step(action)._replace(reward=np.ones(N, np.float32))


def test_a_wrapper_whose_step_would_not_be_called_is_refused():
    """The rewards of a discriminator, and the costs of a constraint, were left out without a word."""
    def make_envs(cfg, seeds):
        return Around(Turns(cfg, seeds))

    with pytest.raises(Exception, match="env_groups=3 needs environments that step in groups"):
        set_up(configuration(3), make_envs, assemble, ppo_loss, None)
    for make in (partial(make_complete, make_envs), timed(make_envs, Recorder())):
        assert groups_of(make(configuration(3), range(N))) == 1
    for make in (partial(make_complete, Turns), timed(Turns, Recorder())):
        assert groups_of(make(configuration(3), range(N))) == 3
