"""Parameters of flax modules: their names, first values, and the functions that put them into a module.

A module only describes a network. Its weights are a dict by name, which pure functions take as an argument and which
JAX differentiates. Names and layouts are those of the torch modules, so that weights are never converted.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.flatten_util import ravel_pytree

from proximo.errors import UsageError
from proximo.models.weights import check_weights

Weights = dict[str, Array]  # by name, such as "critic.layers.0.weight"
LARGEST_VECTOR = 2**17  # numbers of a network that Adam updates as one vector


class Layer(nnx.Module):
    """A module whose parameters get their first values together: see layer_init."""

    def create_parameters(self, shapes: dict[str, tuple[int, ...]], fan_in: int) -> None:
        """Create parameters, which are zero until initial_weights draws them.

        Args:
            shapes: By name; weights begin with "weight".
            fan_in: How many numbers each output is computed from.
        """
        self.shapes, self.fan_in = tuple(shapes.items()), fan_in
        self.std, self.constant, self.orthogonal = 1.0, 0.0, False
        for name, shape in self.shapes:
            setattr(self, name, nnx.Param(np.zeros(shape, np.float32)))

    def initial_values(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw first values by parameter name (detail 2): orthogonal ones, or the uniform ones of torch."""
        values = {}
        for name, shape in self.shapes:
            if not self.orthogonal:
                bound = 1 / math.sqrt(self.fan_in)
                value = generator.uniform(-bound, bound, shape)
            elif name.startswith("weight"):
                value = self.std * orthogonal_matrix(generator, shape[0], math.prod(shape[1:])).reshape(shape)
            else:
                value = np.full(shape, self.constant)
            values[name] = value.astype(np.float32)
        return values

    def has_weights(self) -> bool:
        """Return whether a program has set weights of its own, such as trained ones: they are not all zero."""
        return any(np.any(np.asarray(getattr(self, name)[...])) for name, _ in self.shapes if name.startswith("weight"))


AnyLayer = TypeVar("AnyLayer", bound=Layer)


def layer_init(layer: AnyLayer, std: float = math.sqrt(2), bias: float = 0.0, orthogonal: bool = True) -> AnyLayer:
    """Choose orthogonal weights of gain `std` and constant biases (detail 2), or with `orthogonal` False torch's."""
    layer.std, layer.constant, layer.orthogonal = std, bias, orthogonal
    return layer


def orthogonal_matrix(generator: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Draw a matrix with an orthonormal shorter side, uniformly distributed (Saxe et al. 2014, arXiv 1312.6120)."""
    q, r = np.linalg.qr(generator.standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return q if rows >= columns else q.T


def named_parameters(module: nnx.Module) -> Weights:
    """Return every parameter by its path, such as "critic.layers.0.weight".

    Raises:
        UsageError: The module is not one of flax, such as that of a model that Proximo loads (Model.module).
    """
    if not isinstance(module, nnx.Module):
        raise UsageError(f"named_parameters takes an nnx.Module and was given {type(module).__name__}. A loaded model "
                         "has a torch module, also if the run was trained with JAX: read model.module.state_dict().")
    flat = nnx.to_flat_state(nnx.state(module, nnx.Param))
    return {".".join(map(str, path)): parameter[...] for path, parameter in flat}


def initial_weights(module: nnx.Module, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return first values of every parameter: drawn for each Layer without weights, unchanged for all others.

    numpy draws them, so that they are the same on every device and nothing has to be compiled. A layer draws also where
    its values are not used, so that those of the others do not depend on it.
    """
    weights = {name: np.asarray(x) for name, x in named_parameters(module).items()}
    for path, layer in nnx.iter_modules(module):
        if isinstance(layer, Layer):
            values = layer.initial_values(generator)
            if not layer.has_weights():
                weights |= {".".join(map(str, (*path, name))): x for name, x in values.items()}
    return weights


def make_bind(module: nnx.Module) -> Callable[[Weights], Any]:
    """Make the pure function that returns the module with given weights."""
    parts: Any = nnx.split(module, nnx.Param, ...)
    graph, state, rest = parts
    parameters = [(path, ".".join(map(str, path)), parameter) for path, parameter in nnx.to_flat_state(state)]

    def bind(weights: Weights) -> Any:
        values = [(path, parameter.replace(weights[name])) for path, name, parameter in parameters]
        return nnx.merge(graph, nnx.from_flat_state(values), rest)

    return bind


def load_weights(module: nnx.Module, weights: Mapping[str, np.ndarray]) -> Any:
    """Return the module with weights by name, as a model has them; raises what `fitting_weights` raises."""
    return make_bind(module)(fitting_weights(module, weights))


def fitting_weights(module: nnx.Module, weights: Mapping[str, np.ndarray]) -> Weights:
    """Return the weights of a model as arrays of JAX.

    Raises:
        FilesError: They belong to another network.
    """
    check_weights({name: x.shape for name, x in named_parameters(module).items()},
                  {name: x.shape for name, x in weights.items()})
    return {name: jnp.asarray(x) for name, x in weights.items()}


def is_built_in(module: Any) -> bool:
    """Return whether a module is one of Proximo's, or a list."""
    return isinstance(module, nnx.List) or type(module).__module__.startswith("proximo.on_jax.")


def make_numpy_bind(module: nnx.Module) -> Callable[[Weights], Any] | None:
    """Make the same function for acting in numpy, without any call of JAX.

    It returns the same object each time, so use that only until the next call.

    Returns:
        None if there are other layers than Proximo's. They may read a parameter in a way that numpy's arrays do not
        have, or hold it in a list.
    """
    host = nnx.clone(module)
    if not all(is_built_in(part) for _, part in nnx.iter_modules(host)):
        return None
    parts = [(path, vars(part)) for path, part in nnx.iter_modules(host) if not isinstance(part, nnx.List)]
    slots = [(attributes, name, ".".join(map(str, (*path, name)))) for path, attributes in parts
             for name, x in attributes.items() if isinstance(x, nnx.Param)]
    if {full for _, _, full in slots} != set(named_parameters(module)):
        return None
    for _, attributes in parts:  # a loop over flax's lists takes longer than a small matrix product
        attributes |= {name: tuple(x) for name, x in attributes.items() if isinstance(x, nnx.List)}

    def bind(weights: Weights) -> Any:
        for attributes, name, full in slots:
            attributes[name] = np.asarray(weights[full])
        return host

    return bind


def pack(tree: Weights) -> tuple[Any, Callable[[Any], Weights]]:
    """Return weights or a gradient as one vector, or as they are for a large network, and the function that undoes it.

    With one vector, Adam is one operation for all parameters. In a large network, the copies into and out of the vector
    take longer than that saves (benchmarks/cost.py --axes width).
    """
    if sum(x.size for x in jax.tree.leaves(tree)) > LARGEST_VECTOR:
        return tree, lambda packed: packed
    return ravel_pytree(tree)
