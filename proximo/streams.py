"""Every random draw is keyed by (seed, stream, iteration, rank): the iteration number is all the state there is."""

import numpy as np

STREAMS = ("init", "env", "action", "minibatch", "rpo", "eval")


def stream_seed(seed: int, stream: str, iteration: int = 0, rank: int = 0) -> int:
    """A 64-bit seed for one stream; `stream` is one of STREAMS. Different keys give independent seeds."""
    key = (seed, STREAMS.index(stream), iteration, rank)
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def stream_generator(seed: int, stream: str, iteration: int = 0, rank: int = 0) -> np.random.Generator:
    """A numpy generator for one stream."""
    return np.random.default_rng(stream_seed(seed, stream, iteration, rank))


def env_seeds(seed: int, num_envs: int, iteration: int = 0, rank: int = 0, stream: str = "env") -> list[int]:
    """One 31-bit seed for each environment of a rank: consecutive from a base of all ranks, so none coincide."""
    base = stream_seed(seed, stream, iteration)
    return [(base + rank * num_envs + i) % 2**31 for i in range(num_envs)]
