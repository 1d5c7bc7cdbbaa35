"""collect: what truly followed each action, for every pattern of ends in both reset modes, with scripted environments;
filler rows; and the memory's state at time limits."""

import itertools
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from proximo.on_torch.recipes.ppo import make_agent

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.on_torch.agent import Acted
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.gae import gae
from proximo.on_torch.rollout import Carry, Policy, Storage, collect
from proximo.on_torch.train import train

PATTERNS = np.array(list(itertools.product(range(3), repeat=4)))  # (81, 4): go on, terminate, truncate
STEPS = PATTERNS.shape[1]


class Scripted(gymnasium.Env):
    """Ends as its pattern says (again and again); an observation is a number that occurs once."""

    observation_space = spaces.Box(0, 1e6, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, pattern):
        self.pattern, self.decisions, self.episode = pattern, 0, -1

    def reset(self, *, seed=None, options=None):
        self.episode, self.played = self.episode + 1, 0
        return self.observe(), {}

    def observe(self):
        return np.array([10 * self.episode + self.played], np.float32)

    def step(self, action):
        end = self.pattern[self.decisions % STEPS]
        self.decisions += 1
        self.played += 1
        return self.observe(), float(self.decisions), end == 1, end == 2, {}


def scripted(mode, patterns=PATTERNS):
    waiting = [Scripted(pattern) for pattern in patterns]
    return GymEnvs(lambda *_: waiting.pop(0), range(len(patterns)), "Scripted", mode)


def act(obs, mask, first, state, noise):
    """The memory counts decisions since the episode began; the value is that of the observation and of the count."""
    count = torch.where(first, 0.0, state[0]) + 1
    zeros = torch.zeros(len(obs))
    return Acted(zeros.long(), (count,), zeros, value_of(obs, first, state))


def value_of(obs, first, state):
    return obs[:, 0] + 1000 * (torch.where(first, 0.0, state[0]) + 1)


def collected(envs, steps, rollouts=1):
    head = CategoricalHead(torch.nn.Identity(), 2)
    storage = Storage(envs, steps, head, None, torch.device("cpu"))
    step = envs.reset()
    carry = Carry(torch.as_tensor(step.obs), None, torch.as_tensor(step.first), (torch.zeros(envs.num_envs),))
    found = []
    for _ in range(rollouts):
        noise = torch.zeros(steps, envs.num_envs, 2)
        rollout, carry, ended = collect(Policy(act, value_of, None), envs, carry, storage, noise)
        found.append((type(rollout)(*(None if x is None else x.clone() for x in rollout)), ended))
    return found


def expected_rows(pattern, decisions):
    """(obs, value, next_value, reward, terminated, done) of every decision, told by hand."""
    rows, episode, played = [], 0, 0
    for k in range(decisions):
        end, obs = pattern[k % STEPS], 10 * episode + played
        next_value = obs + 1 + 1000 * (played + 2)  # V of what followed, in the same episode, the memory one step on
        rows.append((obs, obs + 1000 * (played + 1), None if end == 1 else next_value, k + 1, end == 1, end > 0))
        episode, played = (episode + 1, 0) if end else (episode, played + 1)
    return rows


def rows_of(rollouts, n):
    """The same, of the valid rows of environment n."""
    rows = []
    for rollout, _ in rollouts:
        for t in np.flatnonzero(rollout.valid[:, n]):
            terminated = bool(rollout.terminated[t, n])
            rows.append((float(rollout.obs[t, n, 0]), float(rollout.value[t, n]),
                         None if terminated else float(rollout.next_value[t, n]), float(rollout.reward[t, n]),
                         terminated, bool(rollout.done[t, n])))
    return rows


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
@pytest.mark.parametrize("steps,rollouts", [(STEPS, 2), (3, 3), (1, 8)])
def test_what_followed_each_action(mode, steps, rollouts):
    """Every pattern of ends of four decisions at once, against the script; rollouts begin anywhere in an episode."""
    found = collected(scripted(mode), steps, rollouts)
    for n, pattern in enumerate(PATTERNS):
        rows = rows_of(found, n)
        assert rows == expected_rows(pattern, len(rows))
        assert len(rows) == steps * rollouts if mode == "same-step" else len(rows) >= steps * rollouts / 2


