"""Compare two ways to compute several runs of JAX on a CPU: one after another on each core, and together (vmap).

    python benchmarks/members.py --threads 2 --members 10 --envs 4 --steps 128

CartPole-v1, the compiled function without logs. Both ways alternate in one process; the median of the rounds counts.
"""

import argparse
import os
import statistics
import time
from functools import partial
from typing import Any


def rate(run: Any, state: Any, iterations: int, steps: int) -> tuple[float, Any]:
    """Return the steps per second of all members over some iterations, and the state after them."""
    import jax

    began = time.perf_counter()
    for _ in range(iterations):
        state, results = run(state, 1)
        jax.block_until_ready(results)
    return iterations * steps / (time.perf_counter() - began), state


def main() -> None:
    """Measure both ways and print their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, default in (("threads", 2), ("members", 10), ("envs", 4), ("steps", 128), ("iterations", 40),
                          ("rounds", 3)):
        parser.add_argument(f"--{flag}", type=int, default=default)
    given = parser.parse_args()
    os.sched_setaffinity(0, range(given.threads))
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    from proximo.catalog import parts_of
    from proximo.config import Config
    from proximo.on_jax.advance import run_several
    from proximo.on_jax.distributed import join
    from proximo.on_jax.loss import ppo_loss
    from proximo.on_jax.members import (
        MEMBERS,
        differing_values,
        make_member_step,
        mesh_of_members,
        one_by_one,
        run_members,
        stack_members,
    )
    from proximo.on_jax.mesh import put_on_mesh
    from proximo.on_jax.setup import make_inside_player
    from proximo.on_jax.train_group import first_states

    parts = parts_of("ppo", "jax")
    cfgs = [Config(framework="jax", engine="jax", device="cpu", threads=given.threads, num_envs=given.envs,
                   num_steps=given.steps, total_timesteps=10**9, seed=seed).resolved() for seed in range(given.members)]
    join(cfgs[0], len(cfgs))
    mesh = mesh_of_members(cfgs[0], len(cfgs))
    player = make_inside_player(cfgs[0], parts.make_envs, parts.make_agent, ppo_loss)
    step, values = make_member_step(cfgs[0], player), differing_values(cfgs)

    def run(values: Any, state: Any, count: Any) -> Any:
        return run_several(partial(step, values), 1, state, count)

    ways = {"one after another": one_by_one(run), "together": jax.vmap(run, in_axes=(0, 0, None))}
    compiled = {name: partial(jax.jit(run_members(way, mesh)), values) for name, way in ways.items()}
    begun = put_on_mesh(mesh, stack_members(first_states(cfgs, player, parts.make_agent)), MEMBERS)
    states = {name: rate(run_all, begun, 2, 1)[1] for name, run_all in compiled.items()}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(given.rounds):
        for name, run_all in compiled.items():
            number, states[name] = rate(run_all, states[name], given.iterations,
                                        given.members * given.envs * given.steps)
            found[name].append(number)
    print("; ".join(f"{name} {statistics.median(rates):,.0f} ({min(rates):,.0f}, {max(rates):,.0f})"
                    for name, rates in found.items()))


if __name__ == "__main__":
    main()
