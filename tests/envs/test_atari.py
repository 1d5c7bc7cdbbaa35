"""The ALE loop equals Stable-Baselines3's wrappers on Gymnasium's environment, frame by frame, for all switches."""

from dataclasses import replace

import cv2
import gymnasium
import numpy as np
import pytest
from stable_baselines3.common import atari_wrappers as reference

from proximo.envs.ale import MAX_FRAMES, clips_rewards, noop_count
from proximo.envs.atari import AleEnvs, make_atari
from proximo.envs.atari_ids import read_atari_name
from proximo.errors import EnvError, UsageError
from proximo.variants import Atari, AtariLSTM, Compact

ale_py = pytest.importorskip("ale_py")


class KeyedNoops(reference.NoopResetEnv):
    """NoopReset with the number of no-ops that AleGame uses, so that both begin with the same frame."""

    def __init__(self, env, seed, noop_max):
        super().__init__(env, 30)
        self.key, self.games, self.most = seed, 0, noop_max

    def reset(self, **kwargs):
        self.override_num_noops = noop_count(self.key, self.games, self.most)
        self.games += 1
        return super().reset(**kwargs)


class FrameStack:
    """FrameStack of openai/baselines: a reset fills it; channels first."""

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


def reference_stack(cfg, seed, max_frames):
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(cfg.env_id, disable_env_checker=True, max_num_frames_per_episode=max_frames)
    env.unwrapped.ale.setInt("random_seed", seed)
    env.unwrapped.load_game()
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env = KeyedNoops(env, seed, cfg.noop_max) if cfg.noop_max else env
    env = reference.MaxAndSkipEnv(env, cfg.frame_skip)
    env = reference.EpisodicLifeEnv(env) if cfg.end_on_life_loss else env
    env = reference.FireResetEnv(env) if cfg.fire_reset else env
    env = reference.ClipRewardEnv(env) if cfg.clip_rewards else env
    return FrameStack(reference.WarpFrame(env, cfg.screen_size, cfg.screen_size), cfg.frame_stack)


def compare(cfg, steps, seed=7, max_frames=MAX_FRAMES):
    """Play both with the same random actions. Return the number of ends, and the raw returns of games."""
    ours, theirs = AleEnvs(cfg, [seed], max_frames=max_frames), reference_stack(cfg, seed, max_frames)
    step, obs, ends, returns = ours.reset(), theirs.reset(), 0, []
    rng = np.random.default_rng(0)
    assert np.array_equal(step.obs[0], obs)
    for t in range(steps):
        action = rng.integers(ours.action_space.n)
        step = ours.step(np.array([action]))
        obs, reward, terminated, truncated, info = theirs.step(action)
        assert (step.reward[0], step.terminated[0], step.truncated[0]) == (reward, terminated, truncated), t
        assert step.first[0] == (terminated or truncated) and step.valid[0]
        assert step.episode.finished[0] == ("episode" in info)
        if "episode" in info:
            returns.append(float(step.episode.ret[0]))
            assert returns[-1] == info["episode"]["r"]
        if step.first[0]:
            if "episode" not in info:  # if a game ends within a skip, the reference keeps older frames
                assert np.array_equal(step.final_obs[0], obs), t
            obs, ends = theirs.reset(), ends + 1
        assert np.array_equal(step.obs[0], obs), t
    return ends, returns


def test_breakout_equals_the_reference_frame_by_frame():
    """Observations, rewards, ends and raw returns are equal, over lost lives and ends of games."""
    ends, returns = compare(Atari(), 1500)
    assert ends >= 25 and len(returns) >= 5


def test_pong_equals_the_reference_frame_by_frame():
    """A game without lives, which ends after a thousand steps."""
    ends, returns = compare(Atari(env_id="PongNoFrameskip-v4"), 1700)
    assert ends == len(returns) >= 1 and returns[0] <= -14


def test_rewards_of_frames_without_an_action_count_in_the_raw_return():
    """Skiing takes points at every frame, also during no-ops. Gymnasium's statistics count them too."""
    cfg = Atari(env_id="SkiingNoFrameskip-v4", fire_reset=False, clip_rewards=False)
    ends, returns = compare(cfg, 150, max_frames=200)
    envs = AleEnvs(cfg, [7], max_frames=200)
    envs.reset()
    covered = sum(envs.step(np.array([0])).reward[0] for _ in range(20))
    assert ends == len(returns) >= 2 and envs._episodes.state()["ret"][0] < covered < 0


