"""Actions of several parts (Dict and Tuple spaces): in which order the parts are in one row, and their structure."""

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from gymnasium import spaces

from proximo.envs.arrays.obs_layout import leaves


def plain_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return an equal space of Gymnasium's classes: a subclass may hold objects that cannot be pickled."""
    if isinstance(space, spaces.Dict):  # a plain dict would be sorted
        return spaces.Dict(OrderedDict((name, plain_space(part)) for name, part in space.spaces.items()))
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([plain_space(part) for part in space.spaces])
    whole: Any = space.dtype
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec, dtype=whole, start=space.start)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary(space.n)
    assert isinstance(space, spaces.Box)
    return spaces.Box(space.low, space.high, dtype=whole)


def action_parts(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """Return the spaces of the parts of an action, in Gymnasium's order; [space] if it is neither Dict nor Tuple."""
    return [leaf for _, leaf in leaves(space)]


def part_width(space: spaces.Space[Any]) -> int:
    """Return how many numbers of a row a part takes."""
    assert space.shape is not None
    return math.prod(space.shape)


def num_outputs(space: spaces.Space[Any]) -> int:
    """Return how many outputs of a network the distribution of a part needs: its logits, or its means."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return part_width(space) * (2 if isinstance(space, spaces.MultiBinary) else 1)


def choices(space: spaces.Space[Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Return what a policy decides about each part: the kind, with numbers of choices and starts, or a shape."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for part in action_parts(space):
        if isinstance(part, spaces.Discrete):
            found.append(("Discrete", (int(part.n), int(part.start))))
        elif isinstance(part, spaces.MultiDiscrete):
            found.append(("MultiDiscrete", (*map(int, part.nvec.ravel()), *map(int, part.start.ravel()))))
        else:
            found.append((type(part).__name__, part.shape or ()))
    return found


def has_mask(space: spaces.Space[Any]) -> bool:
    """Return whether an action mask covers the choices of a part."""
    return isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))


def action_shape(space: spaces.Space[Any]) -> tuple[int, ...]:
    """Return the shape of an action as environments get it from the policy: that of the space, or of a row of parts."""
    return (sum(map(part_width, action_parts(space))),) if space.shape is None else space.shape


def parts_of_action(space: spaces.Space[Any], action: Any) -> list[Any]:
    """Return the parts of an action of the environment, in order."""
    if isinstance(space, spaces.Dict):
        return [leaf for name, part in space.spaces.items() for leaf in parts_of_action(part, action[name])]
    if isinstance(space, spaces.Tuple):
        return [leaf for part, one in zip(space.spaces, action, strict=True) for leaf in parts_of_action(part, one)]
    return [action]


def structured(space: spaces.Space[Any], parts: Iterator[Any]) -> Any:
    """Return an action in the structure of its space, from its parts in order."""
    if isinstance(space, spaces.Dict):
        return {name: structured(part, parts) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(structured(part, parts) for part in space.spaces)
    return next(parts)
