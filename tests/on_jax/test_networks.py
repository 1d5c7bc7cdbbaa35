"""Convolutions as sums of products equal XLA's, and are used on CPU; acting in numpy equals acting in JAX."""

import jax
import numpy as np
import pytest
from flax import nnx
from jax import lax

from proximo.errors import UsageError
from proximo.on_jax.mlp import ACTIVATIONS, MLP
from proximo.on_jax.networks import ImpalaCNN, NatureCNN, convolve, on_cpu, times_transposed
from proximo.on_jax.parameters import initial_weights, make_bind, make_numpy_bind, named_parameters


@pytest.mark.parametrize("pixels,channels,outputs,size,stride", [
    (84, 4, 5, 8, 4), (20, 3, 2, 4, 2), (9, 3, 4, 3, 1), (23, 2, 3, 4, 2), (27, 2, 3, 8, 4), (10, 2, 3, 3, 2)])
def test_convolve(pixels, channels, outputs, size, stride):
    """Also where no window covers the last pixels, and where the size is not divisible by the stride."""
    def reference(x, weight):
        return lax.conv_general_dilated(x, weight.transpose(2, 3, 1, 0), (stride, stride), "VALID",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))

    generator = np.random.default_rng(0)
    with jax.enable_x64(True):
        x = generator.standard_normal((3, pixels, pixels + 1, channels))
        weight = generator.standard_normal((outputs, channels, size, size))
        expected, back = jax.vjp(reference, x, weight)
        found, our_back = jax.vjp(lambda x, weight: convolve(x, weight, stride), x, weight)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
        cotangent = generator.standard_normal(expected.shape)
        for ours, theirs in zip(our_back(cotangent), back(cotangent)):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind,shape", [(NatureCNN, (4, 84, 84)), (ImpalaCNN, (3, 64, 64))])
def test_no_convolution_of_xla_is_left_on_cpu(kind, shape):
    """Neither in the forward nor in the backward pass, which is slow inside loops (counted, not timed)."""
    network, images = kind(shape), np.zeros((2, *shape), np.uint8)
    bind = make_bind(network)
    steps = jax.make_jaxpr(jax.grad(lambda weights: bind(weights)(images).sum()))(named_parameters(network))
    assert "dot_general" in str(steps) and "conv_general_dilated" not in str(steps)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_mlp_acts_in_numpy_as_it_learns(activation):
    """numpy against the compiled function, with layer normalisation; float32 stays float32."""
    network, generator = MLP([4, 16, 16, 2], 0.5, activation=activation, layer_norm=True), np.random.default_rng(1)
    weights = {name: x + generator.normal(0, 0.1, x.shape).astype(np.float32)
               for name, x in initial_weights(network, generator).items()}
    obs = 3 * generator.standard_normal((9, 4)).astype(np.float32)
    found = make_numpy_bind(network)(weights)(obs)
    assert isinstance(found, np.ndarray) and found.dtype == np.float32
    np.testing.assert_allclose(found, make_bind(network)(weights)(jax.numpy.asarray(obs)), atol=1e-5, rtol=1e-5)


def test_weights_of_a_program_are_first_weights():
    """Trained weights, or those of one layer, are not drawn again; the other layers begin as they do without them."""
    network = MLP([4, 8, 8, 2])
    drawn, trained = (initial_weights(network, np.random.default_rng(seed)) for seed in (1, 2))
    assert all((trained[name] != drawn[name]).any() for name in drawn if name.endswith("weight"))
    whole = initial_weights(make_bind(network)(trained), np.random.default_rng(1))
    network.layers[1].weight[...] = trained["layers.1.weight"]
    part = initial_weights(network, np.random.default_rng(1))
    for name in drawn:
        np.testing.assert_array_equal(whole[name], trained[name], name)
        np.testing.assert_array_equal(part[name], (trained if name == "layers.1.weight" else drawn)[name], name)


@pytest.mark.parametrize("part", [lambda: nnx.LayerNorm(3, rngs=nnx.Rngs(0)), lambda: nnx.List([nnx.Param(np.zeros(3))]),
                                  lambda: nnx.Param(np.zeros(3))])
def test_only_layers_of_proximo_act_in_numpy(part):
    """Others may keep their parameters elsewhere, or read them in ways that arrays of numpy do not have."""
    class Own(nnx.Module):
        def __init__(self):
            self.part = part()

    network = MLP([4, 4, 2])
    assert make_numpy_bind(network) is not None and make_numpy_bind(Own()) is None
    network.added = part()
    assert (make_numpy_bind(network) is None) == (not isinstance(network.added, nnx.Param))


@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3), (3,)])
def test_times_transposed_has_the_gradients_of_the_product(shape):
    """In float64, against the derivative that JAX finds for x @ weight.T; also for several networks by vmap."""
    generator = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, weight = generator.standard_normal((2, *shape)), generator.standard_normal((2, 6, 3))
        above = generator.standard_normal((2, *shape[:-1], 6))

        def gradients(function):
            return jax.vmap(lambda x, weight, above: jax.vjp(function, x, weight)[1](above))(x, weight, above)

        for ours, theirs in zip(gradients(times_transposed), gradients(lambda x, weight: x @ weight.T)):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("of_x", "of_weight"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_gradients_have_the_dtype_of_what_they_belong_to(of_x, of_weight):
    """A Linear under a layer in bfloat16 ended in an AssertionError of JAX."""
    x, weight = jax.numpy.ones((4, 3), of_x), jax.numpy.ones((2, 3), of_weight)
    found = jax.grad(lambda x, weight: times_transposed(x, weight).sum(), argnums=(0, 1))(x, weight)
    assert [part.dtype for part in found] == [of_x, of_weight]


def test_named_parameters_are_those_of_flax():
    """A model has a torch module, also of a run in JAX: the error was an IndexError of flax."""
    import torch

    with pytest.raises(UsageError, match=r"takes an nnx\.Module and was given Linear\. .* model\.module\.state_dict\(\)"):
        named_parameters(torch.nn.Linear(1, 1))


def test_the_default_device_may_be_the_name_of_a_platform():
    """It was an AttributeError of str, because a device was expected."""
    before = jax.config.jax_default_device
    try:
        for named in ("cpu", jax.local_devices(backend="cpu")[0]):
            jax.config.update("jax_default_device", named)
            assert on_cpu()
        jax.config.update("jax_default_device", "gpu")  # need not be there, as long as nothing is computed
        assert not on_cpu()
    finally:
        jax.config.update("jax_default_device", before)
