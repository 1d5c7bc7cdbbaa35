"""The least memory that a run needs (rows of a rollout, environments, weights), compared with that of the machine."""

import math
from itertools import pairwise

import numpy as np

from proximo.config import Config
from proximo.envs.arrays.joint_actions import action_parts, num_outputs
from proximo.envs.arrays.model_fit import least_inputs
from proximo.envs.machine.memory import memory_problem
from proximo.errors import UsageError
from proximo.facts import shown
from proximo.protocols import FrameStack, Spec

LEAST_ROW = 34  # bytes of one row of a rollout: one uint8 of an observation, an action, four flags, six numbers
LEAST_ENV = 4096  # bytes of a Gymnasium environment with its wrappers and its random generator
BYTES_OF_WEIGHT = 16  # float32, with its gradient and Adam's two moments


def check_memory(cfg: Config, spec: Spec, num_envs: int, frames: FrameStack | None = None, runs: int = 1) -> None:
    """Check that the batch and the network fit into the memory, before they are made.

    Args:
        cfg: The configuration.
        spec: What the agent sees of the environments.
        num_envs: Environments of this process.
        frames: Of which one is stored for each observation; None: observations are stored whole.
        runs: Number of runs that are trained at once.

    Raises:
        UsageError: They do not fit; the sentences have the products of the sizes.
    """
    shape = tuple(spec.obs_shape) if frames is None else (frames.channels, *spec.obs_shape[1:])
    rows, row = cfg.num_steps * num_envs * runs, math.prod(shape) * np.dtype(spec.obs_dtype).itemsize + LEAST_ROW
    wrong = memory_problem(f"num_steps={cfg.num_steps} x num_envs={num_envs}{f' x {runs} runs' * (runs > 1)} = "
                           f"{rows:,} {'frames' if frames else 'observations'} of shape {shape} and {row:,} bytes",
                           rows * row, "Use fewer steps or environments, or smaller observations.")
    if wrong := wrong + network_memory(cfg, spec):
        raise UsageError("\n".join(wrong))


def network_memory(cfg: Config, spec: Spec | None = None) -> list[str]:
    """Return one sentence for each part of the network that cannot fit into the memory.

    Args:
        cfg: The configuration.
        spec: What the agent sees of the environments; None: the least of all environments is counted.
    """
    first = [] if spec is None else [least_inputs(spec, cfg)]
    last = [] if spec is None else [sum(map(num_outputs, action_parts(spec.action_space)))]
    fields = ("hidden_sizes", "policy_sizes", "value_sizes") if cfg.model == "mlp" else ()
    layers = {f"{name}={shown(sizes)}": [*first, *sizes, *last] for name in fields if (sizes := getattr(cfg, name))}
    if cfg.recurrent != "none":
        layers |= {f"memory_size={cfg.memory_size}": [cfg.memory_size] * 4}  # the least of its gates
    wrong = []
    for name, sizes in layers.items():
        weights, products = sum(map(math.prod, pairwise(sizes))), [f"{a} x {b}" for a, b in pairwise(sizes)]
        wrong += memory_problem(f"{name}: {' + '.join(products)} = {weights:,} weights, with their gradient and Adam's "
                                "two moments,", weights * BYTES_OF_WEIGHT, "Use smaller layers.")
    return wrong


def memory_problems(cfg: Config, here: int, single_envs: bool) -> list[str]:
    """Return what cannot fit into the memory whatever the environment is: the least of everything is counted.

    Args:
        cfg: The configuration.
        here: Number of environments of all processes on this machine.
        single_envs: Whether its environments are single ones of Gymnasium.
    """
    rows = cfg.num_steps * here
    wrong = memory_problem(f"num_steps={cfg.num_steps} x num_envs={here} = {rows:,} rows of at least {LEAST_ROW} bytes",
                           rows * LEAST_ROW, "Use fewer steps or environments.")
    if single_envs:
        wrong += memory_problem(f"num_envs={here} environments of at least {LEAST_ENV} bytes", here * LEAST_ENV,
                                "Use fewer environments.")
    return wrong + network_memory(cfg)
