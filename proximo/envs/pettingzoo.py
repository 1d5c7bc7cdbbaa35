"""Self-play on PettingZoo's Atari games: several players share a screen, and each player is a row of N."""

import importlib.util
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from proximo.envs.custom.parallel_checks import check_number
from proximo.envs.pettingzoo_game import SelfPlayGame
from proximo.errors import EnvError, UsageError, nearest
from proximo.protocols import Episode, FrameStack, Play, Step, VecEnv
from proximo.variants import SelfPlay


def make_pettingzoo(cfg: SelfPlay, seeds: Sequence[int]) -> VecEnv:
    """Make games of several players (pong_v3, surround_v2, tennis_v3, ...). Rows are players, game by game.

    Args:
        cfg: The configuration of the game. `env_workers` is the number of threads that step games; 0 or None: none.
        seeds: One seed per row. A game uses the seed of its first player.

    Returns:
        The environments, without normalisation.

    Raises:
        UsageError: The id is unknown, a package is missing, a setting is not for self-play, or the number of seeds is
            not divisible by the number of players.
    """
    first = make_game(cfg, seeds[0])
    players = first.num_players
    check_number(len(seeds), players, cfg.env_id, "player")
    games = [first, *(make_game(cfg, seed) for seed in seeds[players::players])]
    return SelfPlayEnvs(games, cfg.clip_rewards, cfg.env_workers or 0)


def make_game(cfg: SelfPlay, seed: int) -> SelfPlayGame:
    """Make one game with the ROM from the ale-py package. See make_pettingzoo for the errors."""
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
        advice = nearest(cfg.env_id, known) or f" Use {', '.join(known)}."
        raise UsageError(f"env_id={cfg.env_id} is not an Atari game of PettingZoo.{advice} A file names "
                         "its other games (docs/players.md).")
    roms = Path(ale_py.__file__).parent / "roms"
    env = atari_environments[name].parallel_env(auto_rom_install_path=str(roms), max_cycles=cfg.max_cycles).unwrapped
    return SelfPlayGame(env, cfg, seed)


def is_self_play(env_id: str) -> bool:
    """Return whether an id has the form of PettingZoo's ids: `pong_v3`, `atari/warlords_v3`.

    No other suite has ids of this form. PettingZoo itself is not asked, because its import takes half a second.
    """
    return re.fullmatch(r"(atari/)?[a-z_]+_v[0-9]+", env_id) is not None


def check_self_play(cfg: SelfPlay) -> None:
    """Raise UsageError if an Atari setting has no meaning for several players."""
    wrong = [f"{name}={value} is not supported in self-play. Leave it out." for name, value in
             (("end_on_life_loss", cfg.end_on_life_loss), ("fire_reset", cfg.fire_reset)) if value]
    if not cfg.grayscale:
        wrong.append("grayscale=False is not supported in self-play, where frames have one channel, the blue one. "
                     "Leave it out.")
    if wrong:
        raise UsageError("\n".join(wrong))


