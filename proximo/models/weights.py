"""Checks of a network's weights, and the weights that a checkpoint holds. Arrays are numpy arrays, by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from proximo.errors import FilesError

Shape = tuple[int, ...]
MOST_NAMED = 3  # differences in a message
SAME_NETWORK = ("Resume with the network with which the run was started: the same make_agent, or the same sizes. "
                "Names, shapes and order of the parameters must be the same. To begin another network with these "
                "weights, see \"Begin with trained weights\" in docs/add-a-network.md.")
NUMBERS = {"weights": "weights", "obs_moments": "statistics of observations", "ret_moments": "statistics of returns"}


def check_weights(expected: Mapping[str, Shape], found: Mapping[str, Shape]) -> None:
    """Check that saved weights have the names and shapes of a network's parameters.

    Args:
        expected: The shape of each parameter of the network.
        found: The shape of each saved weight.

    Raises:
        FilesError: A name is missing or unknown, or a shape differs; the message lists the first differences.
    """
    names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if not names:
        return
    differences = ", ".join(f"{name} is {found.get(name, 'missing')}, expected {expected.get(name, 'none')}"
                            for name in names[:MOST_NAMED])
    differences += f", and {len(names) - MOST_NAMED} more" * (len(names) > MOST_NAMED)
    raise FilesError(f"the weights belong to another network: {differences}. If the network is your own, pass the same "
                     "make_agent as in training.")


def check_numbers(tree: Mapping[str, Any]) -> None:
    """Check that the arrays of a model contain no NaN and no infinity.

    Args:
        tree: The content of a model folder.

    Raises:
        FilesError: A value is not finite; the message names every such array of one kind.
    """
    for name, what in NUMBERS.items():
        bad = [key for key, x in tree.get(name, {}).items() if not np.isfinite(x).all()]
        if bad:
            raise FilesError(f"the {what} {', '.join(bad)} of the model contain NaN or infinity: it cannot act. Train "
                             "again with a lower learning rate.")


def checkpoint_weights(state: Mapping[str, Any], like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights that a checkpoint holds.

    Torch keeps all weights in one vector; JAX keeps one array for each name.

    Args:
        state: The "state" of a checkpoint.
        like: Weights of the same network, which give names, order and shapes.
    """
    adam, buffers = state["adam"], state.get("buffers", {})
    if "weights" not in adam:
        return {name: adam[f".weights['{name}']"] for name in like}
    parameters = {name: x for name, x in like.items() if name not in buffers}
    parts = np.split(adam["weights"], np.cumsum([x.size for x in parameters.values()])[:-1])
    return {name: part.reshape(x.shape) for (name, x), part in zip(parameters.items(), parts, strict=True)} | buffers
