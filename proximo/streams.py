"""Seeds of all random draws, keyed by (seed, stream, iteration, rank): the only state is the iteration number."""

import numpy as np

STREAMS = ("init", "env", "action", "minibatch", "rpo", "eval", "population")  # places are part of seeds


def stream_seed(seed: int, stream: str, iteration: int = 0, rank: int = 0) -> int:
    """Return a seed for one stream of random numbers; different arguments give independent seeds.

    Args:
        seed: The seed of the run.
        stream: One of STREAMS.
        iteration: The iteration in which the numbers are drawn.
        rank: The process that draws them.

    Returns:
        An integer of 64 bits.
    """
    key = (seed, STREAMS.index(stream), iteration, rank)
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def stream_generator(seed: int, stream: str, iteration: int = 0, rank: int = 0) -> np.random.Generator:
    """Return a numpy generator for one stream; see `stream_seed` for the arguments."""
    return np.random.default_rng(stream_seed(seed, stream, iteration, rank))


def env_seeds(seed: int, num_envs: int, iteration: int = 0, rank: int = 0, stream: str = "env") -> list[int]:
    """Return one seed of 31 bits for each environment of a rank.

    They are consecutive numbers from a base that all ranks share, so no two environments have the same seed.

    Args:
        seed: The seed of the run.
        num_envs: Environments of each rank.
        iteration: The iteration in which the environments are made.
        rank: The process that steps them.
        stream: "env" for training, "eval" for evaluation.
    """
    base = stream_seed(seed, stream, iteration)
    return [(base + rank * num_envs + i) % 2**31 for i in range(num_envs)]
