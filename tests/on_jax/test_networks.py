"""Convolutions as sums of products equal XLA's own, in value and gradient, in float64."""

import jax
import numpy as np
import pytest
from jax import lax

from proximo.on_jax.networks import convolved


@pytest.mark.parametrize("pixels,channels,outputs,size,stride", [
    (84, 4, 5, 8, 4), (20, 3, 2, 4, 2), (9, 3, 4, 3, 1), (23, 2, 3, 4, 2), (27, 2, 3, 8, 4), (10, 2, 3, 3, 2)])
def test_convolved(pixels, channels, outputs, size, stride):
    """Also where pixels remain that no window covers, and where the stride does not divide the size."""
    def reference(x, weight):
        return lax.conv_general_dilated(x, weight.transpose(2, 3, 1, 0), (stride, stride), "VALID",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))

    generator = np.random.default_rng(0)
    with jax.enable_x64(True):
        x = generator.standard_normal((3, pixels, pixels + 1, channels))
        weight = generator.standard_normal((outputs, channels, size, size))
        expected, back = jax.vjp(reference, x, weight)
        found, our_back = jax.vjp(lambda x, weight: convolved(x, weight, stride), x, weight)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
        cotangent = generator.standard_normal(expected.shape)
        for ours, theirs in zip(our_back(cotangent), back(cotangent)):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)
