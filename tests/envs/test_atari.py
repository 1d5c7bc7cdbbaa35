"""The ALE loop against Stable-Baselines3's wrappers on Gymnasium's environment, frame by frame; and its switches."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common import atari_wrappers as reference

from proximo.envs.ale import noop_count
from proximo.envs.atari import AleEnvs, make_atari
from proximo.errors import EnvError, UsageError
from proximo.variants import Atari, AtariLSTM, Compact

ale_py = pytest.importorskip("ale_py")


class KeyedNoops(reference.NoopResetEnv):
    """NoopReset with our own counts, so that both stacks begin alike."""

    def __init__(self, env, seed, noop_max):
        super().__init__(env, 30)
        self.key, self.games, self.most = seed, 0, noop_max

    def reset(self, **kwargs):
        self.override_num_noops = noop_count(self.key, self.games, self.most)
        self.games += 1
        return super().reset(**kwargs)


class FrameStack:
    """FrameStack of openai/baselines: filled at a reset, channels first."""

    def __init__(self, env, size):
        self.env, self.size = env, size

    def reset(self):
        plane = np.moveaxis(self.env.reset()[0], -1, 0)
        self.planes = [plane] * self.size
        return np.concatenate(self.planes)

    def step(self, action):
        obs, *rest = self.env.step(action)
        self.planes = [*self.planes[1:], np.moveaxis(obs, -1, 0)]
        return np.concatenate(self.planes), *rest


def reference_stack(cfg, seed):
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(cfg.env_id, disable_env_checker=True)
    env.unwrapped.ale.setInt("random_seed", seed)
    env.unwrapped.load_game()
    env = reference.MaxAndSkipEnv(KeyedNoops(env, seed, cfg.noop_max), cfg.frame_skip)
    if cfg.end_on_life_loss:
        env = reference.EpisodicLifeEnv(env)
    env = reference.FireResetEnv(env) if cfg.fire_reset else env
    return FrameStack(reference.ClipRewardEnv(reference.WarpFrame(env)), cfg.frame_stack)


def compare(cfg, seed, steps, policy):
    """Plays both side by side; returns (life losses and game overs seen, raw returns of whole games)."""
    ours, theirs = AleEnvs(cfg, [seed]), reference_stack(cfg, seed)
    step, obs, ends, returns = ours.reset(), theirs.reset(), 0, []
    assert np.array_equal(step.obs[0], obs)
    for t in range(steps):
        action = policy(t, ours.action_space.n)
        step = ours.step(np.array([action]))
        obs, reward, terminated, truncated, _ = theirs.step(action)
        assert (step.reward[0], step.terminated[0], step.truncated[0]) == (reward, terminated, truncated), t
        assert step.first[0] == (terminated or truncated) and step.valid[0]
        if step.first[0]:
            if not step.episode.finished[0]:  # the reference keeps old frames when a game ends within a skip
                assert np.array_equal(step.final_obs[0], obs), t
            obs, ends = theirs.reset(), ends + 1
        if step.episode.finished[0]:
            returns.append(float(step.episode.ret[0]))
        assert np.array_equal(step.obs[0], obs), t
    return ends, returns


def random_policy(seed):
    rng = np.random.default_rng(seed)
    return lambda t, n: int(rng.integers(n))


def test_breakout_equals_the_reference_frame_by_frame():
    """Observations, rewards and ends over life losses and game overs."""
    ends, returns = compare(Atari(), 7, 1500, random_policy(0))
    assert ends >= 25 and len(returns) >= 5


def test_pong_equals_the_reference_frame_by_frame():
    """A game that has no lives and does not need FIRE, but knows it; two games are played to their end."""
    ends, returns = compare(Atari(env_id="PongNoFrameskip-v4"), 3, 1700, random_policy(1))
    assert ends == len(returns) >= 1 and returns[0] <= -14
