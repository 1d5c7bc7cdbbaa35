"""Tensors in the state of a callback, such as state_dict() of a network, which files have as arrays."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any

from proximo.envs.state.codes import OpaqueError

Change = Callable[[Any, str], Any]  # (value, its place) -> what takes its place


def without_tensors(value: Any) -> tuple[Any, list[str]]:
    """Return a value with a copy of each tensor as an array, and the places of these arrays; see with_tensors.

    A state_dict() is an OrderedDict, which becomes a dict.

    Raises:
        OpaqueError: numpy has no array for a tensor, or the value contains itself.
    """
    torch, places = sys.modules.get("torch"), list[str]()

    def to_array(one: Any, place: str) -> Any:
        if torch is None or not isinstance(one, torch.Tensor):
            return one
        places.append(place)
        try:
            return one.detach().cpu().numpy().copy()
        except (TypeError, RuntimeError):  # of bfloat16, of sparse tensors
            raise OpaqueError(f"a tensor of {one.dtype}, {one.layout}") from None

    try:
        return _changed(value, "", to_array), places
    except RecursionError:
        raise OpaqueError("a value that contains itself") from None


def with_tensors(value: Any, places: Collection[str]) -> Any:
    """Return a value with tensors, on the CPU, in place of the arrays at some places."""
    if not places:
        return value
    import torch

    known = frozenset(places)
    return _changed(value, "", lambda one, place: torch.from_numpy(one) if place in known else one)


def _changed(value: Any, place: str, change: Change) -> Any:
    """Change everything in dicts, lists and tuples. A place is the number of each of those around a value."""
    if type(value) in (dict, OrderedDict):
        return {key: _changed(one, f"{place}/{i}", change) for i, (key, one) in enumerate(value.items())}
    if type(value) in (list, tuple):
        return type(value)(_changed(one, f"{place}/{i}", change) for i, one in enumerate(value))
    return change(value, place)
