"""Games of several agents, PettingZoo's ParallelEnv, as one VecEnv: each agent is a row, and all share one policy."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.arrays.image_axes import as_returned
from proximo.envs.arrays.masks import LATE_MASK, MaskReader
from proximo.envs.arrays.spaces import action_writer, read_space
from proximo.envs.custom.attributes import check_no_effect
from proximo.envs.custom.parallel_checks import NO_CHOICE_OF_AGENT, agents_of, check_games, check_number, name_of_game
from proximo.envs.episodes import EpisodeCounter
from proximo.envs.gym_checks import converted_obs, wrong_numbers
from proximo.envs.gym_source import EnvSource, call_maker, kwargs_of
from proximo.envs.parallel_game import ParallelGame, Seen, labels_of
from proximo.envs.render import env_fps, render_env
from proximo.envs.state.check import replays_exactly
from proximo.envs.state.gym import warn_if_opaque
from proximo.envs.time_limit import close_env
from proximo.errors import EnvError, UsageError
from proximo.protocols import FrameStack, Play, Step


def from_parallel_env(make_game: Callable[..., Any]) -> "GamesMaker":
    """Return a function for `make_envs` whose environments are the agents of games of PettingZoo.

    Args:
        make_game: Makes one ParallelEnv. The run's `env_kwargs` are its arguments.

    Raises:
        UsageError: The argument is not a function.
    """
    if not callable(make_game):
        raise UsageError(f"from_parallel_env({make_game!r:.60}): pass a function that makes a game, such as "
                         "lambda: cooperative_pong_v6.parallel_env().")
    return GamesMaker(make_game)


class GamesMaker:
    """(cfg, seeds) -> games; see from_parallel_env."""

    def __init__(self, make_game: Callable[..., Any]) -> None:
        self._make_game = make_game
        self._agents: dict[tuple[str, ...], int] = {}  # of a game, by its arguments

    def __call__(self, cfg: Config, seeds: Sequence[int]) -> "ParallelGames":
        """Make the games. `seeds` are those of the agents; see ParallelGames."""
        check_no_effect(cfg, "from_parallel_env", ("auto", "gym"), taken=("env_kwargs", "eval_env_kwargs"))
        games = ParallelGames(self._maker(cfg), seeds)
        self._agents[tuple(cfg.env_kwargs)] = len(games.players)
        return games

    def _maker(self, cfg: Config) -> Callable[[], Any]:
        source = EnvSource(name=cfg.env_id, kwargs=cfg.env_kwargs)
        return lambda: call_maker(self._make_game, source, kwargs_of(source.kwargs))

    def rows_per_game(self, cfg: Config) -> int:
        """Return the number of agents of a game, which is made for this if none was made before."""
        if (key := tuple(cfg.env_kwargs)) not in self._agents:
            game = self._maker(cfg)()
            self._agents[key] = len(agents_of(game))
            close_env(game, cfg.env_id)
        return self._agents[key]


class ParallelGames:
    """Games as one VecEnv; rows are the agents of the first game in the order of `possible_agents`, then of the second.

    A game begins again in the step in which its last agent ends. An agent that ends earlier, or joins later, has filler
    rows (`valid` False) while it does not act.

    Args:
        make_game: Makes one ParallelEnv.
        seeds: One seed per row. A game uses the seed of its first agent.

    Raises:
        UsageError: A game is not a ParallelEnv, its agents have different spaces, there is no policy for them, or the
            number of seeds is not divisible by the number of agents.
    """

    arrays = "numpy"
    play: Play = "host"
    frames: FrameStack | None = None
    metric_names: tuple[str, ...] = ()

    def __init__(self, make_game: Callable[[], Any], seeds: Sequence[int]) -> None:
        envs = [make_game()]
        agents, self.name = agents_of(envs[0]), name_of_game(envs[0])
        try:
            check_number(len(seeds), len(agents), self.name)
            envs += [make_game() for _ in seeds[len(agents)::len(agents)]]
            check_games(envs, self.name)
            self.action_space, self.observation_space = (
                envs[0].action_space(agents[0]), envs[0].observation_space(agents[0]))
            self._to_env = action_writer(self.action_space, self.name)
            self._reader = read_space(self.observation_space, self.name, len(seeds))
        except BaseException:
            close_all(envs)
            raise
        self._make_one = lambda seed: ParallelGames(make_game, [seed] * len(agents))
        self._games = [ParallelGame(env, number) for number, env in enumerate(envs)]
        self.players, self.num_envs = labels_of(agents), len(seeds)
        self._seeds = [int(seed) for seed in seeds[::len(agents)]]
        self.obs_shape, self.obs_dtype = self._reader.shape, self._reader.dtype
        self._masks: MaskReader | None = None
        self._episodes, self._begun = EpisodeCounter(self.num_envs), False
        self._obs, self._final = (np.zeros((self.num_envs, *self.obs_shape), self.obs_dtype) for _ in range(2))
        self._rows = as_returned(self._reader.axes, self._obs)  # a view with the axes of the environment
        self._numbers = self._obs.reshape(-1) if np.issubdtype(self.obs_dtype, np.floating) else np.zeros(0, np.float32)
        self._reward, self._flags = np.zeros(self.num_envs), np.zeros((3, self.num_envs), bool)
        self._terminated, self._truncated, self._first = self._flags

    def reset(self) -> Step:
        """Begin every game again from its seed."""
        self._clear()
        for g, seed in enumerate(self._seeds):
            self._begin(g, seed)
        self._begun = True
        return self._step(np.ones(self.num_envs, bool))._replace(episode=self._episodes.clear())

    def step(self, action: np.ndarray) -> Step:
        chosen, size = self._to_env(action), len(self.players)
        valid = np.concatenate([game.acting for game in self._games])
        self._clear()
        for g, game in enumerate(self._games):
            got, joined = game.step(chosen[g * size:(g + 1) * size])
            for k, (observation, info, reward, terminated, truncated) in got.items():
                row = g * size + k
                self._reward[row], self._terminated[row], self._truncated[row] = reward, terminated, truncated
                self._read(row, observation, info, terminated or truncated)
                if terminated or truncated:
                    self._final[row] = self._obs[row]
            self._join(g, joined)
            if not game.acting.any():
                self._begin(g, None)
        return self._step(valid)

    def _clear(self) -> None:
        self._flags.fill(False)
        self._reward.fill(0)

    def _step(self, valid: np.ndarray) -> Step:
        """Return what was written, checked."""
        over = self._terminated | self._truncated
        if fault := wrong_numbers(self._reward, self._obs, self._numbers):
            raise self._fault(*fault)
        for row in np.flatnonzero(over):
            if not np.isfinite(self._final[row]).all():
                raise self._fault(int(row), f"its last observation is not finite in {self.obs_dtype}")
        return Step(obs=self._obs, first=self._first, mask=None if self._masks is None else self._masks.rows,
                    reward=self._reward.astype(np.float32), terminated=self._terminated, truncated=self._truncated,
                    final_obs=self._final, valid=valid, metrics={},
                    episode=self._episodes.count(self._reward, over if over.any() else None, valid))

    def _begin(self, g: int, seed: int | None) -> None:
        """Begin a game. Agents that join later begin their episodes then."""
        joined, size = self._games[g].begin(seed), len(self.players)
        if self._masks is None and (self._reader.masked or any("action_mask" in seen.info for seen in joined.values())):
            if self._begun:
                raise self._fault(g * size + min(joined), LATE_MASK)
            self._masks = self._new_masks()
        self._join(g, joined)

    def _join(self, g: int, joined: Mapping[int, Seen]) -> None:
        """Write what agents see that begin; rows of agents that do not act are zeros."""
        size = len(self.players)
        for k, (observation, info) in joined.items():
            self._first[g * size + k] = True
            self._read(g * size + k, observation, info, False)
        rows, absent = slice(g * size, (g + 1) * size), ~self._games[g].acting
        self._obs[rows][absent] = 0
        if self._masks is not None:
            self._masks.rows[rows][absent] = True

    def _new_masks(self) -> MaskReader:
        return MaskReader(self.action_space, self.num_envs, self._reader.masked, self.name)

    def _read(self, row: int, observation: Any, info: Mapping[str, Any], over: bool) -> None:
        """Write the observation and the mask of an agent."""
        reader, masks = self._reader, self._masks
        try:
            if masks is None and "action_mask" in info:
                raise self._fault(row, LATE_MASK)
            if masks is not None and not masks.read(row, observation, dict(info), over):
                raise self._fault(row, NO_CHOICE_OF_AGENT)
            flat = observation if reader.flatten is None else reader.flatten(observation)
            self._rows[row] = converted_obs(flat, self.name, reader)
        except ValueError as error:
            raise self._fault(row, str(error)) from error

    def _fault(self, row: int, cause: str) -> EnvError:
        g, k = divmod(row, len(self.players))
        return self._games[g].fault(k, cause)

    @property
    def keeps_state(self) -> bool:
        """See VecEnv.keeps_state. The first call compares steps with those of a copy and stores the answer."""
        return self._replays

    @cached_property
    def _replays(self) -> bool:
        return replays_exactly(self, self._make_one, self._seeds[0])

    def state(self) -> dict[str, Any] | None:
        return warn_if_opaque(self.snapshot, self.name) if self.keeps_state else None

    def snapshot(self) -> dict[str, Any]:
        """Return the state, exact or not; OpaqueError if it cannot be saved."""
        return {"games": [game.state() for game in self._games], "episodes": self._episodes.state(),
                "masked": self._masks is not None}

    def load(self, state: dict[str, Any]) -> None:
        for game, kept in zip(self._games, state["games"], strict=True):
            game.load(kept)
        self._episodes.load(state["episodes"])
        self._masks, self._begun = self._new_masks() if state["masked"] else None, True

    def begin_episode(self) -> np.ndarray:
        """Begin a new game in the first rows without a seed. Returns their first observations."""
        self._begin(0, None)
        return self._obs[:len(self.players)].copy()

    def call(self, name: str, /, *args: Any, **options: Any) -> list[Any]:
        """See call_envs."""
        if not callable(getattr(self._games[0].env, name, None)):
            raise UsageError(f"call_envs({name!r}): {self.name} has no method {name}.")
        return [game.call(name, *args, **options) for game in self._games]

    @property
    def render_fps(self) -> float | None:
        return env_fps(self._games[0].env)

    def render(self) -> np.ndarray | None:
        return render_env(self._games[0].env)

    def close(self) -> None:
        close_all([game.env for game in self._games])


def close_all(envs: Sequence[Any]) -> None:
    """Close games; a fault of one is a warning."""
    for env in envs:
        close_env(env, type(env).__name__)
