"""Kernels of a GPU in one iteration of CartPole-v1 on JAX, counted on a machine without a GPU.

XLA compiles for a described GPU, here an H100. Its compiler for CUDA comes from two packages, of the version of jaxlib:

    pip install --no-deps --target cuda jax-cuda12-pjrt==0.10.2 nvidia-cuda-nvcc-cu12
    python benchmarks/gpu_kernels.py cuda
    python benchmarks/gpu_kernels.py cuda --peer rejax    # if rejax is installed

Prints every loop of the compiled program with its kernels and rounds, and the kernels of an iteration. Both branches of
a condition count. Nothing is run, so matrix products are not tuned, and the numbers do not say how long a kernel takes.
"""

import argparse
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

H100 = """gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84978434048 shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 driver_version: "12.9.0" runtime_version: "12.9.0" }
platform_name: "CUDA" device_description_str: "NVIDIA H100"
"""
NO_KERNEL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
ITERATIONS = 100  # of the whole training of a peer, which is one loop


def described_gpu(folder: Path) -> Any:
    """Return the device to compile for."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_cuda_data_dir={folder}/nvidia/cuda_nvcc"
    (folder / "nvidia/cuda_nvcc/bin/ptxas").chmod(0o755)
    from jaxlib import xla_client

    plugin = xla_client.load_pjrt_plugin_dynamically("cuda", str(folder / "jax_plugins/xla_cuda12/xla_cuda_plugin.so"))
    topology = xla_client.make_c_api_device_topology(plugin, "1x1x1", target_config=H100, topology="1x1x1")
    return topology._make_compile_only_devices()[0]


def proximo_iteration(num_envs: int, num_steps: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function of several iterations, and its arguments."""
    import numpy as np

    from proximo.config import Config
    from proximo.envs.jax_control import make_jax_control
    from proximo.on_jax.advance import run_several
    from proximo.on_jax.assemble import assemble
    from proximo.on_jax.loss import ppo_loss
    from proximo.on_jax.setup import set_up
    from proximo.problems import checked

    cfg = checked(Config(framework="jax", device="cpu", num_envs=num_envs, num_steps=num_steps,
                         total_timesteps=ITERATIONS * num_envs * num_steps))
    player, state = set_up(cfg, make_jax_control, assemble, ppo_loss)
    return partial(run_several, player.step, 1), (state, np.int32(1))


def rejax_training(num_envs: int, num_steps: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function of a whole training of rejax, and its argument."""
    import jax
    import rejax

    total = ITERATIONS * num_envs * num_steps
    algorithm = rejax.PPO.create(env="CartPole-v1", num_envs=num_envs, num_steps=num_steps, num_epochs=4,
                                 num_minibatches=4, total_timesteps=total, eval_freq=total,
                                 agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)})
    return algorithm.replace(eval_callback=lambda *_: ()).train, (jax.random.PRNGKey(0),)


def computations(text: str) -> dict[str, list[str]]:
    """Return the lines of each computation of a compiled program by its name; "ENTRY" is the first to run."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$", line):
            lines = []
            found[head[2]] = lines
            if head[1]:
                found["ENTRY"] = lines
        elif line.startswith(" "):
            lines.append(line)
    return found


def operation_of(line: str) -> str:
    """Return the name of the operation in a line such as `%a.1 = (f32[2], s32[]) while(%b), body=%c`."""
    named = re.match(r" +(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([\w\-]+)\(", line)
    return named[1] if named else ""


def count(parts: dict[str, list[str]], name: str, rounds: int = 1, indent: int = 0, label: str = "program") -> int:
    """Print and count the kernels of a computation and of the loops and branches in it."""
    kernels, inner = 0, []
    for line in parts[name]:
        operation = operation_of(line)
        if operation == "while":
            trips = re.search(r'known_trip_count"?:\{"n":"?(\d+)', line)
            inner += [(body, int(trips[1]) if trips else 1, "loop") for body in re.findall(r"body=%?([\w.\-]+)", line)]
        elif operation == "conditional":
            named = re.search(r"(?:branch_computations=\{|true_computation=)([^}]*)", line)
            inner += [(branch, 1, "branch") for branch in re.findall(r"%([\w.\-]+)", named[1] if named else "")]
        elif operation and operation not in NO_KERNEL:
            kernels += 1
    print(f"{'  ' * indent}{label}: {rounds} x {kernels} kernels")
    return rounds * (kernels + sum(count(parts, *one[:2], indent + 1, one[2]) for one in inner))


def main() -> None:
    """Compile and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the two packages are")
    parser.add_argument("--peer", choices=["rejax"])
    parser.add_argument("--num-envs", type=int, default=2048)
    parser.add_argument("--num-steps", type=int, default=32)
    args = parser.parse_args()
    gpu = described_gpu(args.folder.absolute())
    import jax
    from jax.sharding import SingleDeviceSharding

    make = rejax_training if args.peer else proximo_iteration
    function, arguments = make(args.num_envs, args.num_steps)
    there = SingleDeviceSharding(gpu)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), arguments)
    with jax.default_device(gpu):
        compiled = jax.jit(function).lower(*shapes).compile()
    total = count(computations(compiled.as_text()), "ENTRY")
    print(f"{total // (ITERATIONS if args.peer else 1)} kernels in an iteration of {args.num_envs} x {args.num_steps}")


if __name__ == "__main__":
    main()
