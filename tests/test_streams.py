"""Random streams: keyed, independent, and never the global generators."""

import random

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.on_torch.assemble import assemble
from proximo.on_torch.train import train
from proximo.streams import STREAMS, env_seeds, stream_generator, stream_seed

KEYS = st.tuples(st.integers(0, 2**40), st.sampled_from(STREAMS), st.integers(0, 10**6), st.integers(0, 1000))


@given(KEYS, KEYS)
def test_a_key_gives_its_seed_and_no_other_key_gives_it(one, other):
    assert stream_seed(*one) == stream_seed(*one)
    assert (stream_seed(*one) == stream_seed(*other)) == (one == other)
    assert 0 <= stream_seed(*one) < 2**64


def test_seeds_are_those_of_earlier_versions():
    """A resumed run draws what it would have drawn: numpy's seed of the numbers of a key, from which seeds count up."""
    places = {"init": 0, "env": 1, "action": 2, "minibatch": 3, "rpo": 4, "eval": 5, "population": 6}
    for stream, place in places.items():
        for iteration, rank in ((0, 0), (5, 0), (5, 2)):
            wanted = int(np.random.SeedSequence((3, place, iteration, rank)).generate_state(1, np.uint64)[0])
            assert stream_seed(3, stream, iteration, rank) == wanted
        assert stream_seed(3, stream) == stream_seed(3, stream, 0, 0)
        assert stream_generator(3, stream).random() == np.random.default_rng(stream_seed(3, stream, 0, 0)).random()
    base = stream_seed(3, "env", 5, 0)
    assert env_seeds(3, 4, 5, 2) == [(base + 8 + i) % 2**31 for i in range(4)]
    assert env_seeds(3, 1) == [stream_seed(3, "env", 0, 0) % 2**31] != env_seeds(3, 1, stream="eval")


def test_generators_of_a_key_are_equal_and_uncorrelated_with_their_neighbours():
    draws = [stream_generator(1, "minibatch", it).standard_normal(20_000) for it in (1, 1, 2)]
    assert np.array_equal(draws[0], draws[1]) and abs(np.corrcoef(draws[0], draws[2])[0, 1]) < 0.05


@given(st.integers(0, 2**40), st.integers(1, 64), st.integers(1, 16), st.integers(0, 1000))
def test_seeds_of_environments_never_coincide_between_ranks(seed, num_envs, ranks, iteration):
    """The published multi-GPU script gives 7 of 8 environments of neighbouring ranks the same seed."""
    seeds = [s for rank in range(ranks) for s in env_seeds(seed, num_envs, iteration, rank)]
    assert len(set(seeds)) == num_envs * ranks and all(0 <= s < 2**31 for s in seeds)


def test_training_leaves_the_global_generators_alone():
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()
    list(train(Config(num_envs=2, num_steps=8, num_minibatches=1, update_epochs=1, total_timesteps=32), make_gym,
               assemble))
    assert random.getstate() == before[0] and np.random.get_state()[1].tobytes() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
