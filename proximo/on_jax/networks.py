"""Linear layers, networks for images and the recurrent layer, in flax nnx.

Images are uint8, channels first, and divided by 255 here and nowhere else. Inside the networks they have their channels
last, which suits convolutions on CPU. Parameters have the layout of torch (parameters.py).
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from proximo.on_jax.parameters import Layer, layer_init


@jax.custom_gradient
def times_transposed(x: Array, weight: Array) -> tuple[Array, Any]:
    """Compute x W^T for (..., inputs) and (outputs, inputs).

    For few rows, W is transposed by itself: a loop in which it stays the same, as in a rollout, then does so once. The
    gradient of the weight first transposes the one that came from above, and then multiplies it by x. The product that
    JAX derives reads that matrix by columns, which is slower on a CPU (docs/measurements.md). Each gradient has the
    dtype of what it belongs to, also if x and W have different ones.
    """
    def gradients(above: Array) -> tuple[Array, Array]:
        transposed = lax.optimization_barrier(above.reshape(-1, above.shape[-1]).T)
        return (above @ weight).astype(x.dtype), (transposed @ x.reshape(-1, x.shape[-1])).astype(weight.dtype)

    few = x.size < weight.size
    return x @ (lax.optimization_barrier(weight.T) if few else weight.T), gradients


class Linear(Layer):
    """x W^T + b."""

    weight: Any
    bias: Any

    def __init__(self, inputs: int, outputs: int) -> None:
        self.create_parameters({"weight": (outputs, inputs), "bias": (outputs,)}, inputs)

    def __call__(self, x: Array) -> Array:
        """Map (..., inputs) to (..., outputs)."""
        weight = self.weight[...]
        return (x @ weight.T if isinstance(x, np.ndarray) else times_transposed(x, weight)) + self.bias[...]


def on_cpu() -> bool:
    """Return whether this process learns on a CPU."""
    settings: Any = jax.config
    device = settings.jax_default_device or jax.devices()[0]  # a program may set the name of a platform
    return (device if isinstance(device, str) else device.platform) == "cpu"


def fold_stride(x: Array, weight: Array, stride: int) -> tuple[Array, Array]:
    """Rewrite a convolution as one of stride 1: each stride x stride square of pixels becomes one pixel of more
    channels.
    """
    rows, height, width, channels = x.shape
    outputs, _, size, _ = weight.shape
    n, high, wide = size // stride, height // stride, width // stride
    x = x[:, :high * stride, :wide * stride].reshape(rows, high, stride, wide, stride, channels)
    weight = weight.reshape(outputs, channels, n, stride, n, stride)
    return (x.transpose(0, 1, 3, 2, 4, 5).reshape(rows, high, wide, -1),
            weight.transpose(0, 3, 5, 1, 2, 4).reshape(outputs, -1, n, n))


def convolve(x: Array, weight: Array, stride: int) -> Array:
    """Convolve (rows, H, W, inputs) with (outputs, inputs, size, size) to (rows, H', W', outputs), without padding.

    On CPU it is a sum of matrix products, one for each position of the kernel, because XLA's gradients of its own
    convolutions are slower there, and thirty times slower inside a loop (docs/measurements.md).
    """
    size = weight.shape[-1]
    if size % stride or not on_cpu():
        return lax.conv_general_dilated(x, weight.transpose(2, 3, 1, 0), (stride, stride), "VALID",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x, weight = fold_stride(x, weight, stride)
    size = weight.shape[-1]
    high, wide = x.shape[1] - size + 1, x.shape[2] - size + 1
    return reduce(jnp.add, (times_transposed(x[:, i:i + high, j:j + wide], weight[:, :, i, j])
                            for i in range(size) for j in range(size)))


class Conv(Layer):
    """A square convolution of channels-last images."""

    weight: Any
    bias: Any

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0) -> None:
        self.create_parameters({"weight": (outputs, inputs, size, size), "bias": (outputs,)}, inputs * size * size)
        self.stride, self.padding = stride, padding

    def __call__(self, x: Array) -> Array:
        """Map (rows, H, W, inputs) to (rows, H', W', outputs)."""
        pad = (self.padding, self.padding)
        x = jnp.pad(x, ((0, 0), pad, pad, (0, 0))) if self.padding else x
        return convolve(x, self.weight[...], self.stride) + self.bias[...]


def scale_images(obs: Array, dtype: Any) -> Array:
    """Map (..., C, H, W) of uint8, or of floats in [0, 1], to (rows, H, W, C) in [0, 1] (detail 22)."""
    x = obs.reshape(-1, *obs.shape[-3:]).transpose(0, 2, 3, 1).astype(dtype)
    return x / 255.0 if obs.dtype == jnp.uint8 else x


def flatten_images(x: Array) -> Array:
    """Map (rows, H, W, C) to (rows, C * H * W), in the order of torch."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


