"""Compare float32 with bfloat16: one gradient and one step of acting on one core, or whole iterations.

    python benchmarks/precision.py               # torch, as --precision bf16 computes
    python benchmarks/precision.py --framework jax
    python benchmarks/precision.py --breakout 8 --threads 2    # eight iterations of 8 x 128 steps in each precision

Times are CPU time of the process. Both precisions alternate, and the fastest of all rounds counts, because other
programs can only make a round slower. JAX has flax's layers with dtype=bfloat16 and float32 weights, which Proximo does
not use.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

NETWORKS: dict[str, Any] = {"NatureCNN": (4, 84, 84), "MLP of 64 x 64": 64, "MLP of 256 x 256": 256,
                            "MLP of 1024 x 1024": 1024}
ROWS, INPUTS, ACTIONS = 256, 17, 6


def torch_functions(network: Any, precision: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return a gradient of 256 rows and an acting step of 8 rows, as the library computes them."""
    import gymnasium
    import numpy as np
    import torch

    from proximo.config import Config
    from proximo.on_torch.assemble import assemble
    from proximo.on_torch.precision import use_bf16
    from proximo.protocols import Spec

    torch.manual_seed(0)
    torch.set_num_threads(1)
    images = isinstance(network, tuple)
    cfg = Config(model="cnn") if images else Config(hidden_sizes=(network, network))
    shape, dtype = (network, np.dtype(np.uint8)) if images else ((INPUTS,), np.dtype(np.float32))
    agent = assemble(Spec(shape, dtype, gymnasium.spaces.Discrete(ACTIONS)), cfg)
    if precision == "bf16":
        use_bf16(agent, torch.device("cpu"))
    obs = torch.randint(256, (ROWS, *shape)).to(torch.uint8) if images else torch.randn(ROWS, *shape)
    action, first, noise = torch.randint(ACTIONS, (ROWS,)), torch.zeros(ROWS, dtype=torch.bool), torch.zeros(8, ACTIONS)

    def gradient() -> Any:
        dist, value, _ = agent(obs, None, first, ())
        return torch.autograd.grad(dist.logprob(action).mean() + value.square().mean(), list(agent.parameters()))

    @torch.no_grad()
    def act() -> Any:
        return agent.act(obs[:8], None, first[:8], (), noise)

    return gradient, act


def jax_functions(network: Any, precision: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return the same for a network of flax."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from flax import nnx

    dtype, rngs, images = jnp.bfloat16 if precision == "bf16" else jnp.float32, nnx.Rngs(0), isinstance(network, tuple)
    if images:
        sizes = ((4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
        layers = [nnx.Conv(a, b, (k, k), s, padding="VALID", dtype=dtype, rngs=rngs) for a, b, k, s in sizes]
        layers.append(nnx.Linear(3136, 512, dtype=dtype, rngs=rngs))
    else:
        layers = [nnx.Linear(a, network, dtype=dtype, rngs=rngs) for a in (INPUTS, network)]
    features = 512 if images else network
    graph, weights = nnx.split(nnx.List([*layers, nnx.Linear(features, ACTIONS, rngs=rngs),
                                         nnx.Linear(features, 1, rngs=rngs)]))
    rng = np.random.default_rng(0)
    obs = jnp.asarray(rng.integers(256, size=(ROWS, 84, 84, 4), dtype=np.uint8) if images
                      else rng.normal(size=(ROWS, INPUTS)).astype(np.float32))

    def forward(weights: Any, x: Any) -> Any:
        *hidden, policy, value = nnx.merge(graph, weights)
        x = x.astype(jnp.float32) / 255
        for layer in hidden:
            x = jax.nn.relu(layer(x.reshape(len(x), -1) if isinstance(layer, nnx.Linear) else x))
        x = x.astype(jnp.float32)
        return jax.nn.log_softmax(policy(x)), value(x)

    def loss(weights: Any) -> Any:
        logp, value = forward(weights, obs)
        return logp[:, 0].mean() + (value**2).mean()

    gradient, act = jax.jit(jax.grad(loss)), jax.jit(lambda weights, x: forward(weights, x)[0].argmax(-1))
    return lambda: jax.block_until_ready(gradient(weights)), lambda: jax.block_until_ready(act(weights, obs[:8]))


def fastest(functions: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, float]:
    """Return the milliseconds of CPU time of each function, called alternately."""
    found = dict.fromkeys(functions, float("inf"))
    for number in range(rounds + 1):
        for name, function in functions.items():
            began = time.process_time()
            for _ in range(calls):
                function()
            if number:  # the first round compiles
                found[name] = min(found[name], 1000 * (time.process_time() - began) / calls)
    return found


def breakout(rounds: int, threads: int) -> None:
    """Print the seconds of iterations of Breakout, 8 x 128, in both precisions alternately."""
    from proximo.catalog import parts_of
    from proximo.variants import Atari

    parts, found = parts_of("ppo_atari", "torch"), {}
    runs = {precision: parts.train(Atari(env_id="BreakoutNoFrameskip-v4", precision=precision, threads=threads,
                                         env_workers=0), parts.make_envs, parts.make_agent)
            for precision in ("float32", "bf16")}
    for number in range(rounds + 1):
        for precision, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            it = next(run)
            if number:  # the first round makes the environments
                found.setdefault(precision, []).append((time.perf_counter() - wall, time.process_time() - cpu))
                print(f"{precision:8} step {it.steps}  {found[precision][-1][0]:.2f} s", flush=True)
    print(f"\n| Breakout, 8 x 128, {threads} threads | median SPS | highest | CPU-seconds of an iteration, least |")
    print("|---" * 4 + "|")
    for precision, times in found.items():
        walls, cpus = zip(*times)
        print(f"| {precision} | {1024 / statistics.median(walls):.0f} | {1024 / min(walls):.0f} | {min(cpus):.2f} |")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--framework", choices=["torch", "jax"], default="torch")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--breakout", type=int, default=0, help="iterations of Breakout in each precision")
    parser.add_argument("--threads", type=int, default=1, help="of --breakout")
    args = parser.parse_args()
    if args.breakout:
        breakout(args.breakout, args.threads)
        return
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    make = torch_functions if args.framework == "torch" else jax_functions
    print(f"| {args.framework}, ms | gradient, float32 | bf16 | ratio | acting, float32 | bf16 | ratio |")
    print("|---" * 7 + "|")
    for name, network in NETWORKS.items():
        both = {precision: make(network, precision) for precision in ("float32", "bf16")}
        cells = []
        for index, calls in ((0, 1), (1, 20)):
            ms = fastest({precision: functions[index] for precision, functions in both.items()}, args.rounds, calls)
            cells += [f"{ms['float32']:.2f}", f"{ms['bf16']:.2f}", f"{ms['float32'] / ms['bf16']:.2f}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
