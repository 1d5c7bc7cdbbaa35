"""What games of several agents have to be and to return: PettingZoo's ParallelEnv."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space

from proximo.envs.arrays.masks import NO_CHOICE
from proximo.envs.gym_checks import of_rllib, same_layout
from proximo.errors import EnvError, UsageError, with_place

MEMBERS = ("possible_agents", "observation_space", "action_space", "reset", "step", "close", "unwrapped")
NO_CHOICE_OF_AGENT = f"{NO_CHOICE}. An agent that waits for its turn needs a choice, too (docs/players.md)"
ANSWERS = ("observations", "rewards", "terminations", "truncations", "infos")  # what step() returns, dicts by agent


def name_of_game(game: Any) -> str:
    """Return the name in the metadata of a game, otherwise that of its class."""
    name = (getattr(game, "metadata", None) or {}).get("name")
    return str(name or type(game).__name__)


def agents_of(game: Any) -> list[Any]:
    """Return the agents that a game can have, in their order; UsageError if it is no ParallelEnv."""
    if hasattr(game, "agent_iter"):
        raise UsageError(f"{name_of_game(game)} is an AECEnv of PettingZoo, whose agents act one after the other. Use "
                         "its parallel_env(), if it has one, or the class Turns in docs/players.md.")
    if sentence := of_rllib(game):
        raise UsageError(sentence)
    if lacks := [name for name in MEMBERS if not hasattr(game, name)]:
        raise UsageError(f"from_parallel_env: the function returned {type(game).__name__}, which lacks "
                         f"{', '.join(lacks)}. Return a pettingzoo.ParallelEnv.")
    agents = game.possible_agents
    if not (isinstance(agents, Sequence) and agents and len({*agents}) == len(agents)):
        raise UsageError(f"{name_of_game(game)}: possible_agents is {agents!r:.100}. Set it to a list of the names of "
                         "the agents, each once.")
    return list(agents)


def space_of(game: Any, what: str, agent: Any) -> Space[Any]:
    """Return the space of the observations or actions of an agent; UsageError if there is none."""
    method = getattr(game, f"{what}_space")
    if not callable(method):
        raise UsageError(f"{name_of_game(game)}.{what}_space is an attribute. Make it a method that takes an agent and "
                         "returns its space.")
    try:
        space = method(agent)
    except Exception as error:
        raise EnvError(f"{name_of_game(game)}.{what}_space({agent!r:.60}) raised {with_place(error)}") from error
    if not isinstance(space, Space):
        raise UsageError(f"{name_of_game(game)}.{what}_space({agent!r:.60}) returned {type(space).__name__}. Return a "
                         "space of gymnasium.spaces.")
    return space


def number(reward: Any) -> float:
    """Return a reward as a number; ValueError if it is none."""
    given = np.asarray(reward)
    if given.size != 1 or given.dtype.kind not in "biuf":
        raise ValueError(f"reward is {reward!r:.60}; it must be a number")
    return float(given.reshape(()))


def check_number(rows: int, agents: int, name: str, agent: str = "agent") -> None:
    """Raise UsageError if a number of rows is not that of whole games; `agent` is what messages call one of a game."""
    if rows % agents:
        valid = [n for n in (rows // agents * agents, (rows // agents + 1) * agents) if n]
        raise UsageError(f"num_envs={rows} is not divisible by the {agents} {agent}s of {name}: every {agent} counts "
                         f"as one environment. Use {' or '.join(map(str, valid))}.")


def check_games(games: Sequence[Any], name: str) -> None:
    """Check that games are different objects with the same agents, all with the same spaces.

    Raises:
        UsageError: They are not.
    """
    first = agents_of(games[0])
    if len({id(game.unwrapped) for game in games}) < len(games):
        raise UsageError(f"{name}: two of the {len(games)} games are the same object. The function that makes them "
                         "must make a new one at each call.")
    kinds = ("observation", "action")
    spaces = [space_of(games[0], what, first[0]) for what in kinds]
    for g, game in enumerate(games):
        if (agents := agents_of(game)) != first:
            raise UsageError(f"{name}: game {g} has the agents {agents}, and game 0 has {first}. All games of a run "
                             "need the same agents.")
        for agent in agents:
            for what, space in zip(kinds, spaces):
                other = space_of(game, what, agent)
                if space != other and not (what == "observation" and same_layout(space, other)):
                    raise UsageError(f"{name}: {agent} has the {what} space {other}, and {first[0]} has {space}. All "
                                     "agents share one policy and need the same spaces. SuperSuit makes them equal: "
                                     f"supersuit.pad_{what}{'s' * (what == 'observation')}"
                                     f"{'_space' * (what == 'action')}_v0(game).")


def answer_of_step(answer: Any) -> tuple[Mapping[Any, Any], ...]:
    """Return what step() returned, if it is five dicts; EnvError for anything else."""
    if isinstance(answer, (tuple, list)) and len(answer) == len(ANSWERS) and all(
            isinstance(part, Mapping) for part in answer):
        return tuple(answer)
    raise EnvError(f"step returned a {type(answer).__name__}; it must return five dicts by agent: "
                   f"{', '.join(ANSWERS)}")
