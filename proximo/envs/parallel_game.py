"""One game of several agents, a ParallelEnv of PettingZoo: who acts, and what each agent gets."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from proximo.envs.custom.parallel_checks import agents_of, answer_of_step, name_of_game, number
from proximo.envs.gym_checks import reset_answer, terminal
from proximo.envs.state.gym import get_env_state, set_env_state
from proximo.errors import EnvError, ProximoError, is_column, what_failed


class Seen(NamedTuple):
    """What an agent sees when its episode begins."""

    observation: Any
    info: Mapping[str, Any]


class Got(NamedTuple):
    """What an agent got for its action."""

    observation: Any
    info: Mapping[str, Any]
    reward: float
    terminated: bool
    truncated: bool  # never True with terminated


class ParallelGame:
    """A ParallelEnv whose agents have numbers, 0 to P - 1 in the order of `possible_agents`.

    Attributes:
        env: The ParallelEnv.
        agents: (P,) their names.
        acting: (P,) bool, which of them take part in the next step.

    Args:
        env: The ParallelEnv.
        number: Of the game, for error messages.
    """

    def __init__(self, env: Any, number: int) -> None:
        self.env, self.agents, self._number = env, agents_of(env), number
        self.acting, self._ended = (np.zeros(len(self.agents), bool) for _ in range(2))
        self._time = 0

    def begin(self, seed: int | None) -> dict[int, Seen]:
        """Begin a game. Returns what those agents see that take part from its first step on."""
        self._time = 0 if seed is not None else self._time
        observations, infos = self._ask(
            "reset", lambda: reset_answer(self.env.reset(seed=seed), name_of_game(self.env)))
        self.acting[:] = self._ended[:] = False
        joined = self._joined(observations, infos)
        if not joined:
            raise EnvError(f"{self._where()}: `agents` is empty after reset(). Set it to the agents that play, as in "
                           "self.agents = self.possible_agents[:]")
        return joined

    def step(self, actions: Sequence[Any]) -> tuple[dict[int, Got], dict[int, Seen]]:
        """Step the game.

        Args:
            actions: (P,) actions as the environment takes them; those of agents that do not act are not read.

        Returns:
            What each agent that acted got, and what those see that have joined. If no agent is `acting` afterwards, the
            game is over.
        """
        self._time += 1
        acting = [int(k) for k in np.flatnonzero(self.acting)]
        chosen = {self.agents[k]: actions[k] for k in acting}
        answer = self._ask("step", lambda: answer_of_step(self.env.step(chosen)))
        if unknown := {*self.env.agents, *answer[2], *answer[3]} - {*self.agents}:
            raise EnvError(f"{self._where()}: {', '.join(sorted(map(str, unknown)))} in `agents`, or in what step "
                           "returned for terminations and truncations, is not in possible_agents")
        got = {k: self._got(k, *answer) for k in acting}
        return got, self._joined(answer[0], answer[-1])

    def _got(self, k: int, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Got:
        agent = self.agents[k]
        try:
            ends = terminations[agent], truncations[agent]
            terminated = terminal(ends[0], agent, ends[1])
            got = Got(observation=observations[agent], info=infos.get(agent) or {}, reward=number(rewards[agent]),
                      terminated=terminated, truncated=bool(ends[1]) and not terminated)
        except KeyError:
            raise self.fault(k, "step returned nothing for it; an agent that acted needs an observation, a reward, "
                                "terminated and truncated") from None
        except (TypeError, ValueError) as error:
            raise self.fault(k, str(error)) from error
        self._ended[k] = got.terminated or got.truncated
        if not self._ended[k] and agent not in self.env.agents:
            raise self.fault(k, "it is no longer in `agents`, and it was neither terminated nor truncated")
        return got

    def _joined(self, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> dict[int, Seen]:
        """Note who acts next. Returns what those see that did not act before: also one that left and comes back."""
        present = np.array([agent in self.env.agents for agent in self.agents])
        self._ended &= present
        new = present & ~self._ended & ~self.acting
        self.acting[:] = present & ~self._ended
        for k in np.flatnonzero(new):
            if self.agents[k] not in observations:
                raise self.fault(int(k), "it is in `agents`, and there is no observation for it")
        return {int(k): Seen(observations[self.agents[k]], infos.get(self.agents[k]) or {})
                for k in np.flatnonzero(new)}

    def call(self, name: str, /, *args: Any, **options: Any) -> Any:
        """Call a method of the environment."""
        return self._ask(f"{name}()", lambda: getattr(self.env, name)(*args, **options))

    def _ask(self, call: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (ProximoError, KeyboardInterrupt) as error:
            if isinstance(error, EnvError):
                raise EnvError(f"{self._where()}: {error}") from error
            raise
        except BaseException as error:
            raise EnvError(f"{self._where()}: {what_failed(error, f'{call} raised')}") from error

    def _where(self) -> str:
        return f"game {self._number} ({name_of_game(self.env)}), step {self._time}"

    def fault(self, k: int, cause: str) -> EnvError:
        """Return the error of agent k."""
        return EnvError(f"{self._where()}, agent {self.agents[k]}: {cause}")

    def state(self) -> dict[str, Any]:
        """Return everything that continues the game; OpaqueError if it cannot be saved."""
        return {"env": get_env_state(self.env), "acting": self.acting.copy(), "ended": self._ended.copy(),
                "time": self._time}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what state() returned."""
        set_env_state(self.env, state["env"])
        self.acting[:], self._ended[:], self._time = state["acting"], state["ended"], int(state["time"])


def labels_of(agents: Sequence[Any]) -> tuple[str, ...]:
    """Return the name of each agent as a part of columns of metrics.csv: agent0, agent1, ... where it cannot be one."""
    labels = tuple(map(str, agents))
    usable = all(map(is_column, labels)) and len({*labels}) == len(labels)
    return labels if usable else tuple(f"agent{k}" for k in range(len(agents)))
