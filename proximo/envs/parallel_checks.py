"""What games of several agents have to be and to return: PettingZoo's ParallelEnv."""

from collections.abc import Mapping, Sequence
from typing import Any

from proximo.envs.gym_checks import same_layout
from proximo.errors import EnvError, UsageError

MEMBERS = ("possible_agents", "observation_space", "action_space", "reset", "step", "close", "unwrapped")
ANSWERS = ("observations", "rewards", "terminations", "truncations", "infos")  # what step() returns, dicts by agent


def name_of_game(game: Any) -> str:
    """Return the name in the metadata of a game, otherwise that of its class."""
    name = (getattr(game, "metadata", None) or {}).get("name")
    return str(name or type(game).__name__)


def agents_of(game: Any) -> list[Any]:
    """Return the agents that a game can have, in their order; UsageError if it is no ParallelEnv."""
    if hasattr(game, "agent_iter"):
        raise UsageError(f"{name_of_game(game)} is an AECEnv of PettingZoo, whose agents act one after the other. Use "
                         "its parallel_env(), if it has one: only games whose agents act together can be trained.")
    if lacks := [name for name in MEMBERS if not hasattr(game, name)]:
        raise UsageError(f"from_parallel_env: the function returned {type(game).__name__}, which lacks "
                         f"{', '.join(lacks)}. Return a pettingzoo.ParallelEnv.")
    if not game.possible_agents:
        raise UsageError(f"{name_of_game(game)}: possible_agents is empty. Set it to the names of the agents.")
    return list(game.possible_agents)


def check_number(rows: int, agents: int, name: str) -> None:
    """Raise UsageError if a number of rows is not that of whole games."""
    if rows % agents:
        valid = [n for n in (rows // agents * agents, (rows // agents + 1) * agents) if n]
        raise UsageError(f"num_envs={rows} is not divisible by the {agents} agents of {name}: every agent counts as "
                         f"one environment. Use {' or '.join(map(str, valid))}.")


def check_games(games: Sequence[Any], name: str) -> None:
    """Check that games are different objects with the same agents, all with the same spaces.

    Raises:
        UsageError: They are not.
    """
    first = agents_of(games[0])
    if len({id(game.unwrapped) for game in games}) < len(games):
        raise UsageError(f"{name}: two of the {len(games)} games are the same object. The function that makes them "
                         "must make a new one at each call.")
    spaces = games[0].observation_space(first[0]), games[0].action_space(first[0])
    for g, game in enumerate(games):
        if (agents := agents_of(game)) != first:
            raise UsageError(f"{name}: game {g} has the agents {agents}, and game 0 has {first}. All games of a run "
                             "need the same agents.")
        for agent in agents:
            for what, space, other in zip(("observation", "action"), spaces, (
                    game.observation_space(agent), game.action_space(agent))):
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