@pytest.mark.parametrize("other", [
    {"noop_max": 0}, {"frame_skip": 3}, {"end_on_life_loss": False}, {"fire_reset": False}, {"clip_rewards": False},
    {"screen_size": 64}, {"frame_stack": 1}], ids=str)
def test_each_switch_equals_the_reference_with_the_same_switch(other):
    """The reference has the same wrapper left out, or the same number."""
    cfg = replace(Atari(env_id="SpaceInvadersNoFrameskip-v4" if "clip_rewards" in other else Atari.env_id), **other)
    compare(cfg, 120)


@pytest.mark.parametrize("grayscale", [True, False])
def test_without_max_pool_the_newest_plane_is_the_screen(grayscale):
    """Frames are equal to OpenCV's on the picture of the emulator. A colour frame has three planes."""
    envs = AleEnvs(Atari(max_pool=False, grayscale=grayscale), [1])
    envs.reset()
    step = envs.step(np.array([2]))
    screen = cv2.cvtColor(envs.render(), cv2.COLOR_RGB2GRAY) if grayscale else envs.render()
    small = cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA).reshape(84, 84, -1)
    planes = small.shape[2]
    assert envs.obs_shape == (4 * planes, 84, 84)
    assert np.array_equal(step.obs[0, -planes:], np.moveaxis(small, 2, 0))


def play(envs, action):
    return [envs.step(np.full(envs.num_envs, action)).obs.copy() for _ in range(8)]


def test_sticky_actions_come_from_the_id_or_the_flag(capsys):
    """With probability 1 the first no-op is repeated for ever, so actions change nothing; ids have a probability."""
    for id_sticky, env_id in ((0.0, "BreakoutNoFrameskip-v4"), (0.0, "Breakout-v5"), (0.25, "ALE/Breakout-v5")):
        assert read_atari_name(env_id) == ("Breakout", id_sticky)
    make_atari(Atari(env_id="ALE/Breakout-v5"), [1]).close()
    assert "0.25" in capsys.readouterr().err
    make_atari(Atari(), [1]).close()
    assert capsys.readouterr().err == ""
    cfg = Atari(sticky=1.0, fire_reset=False)
    left, right = AleEnvs(cfg, [1]), AleEnvs(cfg, [1])
    left.reset(), right.reset()
    assert all(map(np.array_equal, play(left, 2), play(right, 3)))
    free, other = AleEnvs(replace(cfg, sticky=None), [1]), AleEnvs(replace(cfg, sticky=None), [1])
    free.reset(), other.reset()
    assert not all(map(np.array_equal, play(free, 2), play(other, 3)))


class Recorder:
    """An emulator that notes what is played."""

    def __init__(self, ale):
        self._ale, self.played = ale, []

    def __getattr__(self, name):
        return getattr(self._ale, name)

    def act(self, code):
        self.played.append(code)
        return self._ale.act(code)


def test_every_frame_repeats_the_last_action_with_the_probability_of_sticky_actions():
    """Actions alternate at every frame, so a repeated one is seen; 4,000 frames, four standard deviations."""
    envs = AleEnvs(Atari(sticky=0.25, frame_skip=1, noop_max=0, fire_reset=False, end_on_life_loss=False), [1])
    envs.reset()
    game = envs._games[0]
    game._ale = recorder = Recorder(game._ale)
    wanted = [2 + i % 2 for i in range(4000)]
    for action in wanted:
        envs.step(np.array([action]))
    played = recorder.played
    codes = [game._codes[action] for action in wanted]
    repeated = [now == before for now, before in zip(played[1:], played)]
    asked = [now == before for now, before in zip(codes[1:], played)]  # what was asked for is the last action already
    free = [one for one, same in zip(repeated, asked) if not same]
    assert abs(np.mean(free) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / len(free)) and len(free) > 2000
    assert all(now in (code, before) for now, code, before in zip(played[1:], codes[1:], played))


def test_the_frame_limit_truncates():
    """Pong cannot end within 600 frames. final_obs is the observation after the action, and a new game begins."""
    envs = AleEnvs(Atari(env_id="PongNoFrameskip-v4"), [3, 4], max_frames=600)
    envs.reset()
    for _ in range(160):
        before = envs._obs.copy()
        step = envs.step(np.array([2, 2]))
        if step.truncated[0]:
            break
    assert step.truncated[0] and not step.terminated[0] and step.episode.finished[0] and step.first[0]
    assert np.array_equal(step.final_obs[0, :3], before[0, 1:]) and not np.array_equal(step.obs[0], step.final_obs[0])
    assert np.array_equal(step.obs[0, 0], step.obs[0, 3])