class SelfPlayEnvs:
    """Games as one VecEnv; rows are the players of the first game, then those of the second, and so on.

    Observations are (N, frame_stack + P, size, size) uint8: the shared frames, oldest first, then one plane per player,
    255 for the player of the row and 0 for the others, so that the network's division by 255 results in 1 and 0.
    A player who is out while the others play on has filler rows (`valid` False) until the next game.

    Args:
        games: The games.
        clip_rewards: Whether rewards become their sign.
        workers: Number of threads that step games; 0: none besides the caller's.
    """

    arrays = "numpy"
    play: Play = "host"
    keeps_state = True
    metric_names: tuple[str, ...] = ()
    observation_space = None

    def __init__(self, games: list[SelfPlayGame], clip_rewards: bool, workers: int) -> None:
        players, stack = games[0].num_players, games[0].stack
        self.games, self.clip_rewards, self.num_envs = games, clip_rewards, len(games) * players
        self.players = tuple(f"player{p}" for p in range(players))
        self.render_fps = 60 / games[0].skip
        self.obs_shape: tuple[int, ...] = (len(stack) + players, *stack.shape[1:])
        self.obs_dtype = np.dtype(np.uint8)
        self.frames: FrameStack | None = FrameStack(length=len(stack), channels=1)
        self.action_space = Discrete(len(games[0].action_mapping))
        self.pool = ThreadPoolExecutor(min(workers, len(games))) if workers else None
        self.obs = np.zeros((len(games), players, *self.obs_shape), np.uint8)
        for p in range(players):
            self.obs[:, p, len(stack) + p] = 255
        self.ret, self.length = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, np.int32)
        self.steps = 0

    def reset(self) -> Step:
        """Begin a new game everywhere."""
        self._map(SelfPlayGame.reset, self.games)
        self._show(range(len(self.games)))
        self.ret[:], self.length[:] = 0, 0
        no, obs = np.zeros(self.num_envs, bool), self._rows(self.obs)
        episode = Episode(finished=no, ret=self.ret.copy(), length=self.length.copy())
        return Step(obs=obs, first=~no, mask=None, reward=self.ret.copy(), terminated=no, truncated=no, final_obs=obs,
                    valid=~no, episode=episode, metrics={})

    def step(self, action: np.ndarray) -> Step:
        """See VecEnv.step. `action` is (N,) integers."""
        action = self._choices(action)
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
        final_obs = self._begin_again(np.flatnonzero(over | cut))
        episode = Episode(finished=self._rows(terminated | truncated), ret=self.ret.copy(), length=self.length.copy())
        first = np.repeat(over | cut, len(self.players))
        self.ret[first], self.length[first] = 0, 0
        return Step(obs=self._rows(self.obs), first=first, mask=None,
                    reward=self._rows(np.sign(reward) if self.clip_rewards else reward),
                    terminated=self._rows(terminated), truncated=self._rows(truncated), final_obs=final_obs,
                    valid=self._rows(valid), episode=episode, metrics={})

    def _begin_again(self, ended: np.ndarray) -> np.ndarray:
        """Write the observations after an action, and begin the games that ended again. Return the former."""
        self._show(range(len(self.games)))
        final_obs = self._rows(self.obs)
        if len(ended):
            final_obs = final_obs.copy()
            self._map(SelfPlayGame.reset, [self.games[g] for g in ended])
            self._show(ended)
        return final_obs

    def _choices(self, action: np.ndarray) -> np.ndarray:
        action = np.asarray(action)
        if action.shape != (self.num_envs,) or action.dtype.kind not in "iu":
            raise EnvError(f"step {self.steps}: actions are {action.dtype} of shape {action.shape}; they must be "
                           f"integers of shape ({self.num_envs},)")
        wrong = np.flatnonzero((action < 0) | (action >= self.action_space.n))
        if len(wrong):
            raise EnvError(f"environment {wrong[0]}, step {self.steps}: action {action[wrong[0]]} is not between 0 and "
                           f"{self.action_space.n - 1}")
        return action.reshape(len(self.games), len(self.players))

    def _map(self, function: Any, *columns: Any) -> list[Any]:
        return list((self.pool.map if self.pool else map)(function, *columns))

    def _rows(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.num_envs, *array.shape[2:])

    def _show(self, which: Iterable[int]) -> None:
        for g in which:
            self.obs[g, :, :len(self.games[g].stack)] = self.games[g].stack

    def state(self) -> dict[str, Any]:
        return {"games": [game.state() for game in self.games], "ret": self.ret.copy(), "length": self.length.copy(),
                "steps": self.steps}

    def load(self, state: dict[str, Any]) -> None:
        for game, part in zip(self.games, state["games"], strict=True):
            game.load(part)
        self.ret[:], self.length[:], self.steps = state["ret"], state["length"], int(state["steps"])
        self._show(range(len(self.games)))

    def render(self) -> np.ndarray:
        """Return the shared screen of the first game, (H, W, 3) uint8."""
        return self.games[0].render()

    def close(self) -> None:
        """End the threads."""
        if self.pool:
            self.pool.shutdown()
