"""Self-play on PettingZoo's Atari games: several players share a screen, and each player is a row of N."""

import importlib.util
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from proximo.errors import EnvError, UsageError, nearest
from proximo.protocols import Episode, Play, Step, VecEnv
from proximo.variants import SelfPlay

BLUE = 2  # the one colour that tells players, ball and field apart in these games (SuperSuit's mode "B")


def make_pettingzoo(cfg: SelfPlay, seeds: Sequence[int]) -> VecEnv:
    """len(seeds) player rows of `cfg.env_id` (pong_v3, surround_v2, tennis_v3, ...), game by game, players in order.

    Raises UsageError for unknown ids, missing packages, and a number of rows that the players do not divide.
    """
    first = new_game(cfg, seeds[0])
    if len(seeds) % first.num_players:
        valid = [first.num_players * (len(seeds) // first.num_players + k) for k in (0, 1)]
        raise UsageError(f"num_envs={len(seeds)} does not divide into the {first.num_players} players of {cfg.env_id}; "
                         f"use {' or '.join(str(n) for n in valid if n)}")
    games = [first, *(new_game(cfg, seed) for seed in seeds[first.num_players::first.num_players])]
    return SelfPlayEnvs(games, cfg.clip_rewards, cfg.env_workers)


def new_game(cfg: SelfPlay, seed: int) -> "SelfPlayGame":
    """One game with the ROM from the ale-py wheel."""
    check_self_play(cfg)
    missing = [name for name in ("ale_py", "multi_agent_ale_py", "pettingzoo", "pygame", "tinyscaler")
               if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f'{cfg.env_id} needs {", ".join(missing)}: pip install "proximo[pettingzoo]"')
    import ale_py
    from pettingzoo.atari.all_modules import atari_environments

    name = f"atari/{cfg.env_id.removeprefix('atari/')}"
    if name not in atari_environments:
        known = sorted(key.removeprefix("atari/") for key in atari_environments)
        near = nearest(cfg.env_id, known) or f" there are {', '.join(known)}"
        raise UsageError(f"env_id={cfg.env_id} is no game of PettingZoo;{near}")
    roms = Path(ale_py.__file__).parent / "roms"
    env = atari_environments[name].parallel_env(auto_rom_install_path=str(roms), max_cycles=cfg.max_cycles).unwrapped
    return SelfPlayGame(env, cfg, seed)


def is_self_play(env_id: str) -> bool:
    """Whether an id has the form of PettingZoo's own: `pong_v3`, `atari/warlords_v3`. No other suite has this form, and
    PettingZoo, which takes half a second to import, is asked for its list when the game is made."""
    return re.fullmatch(r"(atari/)?[a-z_]+_v[0-9]+", env_id) is not None


def check_self_play(cfg: SelfPlay) -> None:
    """Raises UsageError where an Atari switch has no meaning for several players."""
    wrong = [f"{name}={value} means nothing in self-play; leave it out" for name, value in
             (("end_on_life_loss", cfg.end_on_life_loss), ("fire_reset", cfg.fire_reset)) if value]
    if not cfg.grayscale:
        wrong.append("grayscale=False: self-play frames have one channel, the blue one; leave it out")
    if wrong:
        raise UsageError("\n".join(wrong))


class SelfPlayGame:
    """One emulator: frame skip, the maximum of the last two frames, blue channel, resize, and frames stacked.

    The frames are those of SuperSuit's max_observation_v0(2), frame_skip_v0, color_reduction_v0("B"), resize_v1 and
    frame_stack_v1, in that order, at a quarter of the cost: the screen is read only where a frame is needed. (Where a
    game is over in the second or third skipped frame, the frame before it is an older one; no value is asked there.)
    """

    def __init__(self, env: Any, cfg: SelfPlay, seed: int):
        from multi_agent_ale_py.ale_python_interface import ale_lib
        from tinyscaler import scale

        self.ale, self.engine, self.scale = env.ale, ale_lib, scale
        self.num_players, self.action_mapping = env.num_players, env.action_mapping.astype(np.intc)
        self.max_cycles, self.skip, self.max_pool, self.noop_max = (cfg.max_cycles, cfg.frame_skip, cfg.max_pool,
                                                                    cfg.noop_max)
        self.sticky = cfg.sticky or 0.0
        env.reset(seed=seed)
        self.random = np.random.default_rng(seed)
        width, height = self.ale.getScreenDims()
        self.screen = np.zeros((2, height, width, 3), np.uint8)  # the frame before, and the newest
        self.small = np.zeros((height, width, 1), np.uint8)
        self.stack = np.zeros((cfg.frame_stack, cfg.screen_size, cfg.screen_size), np.uint8)
        self.played, self.gain = np.zeros(self.num_players, np.intc), np.zeros(self.num_players, np.intc)
        self.frame, self.alive = 0, np.ones(self.num_players, bool)

    def reset(self) -> None:
        """A new game: up to noop_max frames pass before the first decision (detail 14), so that games differ."""
        noops = int(self.random.integers(1, self.noop_max + 1)) if self.noop_max else 0
        self.ale.reset_game()
        self.frame, self.alive = 0, np.ones(self.num_players, bool)
        self.played[:] = 0
        self._read_screen()
        for k in range(noops):
            self._play_frame()
            if k >= noops - 2:
                self._read_screen()
        self.stack[:] = 0
        self._push_frame(newest_only=noops == 0)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, bool]:
        """`action` (P,) numbers. Returns rewards (P,), which players are out (P,), and if the game ended or was cut."""
        wanted = self.action_mapping[action] * self.alive
        total = np.zeros(self.num_players, np.intc)
        for k in range(self.skip):
            if self.sticky:  # our own draw: the emulator's does not survive state() and load() exactly
                np.copyto(self.played, wanted, where=self.random.random(self.num_players) >= self.sticky)
            else:
                self.played[:] = wanted
            total += self._play_frame() * self.alive
            over, cut = self.ale.game_over(), self.frame >= self.max_cycles
            if over or k >= self.skip - 2 or self.frame >= self.max_cycles - 1:
                self._read_screen()
            if over or cut:
                break
        out = np.ones(self.num_players, bool) if over else self.ale.allLives()[:self.num_players] < 0
        self._push_frame(newest_only=False)
        return total, out, over or bool(out.all()), cut

    def _play_frame(self) -> np.ndarray:
        self.engine.actMulti(self.ale.obj, self.played.ctypes.data, self.gain.ctypes.data)
        self.frame += 1
        return self.gain

    def _read_screen(self) -> None:
        self.screen[0] = self.screen[1]
        self.engine.getScreenRGB(self.ale.obj, self.screen[1].ctypes.data)

    def _push_frame(self, newest_only: bool) -> None:
        before, newest = self.screen[0, ..., BLUE], self.screen[1, ..., BLUE]
        np.maximum(newest if newest_only or not self.max_pool else before, newest, out=self.small[..., 0])
        self.stack[:-1] = self.stack[1:]
        self.stack[-1] = self.scale(self.small, self.stack.shape[:0:-1], mode="bilinear")[..., 0]

    def render(self) -> np.ndarray:
        """(H, W, 3) uint8: the shared screen."""
        return self.ale.getScreenRGB()

    def state(self) -> dict:
        """The emulator, and what this class keeps beside it."""
        kept = self.ale.cloneSystemState()
        emulator = self.ale.encodeState(kept)
        self.ale.deleteState(kept)
        return {"emulator": emulator, "screen": self.screen.copy(), "stack": self.stack.copy(), "frame": self.frame,
                "alive": self.alive.copy(), "played": self.played.copy(), "random": self.random.bit_generator.state}

    def load(self, state: dict) -> None:
        """Continues exactly where state() was taken."""
        kept = self.ale.decodeState(np.ascontiguousarray(state["emulator"], np.uint8))
        self.ale.restoreSystemState(kept)
        self.ale.deleteState(kept)
        self.screen[:], self.stack[:], self.played[:] = state["screen"], state["stack"], state["played"]
        self.alive = np.array(state["alive"], bool)
        self.frame, self.random.bit_generator.state = int(state["frame"]), state["random"]


class SelfPlayEnvs:
    """Games as a VecEnv; rows are the players of the first game, then of the second, and so on.

    Observations (N, frame_stack + P, 84, 84) uint8: the shared frames, oldest first, then one plane for each player,
    255 for the player whose row it is and 0 for the others, so that the network's division by 255 gives 0 and 1.
    A player who is out while the others play on gets filler rows (`valid` False) until the next game.
    """

    arrays = "numpy"
    play: Play = "host"
    keeps_state = True
    metric_names: tuple[str, ...] = ()
    statistics = None

    def __init__(self, games: list[SelfPlayGame], clip_rewards: bool, workers: int):
        players, stack = games[0].num_players, games[0].stack
        self.games, self.clip_rewards, self.num_envs = games, clip_rewards, len(games) * players
        self.players = tuple(f"player{p}" for p in range(players))
        self.render_fps = 60 / games[0].skip
        self.obs_shape: tuple[int, ...] = (len(stack) + players, *stack.shape[1:])
        self.obs_dtype = np.dtype(np.uint8)
        self.action_space = Discrete(len(games[0].action_mapping))
        self.pool = ThreadPoolExecutor(min(workers, len(games))) if workers else None
        self.obs = np.zeros((len(games), players, *self.obs_shape), np.uint8)
        for p in range(players):
            self.obs[:, p, len(stack) + p] = 255
        self.ret, self.length = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, np.int32)
        self.steps = 0

    def reset(self) -> Step:
        self._map(SelfPlayGame.reset, self.games)
        self._show(range(len(self.games)))
        self.ret[:], self.length[:] = 0, 0
        no = np.zeros(self.num_envs, bool)
        obs = self._rows(self.obs)
        return Step(obs, ~no, None, self.ret.copy(), no, no, obs, ~no,
                    Episode(no, self.ret.copy(), self.length.copy()), {})

    def step(self, action: np.ndarray) -> Step:
        """`action` (N,) integers. Raises EnvError naming the first row whose action does not exist."""
        action = self._checked(action)
        self.steps += 1
        valid = np.stack([game.alive for game in self.games])  # (games, P)
        results = self._map(SelfPlayGame.step, self.games, action)
        reward = np.array([r[0] for r in results], np.float32) * valid
        over, cut = np.array([r[2] for r in results]), np.array([r[3] for r in results])
        terminated = valid & np.array([r[1] for r in results])
        truncated = valid & ~terminated & cut[:, None]
        self.ret += self._rows(reward)
        self.length += self._rows(valid)
        for game, out in zip(self.games, terminated):
            game.alive &= ~out
        ended = np.flatnonzero(over | cut)
        self._show(range(len(self.games)))
        final_obs = self._rows(self.obs)
        if len(ended):
            final_obs = final_obs.copy()
            self._map(SelfPlayGame.reset, [self.games[g] for g in ended])
            self._show(ended)
        finished = self._rows(terminated | truncated)
        episode = Episode(finished, self.ret.copy(), self.length.copy())
        first = np.repeat(over | cut, len(self.players))
        self.ret[first], self.length[first] = 0, 0
        return Step(self._rows(self.obs), first, None, self._rows(np.sign(reward) if self.clip_rewards else reward),
                    self._rows(terminated), self._rows(truncated), final_obs, self._rows(valid), episode, {})

    def _checked(self, action: np.ndarray) -> np.ndarray:
        action = np.asarray(action)
        if action.shape != (self.num_envs,) or action.dtype.kind not in "iu":
            raise EnvError(f"actions are {action.dtype} {action.shape}; wanted integers ({self.num_envs},)")
        wrong = np.flatnonzero((action < 0) | (action >= self.action_space.n))
        if len(wrong):
            raise EnvError(f"environment {wrong[0]} was given action {action[wrong[0]]} at step {self.steps}; "
                           f"wanted 0 to {self.action_space.n - 1}")
        return action.reshape(len(self.games), len(self.players))

    def _map(self, function: Any, *columns: Any) -> list:
        return list((self.pool.map if self.pool else map)(function, *columns))

    def _rows(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.num_envs, *array.shape[2:])

    def _show(self, which: Any) -> None:
        for g in which:
            self.obs[g, :, :len(self.games[g].stack)] = self.games[g].stack

    def state(self) -> dict:
        return {"games": [game.state() for game in self.games], "ret": self.ret.copy(), "length": self.length.copy(),
                "steps": self.steps}

    def load(self, state: dict) -> None:
        for game, kept in zip(self.games, state["games"], strict=True):
            game.load(kept)
        self.ret[:], self.length[:], self.steps = state["ret"], state["length"], int(state["steps"])
        self._show(range(len(self.games)))

    def render(self) -> np.ndarray:
        return self.games[0].render()

    def close(self) -> None:
        if self.pool:
            self.pool.shutdown()