def test_state_continues_exactly_in_other_environments():
    """200 more steps are equal bit for bit, with sticky actions and over ends. A single game would be equal by chance in
    four of five cases if the last action was forgotten."""
    cfg, seeds = Atari(sticky=0.25), [*range(1, 17)]
    envs, rng = AleEnvs(cfg, seeds), np.random.default_rng(0)
    envs.reset()
    for _ in range(77):
        envs.step(rng.integers(0, 4, 16))
    state, actions = envs.state(), rng.integers(0, 4, (200, 16))
    others = AleEnvs(cfg, seeds)
    others.load(state)
    for action in actions:
        one, two = (again._replace(final_obs=again.final_obs[again.first]) for again in
                    (envs.step(action), others.step(action)))
        for left, right in zip(one[:9], two[:9], strict=True):
            assert all(map(np.array_equal, left, right)) if isinstance(left, tuple) else np.array_equal(left, right)
    assert one.first.shape == (16,) and envs.state()["counts"].tolist() == others.state()["counts"].tolist()


@pytest.mark.parametrize("begun", [False, True])
def test_an_emulator_that_has_played_no_frame_continues_exactly(begun):
    """In Qbert, it continued with other pictures and another memory."""
    cfg = Atari(env_id="QbertNoFrameskip-v4", noop_max=0, fire_reset=False)
    envs, others, rng = AleEnvs(cfg, [1]), AleEnvs(cfg, [2]), np.random.default_rng(0)
    envs.reset()
    for _ in range(20):
        envs.step(rng.integers(0, 6, 1))
    if begun:
        others.reset()
    others.load(envs.state())
    for _ in range(20):
        action = rng.integers(0, 6, 1)
        assert np.array_equal(envs.step(action).obs, others.step(action).obs)


def test_worker_processes_play_the_same_games():
    """Steps and states of two processes are equal to those of one."""
    envs, workers = make_atari(Atari(), [1, 2]), make_atari(Atari(env_workers=2), [1, 2])
    try:
        steps = [(envs.reset(), workers.reset())]
        assert np.array_equal(steps[0][0].obs, steps[0][1].obs)
        for _ in range(60):
            one, two = envs.step(np.array([2, 3])), workers.step(np.array([2, 3]))
            assert np.array_equal(one.obs, two.obs) and np.array_equal(one.terminated, two.terminated)
        kept = workers.state()["workers"]["1"]
        assert np.array_equal(kept["stack"][0], envs.state()["stack"][1])
        with pytest.raises(EnvError, match="environment 1 .*action 9"):
            workers.step(np.array([0, 9]))
    finally:
        workers.close()


def test_reset_begins_again_and_seeds_differ():
    """The same seeds begin the same games; other seeds have other numbers of no-ops."""
    envs = AleEnvs(Atari(), [1, 2, 3, 4])
    first = envs.reset().obs.copy()
    play(envs, 2)
    assert np.array_equal(envs.reset().obs, first)
    assert len({noop_count(seed, 0, 30) for seed in range(200)}) == 30


def test_errors_of_ids_reset_modes_and_actions():
    with pytest.raises(UsageError, match="Did you mean Breakout"):
        make_atari(Atari(env_id="BrekoutNoFrameskip-v4"), [1])
    with pytest.raises(UsageError, match="not the id of an Atari game"):
        make_atari(Atari(env_id="CartPole-v1"), [1])
    with pytest.raises(UsageError, match="Use --engine envpool"):
        make_atari(Atari(autoreset="next-step"), [1])
    envs = make_atari(Atari(), [1, 2])
    envs.reset()
    for action in (np.array([0, 4]), np.array([-1, 0]), np.array([0.0, 1.0]), np.array([0])):
        with pytest.raises(EnvError):
            envs.step(action)


def test_single_frames_and_the_rewards_of_compact():
    """ppo_atari_lstm observes one frame; compact clips rewards with images only."""
    assert make_atari(AtariLSTM(), [1]).reset().obs.shape == (1, 1, 84, 84)
    assert clips_rewards(Compact(model="cnn")) and not clips_rewards(Compact(model="mlp"))
