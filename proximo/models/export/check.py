"""Whether an exported file acts as the model does, on observations that are drawn from the spaces."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.envs.arrays.obs_layout import leaves, without_mask
from proximo.errors import UsageError
from proximo.models.export.portable import Portable
from proximo.models.export.ports import Trained, part_name

Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
PASSES = ((16, 4), (1, 64))  # (rows, steps): a network may have a condition on one row, which is what a robot uses
TOLERANCE = 1e-4  # relative, and absolute for numbers below 1
MOST_DIFFERENT = 0.05  # of the actions: discrete ones differ where two are equally likely


def check_same_actions(model: Trained, portable: Portable, run: Run) -> None:
    """Play a few steps with both, with many rows and with one.

    Args:
        model: The model; its recurrent state is not advanced.
        portable: What was exported.
        run: Runs the file: named arrays to named arrays.

    Raises:
        UsageError: They act differently, so the network has a part that a file cannot hold.
    """
    for rows, steps in PASSES:
        share = share_that_differs(model, portable, run, rows, steps)
        if share > MOST_DIFFERENT:
            observations = "one observation" if rows == 1 else f"{rows} observations"
            raise UsageError(f"The exported file does not act as the model: {share:.0%} of its actions differ where it "
                             f"gets {observations} at a time. The network has a condition or a random number that a "
                             "file cannot hold. Nothing was written.")


def share_that_differs(model: Trained, portable: Portable, run: Run, rows: int, steps: int) -> float:
    """Play steps of a number of rows with both, and return the share of the actions that differ."""
    model, rng = copy.copy(model), np.random.default_rng(0)
    model.reset()
    state, differs = None, []
    for t in range(steps):
        raw, inputs = draw(model, portable, rng, rows, start=t == 0)
        if state is not None:
            inputs["state"] = state
        found = run(inputs)
        state = found.get("next_state")
        wanted = action_arrays(model.act(raw, inputs.get("first"), inputs.get("mask"), deterministic=True), model)
        differs += [~np.isclose(found[name], one, rtol=TOLERANCE, atol=TOLERANCE).ravel()
                    for name, one in wanted.items()]
    return float(np.concatenate(differs).mean())


def draw(model: Trained, portable: Portable, rng: np.random.Generator, rows: int,
         start: bool) -> tuple[Any, dict[str, np.ndarray]]:
    """Return observations as `Model.act` takes them, and the same as inputs of a file; masks allow everything."""
    size = 100 if portable.inputs[0].dtype == np.uint8 else 1
    inputs = {port.name: np.abs(size * rng.normal(size=(rows, *port.shape))).astype(port.dtype)
              for port in portable.inputs}
    if "mask" in inputs:
        inputs["mask"][:] = True
    if "first" in inputs:
        inputs["first"] = start | (rng.random(rows) < 0.3)
    space = model.spec.observation_space
    if space is None:
        return inputs["obs"], inputs
    sampled = {part_name("obs", path): sample(leaf, rng, rows) for path, leaf in leaves(without_mask(space))}
    inputs |= {name: x for name, x in sampled.items() if name in inputs}
    return structured(space, sampled, rows), inputs


def sample(leaf: Any, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Return `rows` elements of the space of an array."""
    leaf = copy.deepcopy(leaf)
    leaf.seed(int(rng.integers(2**31)))
    return np.stack([np.asarray(leaf.sample(), leaf.dtype) for _ in range(rows)])


def structured(space: Any, arrays: dict[str, np.ndarray], rows: int, path: tuple[Any, ...] = ()) -> Any:
    """Return named arrays in the structure of a space. A key `action_mask` allows everything."""
    if isinstance(space, spaces.Dict):
        return {key: np.ones((rows, *(part.shape or ())), part.dtype) if not path and key == "action_mask" else
                structured(part, arrays, rows, (*path, key)) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(structured(part, arrays, rows, (*path, i)) for i, part in enumerate(space.spaces))
    return arrays[part_name("obs", path)]


def action_arrays(actions: Any, model: Trained) -> dict[str, np.ndarray]:
    """Return N actions, as `Model.act` returns them, by the names of the outputs of a file."""
    found = {}
    for path, leaf in leaves(model.spec.action_space):
        if not path:
            return {"action": actions}
        column = []
        for one in actions:
            for key in path:
                one = one[key]
            column.append(np.asarray(one, leaf.dtype))
        found[part_name("action", path)] = np.stack(column)
    return found
