"""Self-play equals SuperSuit's wrappers frame by frame, and follows the environment contract."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proximo.envs.pettingzoo import SelfPlayEnvs, make_pettingzoo
from proximo.errors import EnvError, UsageError
from proximo.variants import SelfPlay
from tests.support.normalized import Normalized

pytest.importorskip("multi_agent_ale_py")
pytest.importorskip("tinyscaler")


def play(envs, steps, seed=0):
    """Yield random steps as copies, because the arrays of a Step may be read only until the next one."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        step = envs.step(random.integers(0, envs.action_space.n, envs.num_envs))
        yield step._replace(obs=step.obs.copy(), final_obs=step.final_obs.copy())


def same(one, other):
    fields = ("obs", "first", "reward", "terminated", "truncated", "final_obs", "valid")
    return all(np.array_equal(getattr(one, f), getattr(other, f)) for f in fields) and all(
        np.array_equal(a, b) for a, b in zip(one.episode, other.episode))


def supersuit_stack(name, games, max_cycles):
    """Return the reference: SuperSuit's wrappers in their usual order, with channels last."""
    ss = pytest.importorskip("supersuit")
    import ale_py
    from pettingzoo.atari.all_modules import atari_environments

    roms = str(Path(ale_py.__file__).parent / "roms")
    env = atari_environments[f"atari/{name}"].parallel_env(auto_rom_install_path=roms, max_cycles=max_cycles)
    env = ss.frame_skip_v0(ss.max_observation_v0(env, 2), 4)
    env = ss.color_reduction_v0(ss.clip_reward_v0(env, lower_bound=-1, upper_bound=1), mode="B")
    env = ss.agent_indicator_v0(ss.frame_stack_v1(ss.resize_v1(env, x_size=84, y_size=84), 4), type_only=False)
    return ss.concat_vec_envs_v1(ss.pettingzoo_env_to_vec_env_v1(env), games, num_cpus=0, base_class="gymnasium")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "players"), [("pong_v3", 2), ("surround_v2", 2), ("basketball_pong_v3", 2),
                                               ("quadrapong_v4", 4)])
def test_equals_supersuit(name, players):
    """Every frame, reward, end and last observation of two games is equal, over two time limits (without no-ops)."""
    reference = supersuit_stack(name, 2, max_cycles=150)
    envs = make_pettingzoo(replace(SelfPlay(), env_id=name, noop_max=0, max_cycles=150), list(range(2 * players)))
    obs, _ = reference.reset(seed=0)
    assert np.array_equal(obs.transpose(0, 3, 1, 2), envs.reset().obs)
    random, cut = np.random.default_rng(0), 0
    for _ in range(80):
        action = random.integers(0, envs.action_space.n, envs.num_envs)
        obs, reward, terminated, truncated, infos = reference.step(action)
        step = envs.step(action)
        final = [info.get("terminal_observation", row) for info, row in zip(infos, obs)]
        assert np.array_equal(obs.transpose(0, 3, 1, 2), step.obs)
        assert np.array_equal(np.array(final).transpose(0, 3, 1, 2), step.final_obs)
        assert np.array_equal(reward, step.reward)
        assert np.array_equal(terminated.astype(bool), step.terminated)
        assert np.array_equal(truncated.astype(bool), step.truncated)
        assert np.array_equal(step.first, step.truncated)
        cut += step.truncated.sum()
    assert cut == 2 * envs.num_envs


def test_indicator_planes_become_0_and_1_when_divided_by_255():
    """The network receives frames in [0, 1], and a plane of ones for the player of the row."""
    envs = make_pettingzoo(SelfPlay(), [1, 2, 3, 4])
    assert envs.players == ("player0", "player1")
    assert envs.obs_shape == (6, 84, 84)
    seen = envs.reset().obs / np.float32(255)
    for row in range(4):
        assert np.array_equal(seen[row, 4:], np.broadcast_to(np.eye(2)[row % 2][:, None, None], (2, 84, 84)))
    assert 0 < seen[:, :4].max() <= 1


def test_raw_returns_of_both_players():
    """At a time limit, returns are sums of raw rewards, lengths count steps, and the game is truncated."""
    envs = make_pettingzoo(replace(SelfPlay(), max_cycles=1200, noop_max=0), [5, 6])
    envs.reset()
    steps = list(play(envs, 300))
    last = steps[-1]
    assert last.truncated.all()
    assert last.episode.finished.all()
    assert last.episode.ret.tolist() == sum(step.reward for step in steps).tolist()
    assert last.episode.ret[0] == -last.episode.ret[1] != 0
    assert last.episode.length.tolist() == [300, 300]


