"""The parts of an action by hand: their order, which is not alphabetical, and what is kept of each space."""

from collections import OrderedDict

import numpy as np
from gymnasium import spaces

from proximo.envs.arrays.joint_actions import choices, parts_of_action, plain_space, structured
from proximo.envs.arrays.obs_layout import leaves


class Quick(spaces.Discrete):
    """A subclass."""


SPACE = spaces.Dict(OrderedDict(
    move=spaces.Box(-1, 1, (2, 2), np.float64), grip=spaces.Tuple([Quick(3, start=-1), spaces.MultiBinary(2)]),
    jump=spaces.MultiDiscrete([2, 3], start=[1, 2], dtype=np.int16)))


def test_a_plain_space_has_the_same_parts_in_the_same_order():
    """Worker processes split rows of actions by it."""
    ours, theirs = [*leaves(plain_space(SPACE))], [*leaves(SPACE)]
    assert ours == theirs and [part.dtype for _, part in ours] == [part.dtype for _, part in theirs]
    assert all(type(part).__module__.startswith("gymnasium.") for _, part in ours)


def test_choices_and_structure():
    assert choices(SPACE) == [("Box", (2, 2)), ("Discrete", (3, -1)), ("MultiBinary", (2,)), ("MultiDiscrete", (2, 3, 1, 2))]
    action = SPACE.sample()
    parts = parts_of_action(SPACE, action)
    wanted = [action["move"], *action["grip"], action["jump"]]
    assert len(parts) == 4 and all(one is other for one, other in zip(parts, wanted))
    again = structured(SPACE, iter(parts))
    assert [*again] == ["move", "grip", "jump"] and SPACE.contains(again) and again["grip"] == action["grip"]