def test_both_reset_modes_give_the_same_advantages():
    """Up to the masked rows, for every episode that ended in both."""
    same, = collected(scripted("same-step"), 8)
    late, = collected(scripted("next-step"), 16)
    advantages = [gae(r.reward, r.value, r.next_value, r.terminated, r.done, 0.99, 0.95) for r in (same[0], late[0])]
    for n in range(len(PATTERNS)):
        kept = late[0].valid[:, n]
        ours, theirs = advantages[0][:, n], advantages[1][kept, n]
        ended = np.flatnonzero(same[0].done[:, n])
        until = min(int(ended[-1]) + 1 if len(ended) else 0, len(theirs))
        torch.testing.assert_close(ours[:until], theirs[:until], rtol=0, atol=0)
    filler = ~late[0].valid
    assert filler.any() and (late[0].reward[filler] == 0).all() and not late[0].done[filler].any()


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_episodes_are_told_once_with_their_step_row_return_and_length(mode):
    (rollout, ended), = collected(scripted(mode), 12)
    assert sorted(zip(ended.time, ended.row)) == sorted(
        (t, n) for t, n in zip(*np.nonzero(rollout.done.numpy())))
    assert (np.diff(ended.time) >= 0).all()
    for time, row, ret, length in zip(ended.time, ended.row, ended.ret, ended.length):
        played = [float(r) for r, v in zip(rollout.reward[:time + 1, row], rollout.valid[:time + 1, row]) if v]
        assert ret == sum(played[-length:])


class Poisoned:
    """An environment whose filler rows hold a reward of 1e6 and an observation nobody may learn from."""

    def __init__(self, envs, reward):
        self.envs, self.reward, self.fillers = envs, reward, 0
        for name in ("num_envs", "obs_shape", "obs_dtype", "action_space", "arrays", "players", "metric_names",
                     "statistics", "play", "keeps_state", "reset", "state", "load", "close"):
            setattr(self, name, getattr(envs, name))

    def step(self, action):
        step = self.envs.step(action)
        self.fillers += int((~step.valid).sum())
        return step._replace(reward=np.where(step.valid, step.reward, np.float32(self.reward)))


@pytest.mark.parametrize("change", [{}, {"norm_adv": "batch"}, {"recurrent": "lstm"}, {"target_kl": 0.01}])
def test_a_filler_row_with_a_reward_of_1e6_changes_nothing(change):
    """Against the same run with rewards of 0 there: every bit of weights and statistics."""
    cfg = Config(env_id="tests.support.probes:Acting-v0", autoreset="next-step", num_envs=4, num_steps=16, hidden_size=8,
                 memory_size=8, total_timesteps=3 * 64, **change)
    ends, poisoned = [], None
    for reward in (0, 1e6):
        poisoned = Poisoned(make_gym(cfg, range(4)), reward)
        *_, last = train(cfg, lambda cfg, seeds, envs=poisoned: envs, make_agent)
        ends.append((last.weights(), last.stats, last.steps))
    assert poisoned.fillers == 96 and ends[0][2] == 96  # every second row is a filler and counts for nothing
    assert all(np.array_equal(ends[0][0][name], ends[1][0][name]) for name in ends[0][0])
    np.testing.assert_equal(ends[0][1], ends[1][1])


def test_actions_reach_the_environments_as_they_were_drawn():
    """The buffers' rows are views: what is stored is what was played."""
    envs = scripted("same-step", PATTERNS[:3])
    given = []
    envs.step = partial(_noting, envs.step, given)

    def drawn(obs, mask, first, state, noise):
        return act(obs, mask, first, state, noise)._replace(action=noise.argmax(-1))

    storage = Storage(envs, 5, CategoricalHead(torch.nn.Identity(), 2), None, torch.device("cpu"))
    step = envs.reset()
    carry = Carry(torch.as_tensor(step.obs), None, torch.as_tensor(step.first), (torch.zeros(3),))
    noise = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0))
    rollout, _, _ = collect(Policy(drawn, value_of, None), envs, carry, storage, noise)
    assert np.array_equal(np.stack(given), noise.argmax(-1).numpy()) and torch.equal(rollout.action, noise.argmax(-1))


def _noting(step, given, action):
    given.append(np.array(action))
    return step(action)
