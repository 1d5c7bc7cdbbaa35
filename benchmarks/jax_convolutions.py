"""Compare XLA's convolutions with sums of matrix products on one core: forward and backward pass of NatureCNN's.

    python benchmarks/jax_convolutions.py --rounds 3

`plain` is the sums with gradients that JAX derives, `products` those with the gradients of times_transposed. All are
compiled in one process and alternate, outside and inside a loop. The result is the CPU time per row, the
minimum over all rounds.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

Convolve = Callable[[Any, Any, int], Any]  # (x, weight, stride) -> y


def convolve_xla(x: Any, weight: Any, stride: int) -> Any:
    """Compute what proximo.on_jax.networks.convolve does, with XLA's convolution."""
    from jax import lax

    return lax.conv_general_dilated(x, weight.transpose(2, 3, 1, 0), (stride, stride), "VALID",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def convolve_plainly(x: Any, weight: Any, stride: int) -> Any:
    """Compute what proximo.on_jax.networks.convolve does, with gradients that JAX derives."""
    from proximo.on_jax.networks import fold_stride

    x, weight = fold_stride(x, weight, stride)
    size = weight.shape[-1]
    high, wide = x.shape[1] - size + 1, x.shape[2] - size + 1
    return sum(x[:, i:i + high, j:j + wide] @ weight[:, :, i, j].T for i in range(size) for j in range(size))


def compile_steps(convolve: Convolve, x: Any) -> dict[str, tuple[Callable[..., Any], int]]:
    """Return compiled functions of the weights and how many gradient steps each takes: 1 outside a loop, 2 inside."""
    import jax
    from jax import lax

    def loss(weights: Any) -> Any:
        y = x
        for weight, stride in zip(weights, (4, 2, 1)):
            y = jax.nn.relu(convolve(y, weight, stride))
        return y.sum()

    def step(weights: Any, _: None) -> tuple[Any, None]:
        return jax.tree.map(lambda w, g: w - 1e-6 * g, weights, jax.grad(loss)(weights)), None

    return {"outside": (jax.jit(lambda weights: step(weights, None)), 1),
            "inside": (jax.jit(lambda weights: lax.scan(step, weights, None, 2)), 2)}


def main() -> None:
    """Read the command line, run all rounds and print the minima."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=256)
    args = parser.parse_args()
    os.environ |= {"NPROC": "1", "JAX_PLATFORMS": "cpu"}  # read when JAX starts
    import jax
    import jax.numpy as jnp
    import numpy as np

    from proximo.on_jax.networks import convolve

    generator = np.random.default_rng(0)
    x = jnp.asarray(generator.random((args.rows, 84, 84, 4)), jnp.float32)
    weights = [jnp.asarray(generator.normal(0, 0.05, shape), jnp.float32)
               for shape in ((32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3))]
    ways: dict[str, Convolve] = {"xla": convolve_xla, "plain": convolve_plainly, "products": convolve}
    compiled = {name: compile_steps(function, x) for name, function in ways.items()}
    least: dict[tuple[str, str], float] = {}
    for _ in range(args.rounds + 1):  # the first round compiles
        for name, places in compiled.items():
            for place, (step, count) in places.items():
                began = time.process_time()
                jax.block_until_ready(step(weights))
                spent = 1000 * (time.process_time() - began) / count / args.rows
                least[name, place] = min(spent, least.get((name, place), float("inf")))
    for (name, place), spent in least.items():
        print(f"{name:10}{place:10}{spent:8.2f} ms per row")


if __name__ == "__main__":
    main()
