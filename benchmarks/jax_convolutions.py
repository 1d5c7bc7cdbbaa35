"""Forward and backward of NatureCNN's convolutions under JAX on one core: XLA's own against sums of matrix products.

    python benchmarks/jax_convolutions.py --rounds 3

Both are compiled in one process and alternate, outside and inside a loop; CPU time a row, the least of all rounds.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any


def xla(x: Any, weight: Any, stride: int) -> Any:
    """What proximo.on_jax.networks.convolved computes, by XLA's convolution."""
    from jax import lax

    return lax.conv_general_dilated(x, weight.transpose(2, 3, 1, 0), (stride, stride), "VALID",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def steps(convolve: Callable, x: Any) -> dict[str, tuple[Callable, int]]:
    """Compiled gradient steps of the weights, and how many each takes: one outside a loop, two inside."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=256)
    args = parser.parse_args()
    os.environ |= {"NPROC": "1", "JAX_PLATFORMS": "cpu"}  # read when JAX starts
    import jax
    import jax.numpy as jnp
    import numpy as np

    from proximo.on_jax.networks import convolved

    draw = np.random.default_rng(0)
    x = jnp.asarray(draw.random((args.rows, 84, 84, 4)), jnp.float32)
    weights = [jnp.asarray(draw.normal(0, 0.05, shape), jnp.float32)
               for shape in ((32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3))]
    ways = {name: steps(convolve, x) for name, convolve in (("xla", xla), ("products", convolved))}
    least: dict[tuple[str, str], float] = {}
    for _ in range(args.rounds + 1):  # the first round compiles
        for name, places in ways.items():
            for place, (step, count) in places.items():
                began = time.process_time()
                jax.block_until_ready(step(weights))
                spent = 1000 * (time.process_time() - began) / count / args.rows
                least[name, place] = min(spent, least.get((name, place), float("inf")))
    for (name, place), spent in least.items():
        print(f"{name:10}{place:10}{spent:8.2f} ms a row")


if __name__ == "__main__":
    main()