def test_games_differ_and_repeat():
    """No-ops make games differ; the same seeds play the same games, also in two threads."""
    envs = make_pettingzoo(SelfPlay(), [1, 1, 2, 2, 3, 3])
    twin = make_pettingzoo(replace(SelfPlay(), env_workers=2), [1, 1, 2, 2, 3, 3])
    assert np.array_equal(envs.reset().obs, twin.reset().obs)
    assert all(same(a, b) for a, b in zip(play(envs, 30), play(twin, 30)))
    envs.reset()
    shown = [envs.step(np.zeros(6, int)).obs[::2].copy() for _ in range(25)][-1]  # nothing moves in Pong at first
    assert len({row.tobytes() for row in shown}) > 1
    twin.close()


@pytest.mark.parametrize("sticky", [None, 0.25])
def test_state_continues_exactly(sticky):
    """Games with other seeds that load the state repeat 60 steps, over a time limit and a new game."""
    cfg = replace(SelfPlay(), sticky=sticky, max_cycles=200)
    envs, other = make_pettingzoo(cfg, [1, 1, 2, 2]), make_pettingzoo(cfg, [8, 8, 9, 9])
    envs.reset()
    list(play(envs, 20))
    state = envs.state()
    other.reset()
    list(play(other, 7))
    other.load(state)
    assert all(same(a, b) for a, b in zip(play(envs, 60, seed=1), play(other, 60, seed=1)))


class ScriptedGame:
    """Two players; player 1 is out at step 2, the game ends at step 4."""

    num_players, skip, action_mapping = 2, 4, np.zeros(3, np.intc)

    def __init__(self):
        self.stack, self.alive, self.time = np.zeros((4, 84, 84), np.uint8), np.ones(2, bool), 0

    def reset(self):
        self.alive, self.time = np.ones(2, bool), 0

    def step(self, action):
        self.time += 1
        return np.array([3, -5]), np.array([self.time == 4, self.time >= 2]), self.time == 4, False


def test_filler_rows_after_one_player_is_out(monkeypatch):
    """A player who is out ends once, and then has filler rows without reward until the next game begins."""
    monkeypatch.setattr("proximo.envs.pettingzoo.SelfPlayGame", ScriptedGame)
    envs = SelfPlayEnvs([ScriptedGame()], clip_rewards=True, workers=0)
    envs.reset()
    steps = [envs.step(np.zeros(2, int)) for _ in range(5)]
    assert [s.terminated.tolist() for s in steps] == [[False, False], [False, True], [False] * 2, [True, False],
                                                      [False] * 2]
    assert [s.valid.tolist() for s in steps] == [[True] * 2, [True] * 2, [True, False], [True, False], [True] * 2]
    assert [s.first.tolist() for s in steps] == [[False] * 2] * 3 + [[True] * 2, [False] * 2]
    assert [s.reward.tolist() for s in steps][1:3] == [[1, -1], [1, 0]]
    assert [(s.episode.finished * s.episode.ret).tolist() for s in steps][:4] == [[0, 0], [0, -10], [0, 0], [12, 0]]


def test_errors_of_ids_rows_settings_and_actions():
    with pytest.raises(UsageError, match="is not an Atari game of PettingZoo.*pong_v3.*docs/players.md"):
        make_pettingzoo(replace(SelfPlay(), env_id="pong_v2"), [1, 2])
    with pytest.raises(UsageError, match="num_envs=3 is not divisible by the 2 players of pong_v3: every player .*. Use 2 or 4."):
        make_pettingzoo(SelfPlay(), [1, 2, 3])
    with pytest.raises(UsageError, match="end_on_life_loss"):
        make_pettingzoo(replace(SelfPlay(), end_on_life_loss=True), [1, 2])
    envs = make_pettingzoo(SelfPlay(), [1, 2])
    envs.reset()
    with pytest.raises(EnvError, match="environment 1, step 0: action 6 is not"):
        envs.step(np.array([0, 6]))
    with pytest.raises(EnvError, match="they must be integers"):
        envs.step(np.zeros(2, np.float32))


def test_players_are_normalised_by_one_statistic():
    """All players share the statistics; raw returns stay."""
    cfg = SelfPlay(norm_obs=True, norm_reward=True, clip_rewards=False, max_cycles=200)
    envs = Normalized(make_pettingzoo(cfg, [1, 1]), cfg)
    assert envs.players == ("player0", "player1") and envs.normalizer.spec.obs_dtype == np.float32
    envs.reset()
    steps = list(play(envs, 50))
    assert envs.statistics.obs.mean.shape == (6, 84, 84) and abs(envs.statistics.obs.count - 2 * 51) < 1
    assert all(np.abs(step.obs).max() <= 10 for step in steps)
    assert [round(float(row[4].mean()), 3) for row in steps[10].obs] == [1, -1]


def test_render_is_the_shared_screen():
    envs = make_pettingzoo(SelfPlay(), [1, 2])
    envs.reset()
    picture = envs.render()
    assert picture.shape == (210, 160, 3)
    assert picture.std() > 1