class NatureCNN(nnx.Module):
    """Three convolutions and a dense layer of 512 (Mnih et al. 2015; detail 21)."""

    def __init__(self, obs_shape: Sequence[int], features: int = 512, orthogonal: bool = True) -> None:
        channels, height, width = obs_shape
        self.convs = nnx.List([layer_init(conv, orthogonal=orthogonal) for conv in (
            Conv(channels, 32, 8, 4), Conv(32, 64, 4, 2), Conv(64, 64, 3, 1))])
        for size, stride in ((8, 4), (4, 2), (3, 1)):
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
        self.dense = layer_init(Linear(64 * height * width, features), orthogonal=orthogonal)

    def __call__(self, obs: Array) -> Array:
        """Map (..., C, H, W) to (..., features)."""
        x = scale_images(obs, self.dense.weight[...].dtype)
        for conv in self.convs:
            x = jax.nn.relu(conv(x))
        x = jax.nn.relu(self.dense(flatten_images(x)))
        return x.reshape(*obs.shape[:-3], -1)


class ResidualBlock(nnx.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        self.convs = nnx.List([Conv(channels, channels, 3, padding=1) for _ in range(2)])

    def __call__(self, x: Array) -> Array:
        y = self.convs[0](jax.nn.relu(x))
        return x + self.convs[1](jax.nn.relu(y))


def max_pool(x: Array) -> Array:
    """Take the maximum of each 3x3 window of (rows, H, W, C), with stride 2 and padding 1."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))


class ImpalaCNN(nnx.Module):
    """The residual network of IMPALA (Espeholt et al. 2018, figure 3) with a dense layer of 256.

    Trunk and dense layer keep the library's own initialisation, as in the successors of openai/train-procgen.
    """

    def __init__(self, obs_shape: Sequence[int], features: int = 256, depths: Sequence[int] = (16, 32, 32)) -> None:
        channels, height, width = obs_shape
        convs, blocks = [], []
        for depth in depths:
            convs.append(Conv(channels, depth, 3, padding=1))
            blocks.append(nnx.List([ResidualBlock(depth), ResidualBlock(depth)]))
            channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
        self.convs, self.blocks = nnx.List(convs), nnx.List(blocks)
        self.dense = Linear(channels * height * width, features)

    def __call__(self, obs: Array) -> Array:
        """Map (..., C, H, W) to (..., features)."""
        x = scale_images(obs, self.dense.weight[...].dtype)
        for conv, blocks in zip(self.convs, self.blocks):
            x = max_pool(conv(x))
            for block in blocks:
                x = block(x)
        x = jax.nn.relu(self.dense(jax.nn.relu(flatten_images(x))))
        return x.reshape(*obs.shape[:-3], -1)


class Cell(Layer):
    """One layer of an LSTM (gates in, forget, cell, out) or GRU (reset, update, new), as in torch."""

    weight_ih_l0: Any
    weight_hh_l0: Any
    bias_ih_l0: Any
    bias_hh_l0: Any

    def __init__(self, kind: str, features: int, memory_size: int) -> None:
        rows = (4 if kind == "lstm" else 3) * memory_size
        self.kind = kind
        self.create_parameters({"weight_ih_l0": (rows, features), "weight_hh_l0": (rows, memory_size),
                                "bias_ih_l0": (rows,), "bias_hh_l0": (rows,)}, memory_size)

    def input_gates(self, x: Array) -> Array:
        """Compute the inputs' part of every gate, (..., features) -> (..., gates), for all steps at once."""
        return x @ self.weight_ih_l0[...].T + self.bias_ih_l0[...]

    def __call__(self, gates: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        """Advance `state`, (N, memory_size) each, by one step. The output is the first part of the new state."""
        recurrent = state[0] @ self.weight_hh_l0[...].T + self.bias_hh_l0[...]
        if self.kind == "lstm":
            i, f, g, o = jnp.split(gates + recurrent, 4, axis=-1)
            cell = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
            return jax.nn.sigmoid(o) * jnp.tanh(cell), cell
        inputs, before = jnp.split(gates, 3, axis=-1), jnp.split(recurrent, 3, axis=-1)
        reset, update = jax.nn.sigmoid(inputs[0] + before[0]), jax.nn.sigmoid(inputs[1] + before[1])
        new = jnp.tanh(inputs[2] + reset * before[2])
        return ((1 - update) * new + update * state[0],)


class RecurrentLayer(nnx.Module):
    """An LSTM or GRU with orthogonal weights and zero biases (detail 32).

    The state is a tuple of (N, memory_size) arrays, zero at first (detail 33) and wherever an episode begins (34).
    """

    def __init__(self, kind: str, features: int, memory_size: int, orthogonal: bool = True) -> None:
        self.memory_size, self.parts = memory_size, 2 if kind == "lstm" else 1
        self.cell = layer_init(Cell(kind, features, memory_size), 1.0, 0.0, orthogonal)

    def initial_state(self, num_envs: int) -> tuple[Array, ...]:
        """Return zeros, (num_envs, memory_size) each."""
        return tuple(jnp.zeros((num_envs, self.memory_size)) for _ in range(self.parts))

    def __call__(self, x: Array, first: Array, state: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        """Process one step, x (N, F) and first (N,), or a sequence, x (T, n, F) and first (T, n) (detail 36)."""
        def step(state: tuple[Array, ...], row: tuple[Array, Array]) -> tuple[tuple[Array, ...], Array]:
            gates, first = row
            state = self.cell(gates, tuple(jnp.where(first[:, None], 0.0, part) for part in state))
            return state, state[0]

        gates = self.cell.input_gates(x)
        if first.ndim == 1:
            state, y = step(state, (gates, first))
        else:
            state, y = lax.scan(step, state, (gates, first))
        return y, state
