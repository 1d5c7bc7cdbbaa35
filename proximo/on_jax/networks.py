"""Trunks: observations to features. Images are uint8, channels first, and divided by 255 here and nowhere else.

Written in flax nnx, because its modules are built and named as torch's are: the path of a parameter is its name in the
torch module, and every parameter has torch's layout, so no weight is ever converted; only inside the networks do images
have their channels last, which suits convolutions on CPU.
Modules only describe a network here; pure functions get its weights as a dict (binder) and are what JAX transforms.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

Weights = dict[str, Array]  # by name


class Layer(nnx.Module):
    """Parameters drawn together: weights of gain `std` and constant biases, or torch's uniform draw."""

    def describe(self, shapes: dict[str, tuple[int, ...]], fan_in: int) -> None:
        """Parameters of these shapes, zero until initial_weights draws them."""
        self.shapes, self.fan_in = tuple(shapes.items()), fan_in
        self.std, self.constant, self.orthogonal = 1.0, 0.0, False
        for name, shape in self.shapes:
            setattr(self, name, nnx.Param(np.zeros(shape, np.float32)))

    def drawn(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """First values by parameter name (detail 2)."""
        values = {}
        for name, shape in self.shapes:
            if not self.orthogonal:
                bound = 1 / math.sqrt(self.fan_in)
                value = generator.uniform(-bound, bound, shape)
            elif name.startswith("weight"):
                value = self.std * orthogonal(generator, shape[0], math.prod(shape[1:])).reshape(shape)
            else:
                value = np.full(shape, self.constant)
            values[name] = value.astype(np.float32)
        return values


AnyLayer = TypeVar("AnyLayer", bound=Layer)


def orthogonal(generator: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """A random matrix whose shorter side is orthonormal, uniformly distributed (Saxe et al. 2014, arXiv 1312.6120)."""
    q, r = np.linalg.qr(generator.standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return q if rows >= columns else q.T


class Linear(Layer):
    """x W^T + b."""

    weight: Any
    bias: Any

    def __init__(self, inputs: int, outputs: int):
        self.describe({"weight": (outputs, inputs), "bias": (outputs,)}, inputs)

    def __call__(self, x: Array) -> Array:
        """(..., inputs) -> (..., outputs)."""
        return x @ self.weight[...].T + self.bias[...]


def on_cpu() -> bool:
    """Whether this process learns on a CPU."""
    settings: Any = jax.config
    return (settings.jax_default_device or jax.devices()[0]).platform == "cpu"


def folded(x: Array, weight: Array, stride: int) -> tuple[Array, Array]:
    """The same convolution with stride 1: each stride x stride square of pixels becomes one pixel of more channels."""
    rows, height, width, channels = x.shape
    outputs, _, size, _ = weight.shape
    n, high, wide = size // stride, height // stride, width // stride
    x = x[:, :high * stride, :wide * stride].reshape(rows, high, stride, wide, stride, channels)
    weight = weight.reshape(outputs, channels, n, stride, n, stride)
    return (x.transpose(0, 1, 3, 2, 4, 5).reshape(rows, high, wide, -1),
            weight.transpose(0, 3, 5, 1, 2, 4).reshape(outputs, -1, n, n))


def convolved(x: Array, weight: Array, stride: int) -> Array:
    """(rows, H, W, inputs) and (outputs, inputs, size, size) -> (rows, H', W', outputs), without padding.

    On CPU a sum of matrix products, one for each position of the kernel: XLA's gradients of its own convolutions are
    slower there, thirty times inside a loop (docs/performance.md)."""
    size = weight.shape[-1]
    if size % stride or not on_cpu():
        return lax.conv_general_dilated(x, weight.transpose(2, 3, 1, 0), (stride, stride), "VALID",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x, weight = folded(x, weight, stride)
    size = weight.shape[-1]
    high, wide = x.shape[1] - size + 1, x.shape[2] - size + 1
    return reduce(jnp.add, (x[:, i:i + high, j:j + wide] @ weight[:, :, i, j].T
                            for i in range(size) for j in range(size)))


class Conv(Layer):
    """A square convolution of channels-last images."""

    weight: Any
    bias: Any

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0):
        self.describe({"weight": (outputs, inputs, size, size), "bias": (outputs,)}, inputs * size * size)
        self.stride, self.padding = stride, padding

    def __call__(self, x: Array) -> Array:
        """(rows, H, W, inputs) -> (rows, H', W', outputs)."""
        pad = (self.padding, self.padding)
        x = jnp.pad(x, ((0, 0), pad, pad, (0, 0))) if self.padding else x
        return convolved(x, self.weight[...], self.stride) + self.bias[...]


def layer_init(layer: AnyLayer, std: float = math.sqrt(2), bias: float = 0.0, orthogonal: bool = True) -> AnyLayer:
    """Says that its weights are to be orthogonal of gain `std`, its biases constant (detail 2)."""
    layer.std, layer.constant, layer.orthogonal = std, bias, orthogonal
    return layer


def named_parameters(module: nnx.Module) -> Weights:
    """Every parameter by its path, such as "critic.layers.0.weight"."""
    flat = nnx.to_flat_state(nnx.state(module, nnx.Param))
    return {".".join(map(str, path)): parameter[...] for path, parameter in flat}


def initial_weights(module: nnx.Module, generator: np.random.Generator) -> Weights:
    """First values of every parameter: drawn for each Layer, as they are for all others.

    Drawn by numpy, so that they are the same on every device and nothing has to be compiled for them."""
    weights: dict[str, Any] = named_parameters(module)
    for path, layer in nnx.iter_modules(module):
        if isinstance(layer, Layer):
            weights |= {".".join(map(str, (*path, name))): x for name, x in layer.drawn(generator).items()}
    return {name: jnp.asarray(x) for name, x in weights.items()}


def binder(module: nnx.Module) -> Callable[[Weights], Any]:
    """A pure function from weights to the module with these weights."""
    parts: Any = nnx.split(module, nnx.Param, ...)
    graph, state, rest = parts
    parameters = [(path, ".".join(map(str, path)), parameter) for path, parameter in nnx.to_flat_state(state)]

    def bound(weights: Weights) -> Any:
        values = [(path, parameter.replace(weights[name])) for path, name, parameter in parameters]
        return nnx.merge(graph, nnx.from_flat_state(values), rest)
    return bound


def numpy_binder(module: nnx.Module) -> Callable[[Weights], Any]:
    """The same for numpy: the module that is returned computes with numpy, without a word to JAX. It is one and the
    same each time: use it only until the next call."""
    host = nnx.clone(module)
    parts = [(path, vars(part)) for path, part in nnx.iter_modules(host)]
    slots = [(attributes, name, ".".join(map(str, (*path, name)))) for path, attributes in parts
             for name, x in attributes.items() if isinstance(x, nnx.Param)]
    for _, attributes in parts:  # a loop over nnx's lists takes longer than a small product
        attributes |= {name: tuple(x) for name, x in attributes.items() if isinstance(x, nnx.List)}

    def bound(weights: Weights) -> Any:
        for attributes, name, full in slots:
            attributes[name] = np.asarray(weights[full])
        return host
    return bound


class MLP(nnx.Module):
    """Linear layers with tanh between them; `sizes[0]` is the flat size of an observation of `obs_ndim` axes.

    The last layer has gain `out_std` and no activation; without `out_std` it is hidden like the others.
    """

    def __init__(self, sizes: Sequence[int], out_std: float | None = None, obs_ndim: int = 1, orthogonal: bool = True):
        self.obs_ndim, self.linear_out = obs_ndim, out_std is not None
        last = len(sizes) - 2
        self.layers = nnx.List([
            layer_init(Linear(a, b), out_std if i == last and out_std is not None else math.sqrt(2), 0.0, orthogonal)
            for i, (a, b) in enumerate(zip(sizes, sizes[1:]))])

    def __call__(self, x: Array) -> Array:
        """(..., *obs_shape) -> (..., sizes[-1])."""
        x = x.reshape(*x.shape[:x.ndim - self.obs_ndim], -1).astype(self.layers[0].weight[...].dtype, copy=False)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i < last or not self.linear_out:
                x = np.tanh(x) if isinstance(x, np.ndarray) else jnp.tanh(x)
        return x


def mlp(sizes: Sequence[int], out_std: float | None = None, obs_ndim: int = 1, orthogonal: bool = True) -> MLP:
    """Two or more layers of tanh units (details 13 and 26); see MLP."""
    return MLP(sizes, out_std, obs_ndim, orthogonal)


def scaled_images(obs: Array, dtype: Any) -> Array:
    """(..., C, H, W) uint8 -> (rows, H, W, C) in [0, 1] (detail 22)."""
    return obs.reshape(-1, *obs.shape[-3:]).transpose(0, 2, 3, 1).astype(dtype) / 255.0


def flattened(x: Array) -> Array:
    """(rows, H, W, C) -> (rows, C * H * W), in torch's order."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


class NatureCNN(nnx.Module):
    """Three convolutions and a dense layer of 512 (Mnih et al. 2015; detail 21)."""

    def __init__(self, obs_shape: Sequence[int], features: int = 512, orthogonal: bool = True):
        channels, height, width = obs_shape
        self.convs = nnx.List([layer_init(conv, orthogonal=orthogonal) for conv in (
            Conv(channels, 32, 8, 4), Conv(32, 64, 4, 2), Conv(64, 64, 3, 1))])
        for size, stride in ((8, 4), (4, 2), (3, 1)):
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
        self.dense = layer_init(Linear(64 * height * width, features), orthogonal=orthogonal)

    def __call__(self, obs: Array) -> Array:
        """(..., C, H, W) -> (..., features)."""
        x = scaled_images(obs, self.dense.weight[...].dtype)
        for conv in self.convs:
            x = jax.nn.relu(conv(x))
        x = jax.nn.relu(self.dense(flattened(x)))
        return x.reshape(*obs.shape[:-3], -1)


class ResidualBlock(nnx.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int):
        self.convs = nnx.List([Conv(channels, channels, 3, padding=1) for _ in range(2)])

    def __call__(self, x: Array) -> Array:
        y = self.convs[0](jax.nn.relu(x))
        return x + self.convs[1](jax.nn.relu(y))


def max_pool(x: Array) -> Array:
    """(rows, H, W, C): the largest of each 3x3 window, at every second pixel, padded by one."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))


class ImpalaCNN(nnx.Module):
    """The residual network of IMPALA (Espeholt et al. 2018, figure 3) with a dense layer of 256, the library's own
    initialisation in trunk and dense layer, as in openai/train-procgen's successors."""

    def __init__(self, obs_shape: Sequence[int], features: int = 256, depths: Sequence[int] = (16, 32, 32)):
        channels, height, width = obs_shape
        convs, blocks = [], []
        for depth in depths:
            convs.append(Conv(channels, depth, 3, padding=1))
            blocks.append(nnx.List([ResidualBlock(depth), ResidualBlock(depth)]))
            channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
        self.convs, self.blocks = nnx.List(convs), nnx.List(blocks)
        self.dense = Linear(channels * height * width, features)

    def __call__(self, obs: Array) -> Array:
        """(..., C, H, W) -> (..., features)."""
        x = scaled_images(obs, self.dense.weight[...].dtype)
        for conv, blocks in zip(self.convs, self.blocks):
            x = max_pool(conv(x))
            for block in blocks:
                x = block(x)
        x = jax.nn.relu(self.dense(jax.nn.relu(flattened(x))))
        return x.reshape(*obs.shape[:-3], -1)
