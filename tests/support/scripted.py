"""Environments whose episodes end as a script says, and a policy whose values say what it saw.

Every observation is a number that occurs once: 10 times the episode plus the steps played in it. The reward is the
number of actions taken so far, plus 0.5 where the action was 1. Entries of a pattern: 0 continue, 1 terminate,
2 truncate. Patterns repeat.
"""

import itertools
from types import SimpleNamespace
from typing import NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from proximo.envs.gym_loop import GymEnvs
from proximo.protocols import Acted, Episode
from proximo.types import Rollout

PATTERNS = np.array(list(itertools.product(range(3), repeat=4)))  # (81, 4): all patterns of four steps
PERIOD = PATTERNS.shape[1]


class Scripted(gymnasium.Env):
    """Ends as its pattern says, again and again."""

    observation_space = spaces.Box(0, 1e6, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, pattern):
        self.pattern, self.actions, self.episode = pattern, 0, -1

    def reset(self, *, seed=None, options=None):
        self.episode, self.played = self.episode + 1, 0
        return self.observe(), {}

    def observe(self):
        return np.array([10 * self.episode + self.played], np.float32)

    def step(self, action):
        end = self.pattern[self.actions % PERIOD]
        self.actions += 1
        self.played += 1
        return self.observe(), self.actions + 0.5 * float(action), end == 1, end == 2, {}


def make_scripted(mode, patterns=PATTERNS):
    """Make one environment per pattern with a reset mode ("same-step" or "next-step")."""
    waiting = [Scripted(pattern) for pattern in patterns]
    return GymEnvs(lambda *_: waiting.pop(0), range(len(patterns)), "Scripted", mode)


class ScriptedAgent:
    """Acts by the noise; works on arrays of numpy, torch and JAX.

    The state counts actions since the episode began. The value is the observation plus 1000 times that count, so that
    it shows which observation and which state it was computed from.

    Args:
        evaluates_later: The agent has no state, and the value is the observation.
        constant: The action is always 0.
    """

    recurrent = False
    head = SimpleNamespace(action_shape=(), action_dtype=np.int64)

    def __init__(self, evaluates_later=False, constant=False):
        self.evaluates_later, self.constant = evaluates_later, constant

    def initial_state(self, zeros):
        """Return the state before the first step, given zeros (N,) of the framework."""
        return () if self.evaluates_later else (zeros,)

    def act(self, obs, mask, first, state, noise):
        action = noise.argmax(-1) * (not self.constant)
        if self.evaluates_later:
            return Acted(action=action, state=(), logprob=None, value=None)
        count = state[0] * ~first + 1
        return Acted(action=action, state=(count,), logprob=-obs[:, 0], value=self.value(obs, first, state))

    def value(self, obs, first, state):
        return obs[..., 0] if self.evaluates_later else obs[..., 0] + 1000 * (state[0] * ~first + 1)

    def evaluate(self, obs, mask, action):
        return -obs[:-1, :, 0], obs[..., 0]


PLAIN = ScriptedAgent()


class Recorded(NamedTuple):
    """What a rollout left, as numpy arrays."""

    rollout: Rollout
    episode: Episode
    noise: np.ndarray  # (T, N, 2), which decided the actions


class Row(NamedTuple):
    """What was recorded of one action."""

    obs: float
    value: float
    next_value: float | None  # None where the episode terminated, because nothing followed
    reward: float
    terminated: bool
    done: bool


def expected_rows(pattern, actions):
    """Return the Row of each of these actions, worked out by hand."""
    rows, episode, played = [], 0, 0
    for k, action in enumerate(actions):
        end, obs = pattern[k % PERIOD], 10 * episode + played
        next_value = obs + 1 + 1000 * (played + 2)  # V of what followed, in the same episode, the state one step on
        rows.append(Row(obs=obs, value=obs + 1000 * (played + 1), next_value=None if end == 1 else next_value,
                        reward=k + 1 + 0.5 * action, terminated=end == 1, done=end > 0))
        episode, played = (episode + 1, 0) if end else (episode, played + 1)
    return rows


def valid_rows(records, n):
    """Return the Row and the action of every valid step of environment n, from consecutive rollouts."""
    rows, actions = [], []
    for rollout, _, _ in records:
        for t in np.flatnonzero(rollout.valid[:, n]):
            obs, value, next_value, reward, terminated, done = (
                float(x[t, n].item()) for x in (rollout.obs, rollout.value, rollout.next_value, rollout.reward,
                                                rollout.terminated, rollout.done))
            rows.append(Row(obs=obs, value=value, next_value=None if terminated else next_value, reward=reward,
                            terminated=bool(terminated), done=bool(done)))
            actions.append(int(rollout.action[t, n]))
    return rows, actions
