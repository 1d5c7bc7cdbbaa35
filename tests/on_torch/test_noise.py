"""The generator of torch's noise, against numpy's Mersenne Twister and over all 64 bits of the seed."""

import numpy as np
import pytest
import torch

from proximo.on_torch.noise import seeded_generator


def raw_words(generator, number):
    """The low 31 bits of the next words; torch gives 32-bit integers no sign."""
    return torch.empty(number, dtype=torch.int32).random_(generator=generator).numpy()


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 + 7, 2**64 - 1])
def test_it_draws_what_the_mersenne_twister_of_numpy_draws(seed):
    """Both begin with the same 624 words. A torch whose state has another layout fails here."""
    twister = np.random.MT19937()
    words = np.random.default_rng(seed).integers(2**32, size=624).astype(np.uint32)
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    assert np.array_equal(raw_words(seeded_generator(seed), 2000), twister.random_raw(2000) % 2**31)


@pytest.mark.parametrize("bit", [0, 31, 32, 47, 63])
def test_every_bit_of_the_seed_changes_the_noise(bit):
    """manual_seed fails for the bits 32 to 63. Both blocks are of different size because torch draws them differently."""
    for size in (4, 1000):
        one, other = (torch.empty(size).normal_(generator=seeded_generator(seed)) for seed in (5, 5 ^ 1 << bit))
        assert not torch.isclose(one, other).all() and abs(float(one.mean())) < 2


def test_the_numbers_are_uniform():
    """The first numbers of many generators and many numbers of one, in 16 equal bins (chi-square, 15 degrees of freedom)."""
    firsts = torch.stack([torch.rand(1, generator=seeded_generator(seed << 32)) for seed in range(4000)])
    for sample in (firsts, torch.rand(100_000, generator=seeded_generator(1))):
        counts = torch.histc(sample, 16, 0, 1)
        expected = sample.numel() / 16
        assert float(((counts - expected) ** 2 / expected).sum()) < 45, "p < 1e-4"
