"""Trunks: shapes and gains against the published ones; images scaled once; recurrent layers against a loop over cells."""

import math
from itertools import zip_longest

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional as F

from proximo.on_torch.mlp import MLP
from proximo.on_torch.networks import CHANNELS_LAST_ROWS, ImpalaCNN, NatureCNN, RecurrentLayer, layer_init


def gain(weight):
    """Return the factor by which an orthogonal matrix scales vectors; None if the matrix is not orthogonal."""
    flat = weight.detach().flatten(1).double()
    short = flat if flat.shape[0] <= flat.shape[1] else flat.T
    product = short @ short.T
    scale = float(product.diagonal().mean())
    same = torch.allclose(product, scale * torch.eye(len(short), dtype=torch.float64), atol=1e-4)
    return math.sqrt(scale) if same else None


def test_gains_of_the_mlp():
    """Detail 2: sqrt 2 in hidden layers, the given gain in the last one, biases 0."""
    layers = MLP([5, 64, 64, 3], 0.01).layers
    assert [gain(layer.weight) for layer in layers] == pytest.approx([math.sqrt(2), math.sqrt(2), 0.01], rel=1e-4)
    assert all((layer.bias == 0).all() for layer in layers)
    assert gain(MLP([5, 64, 64, 3], 0.01, orthogonal=False).layers[1].weight) is None


def test_mlp_is_tanh_between_linear_layers():
    """Details 13 and 26, against the formula. The last layer is linear, or a hidden one like the others if no gain is
    given."""
    net, x = MLP([4, 8, 2], 1.0), torch.randn(3, 4)
    a, b = net.layers
    torch.testing.assert_close(net(x), F.linear(torch.tanh(F.linear(x, a.weight, a.bias)), b.weight, b.bias))
    assert MLP([4, 8, 2])(x * 100).abs().max() <= 1
    assert MLP([6, 8, 1], 1.0, obs_ndim=2)(torch.zeros(7, 5, 2, 3)).shape == (7, 5, 1)
    assert MLP([4, 8, 1], 1.0)(torch.zeros(3, 4, dtype=torch.uint8)).dtype == torch.float32


def test_nature_cnn_is_the_published_network():
    """Detail 21: its layers and 1,684,128 parameters for 4 x 84 x 84 (3,136 features into 512), without heads."""
    net = NatureCNN((4, 84, 84))
    assert [tuple(conv.weight.shape) for conv in net.convs] == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    assert tuple(net.dense.weight.shape) == (512, 3136)
    assert sum(p.numel() for p in net.parameters()) == 1_684_128
    assert all(gain(layer.weight) == pytest.approx(math.sqrt(2), rel=1e-3) for layer in (*net.convs, net.dense))
    assert net(torch.zeros(2, 3, 4, 84, 84, dtype=torch.uint8)).shape == (2, 3, 512)


def test_impala_cnn_is_the_published_network():
    """Procgen: 16, 32, 32 channels, 256 features, torch's own initialisation."""
    net = ImpalaCNN((3, 64, 64))
    expected = sum(9 * a * b + b + 4 * (9 * b * b + b) for a, b in ((3, 16), (16, 32), (32, 32))) + 2048 * 256 + 256
    assert sum(p.numel() for p in net.parameters()) == expected
    assert gain(net.dense.weight) is None and (net.dense.bias != 0).any()
    assert net(torch.zeros(5, 3, 64, 64, dtype=torch.uint8)).shape == (5, 256)


@pytest.mark.parametrize("net", [NatureCNN((1, 36, 36)), ImpalaCNN((1, 36, 36))])
def test_images_are_divided_by_255_once(net):
    """Detail 22: the bytes 0 and 255 are the numbers 0 and 1."""
    seen = []
    net.convs[0].register_forward_hook(lambda module, args, out: seen.append(args[0]))
    net(torch.full((2, 1, 36, 36), 255, dtype=torch.uint8))
    net(torch.full((2, 1, 36, 36), 51, dtype=torch.uint8))
    assert torch.equal(seen[0], torch.ones(2, 1, 36, 36)) and torch.allclose(seen[1], torch.tensor(0.2))


def test_layout_in_memory_changes_nothing():
    """Large batches are computed with channels last: the features are those of the rows one at a time."""
    net, rows = NatureCNN((4, 84, 84)), CHANNELS_LAST_ROWS
    images = torch.randint(256, (rows, 4, 84, 84), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(net(images), torch.cat([net(images[i:i + 1]) for i in range(rows)]), atol=1e-5,
                                   rtol=1e-4)


def slow_memory(memory, kind, x, first, state):
    """Compute details 33-36 one step at a time: gates written out, states set to zero where an episode begins."""
    p = dict(memory.cell.named_parameters())
    outputs = []
    for t in range(len(x)):
        state = [torch.where(first[t][:, None], 0.0, part) for part in state]
        inner, outer = x[t] @ p["weight_ih_l0"].T, state[0] @ p["weight_hh_l0"].T
        if kind == "lstm":
            i, f, g, o = (inner + outer).chunk(4, -1)
            cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            state = [o.sigmoid() * cell.tanh(), cell]
        else:
            (r, z, n), (hr, hz, hn) = inner.chunk(3, -1), outer.chunk(3, -1)
            new = (n + (r + hr).sigmoid() * hn).tanh()
            state = [(1 - (z + hz).sigmoid()) * new + (z + hz).sigmoid() * state[0]]
        outputs.append(state[0])
    return torch.stack(outputs), state


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("often", [0.0, 0.2, 1.0])
@torch.no_grad()
def test_memory_equals_a_loop_over_cells(kind, often):
    generator = torch.Generator().manual_seed(1)
    memory, x = RecurrentLayer(kind, 5, 8), torch.randn(9, 4, 5, generator=generator)
    first = torch.rand(9, 4, generator=generator) < often
    state = tuple(torch.randn(4, 8, generator=generator) for _ in range(memory.parts))
    expected, last = slow_memory(memory, kind, x, first, state)
    found, found_state = memory(x, first, state)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(found_state, last):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_memory_begins_orthogonal_and_at_zero(kind):
    """Details 32 and 33."""
    memory = RecurrentLayer(kind, 8, 8)
    for name, p in memory.cell.named_parameters():
        assert (p == 0).all() if "bias" in name else gain(p) == pytest.approx(1.0, rel=1e-3)
    assert all((part == 0).all() and part.shape == (3, 8) for part in memory.initial_state(3))
    assert {part.dtype for part in memory.double().initial_state(3)} == {torch.float64}


def test_layer_init_without_orthogonality_leaves_a_layer_alone():
    layer = nn.Linear(3, 3)
    before = layer.weight.clone()
    assert torch.equal(layer_init(layer, orthogonal=False).weight, before)
    assert np.allclose(layer_init(layer, 2.0, 0.5).bias.detach().numpy(), 0.5)


@pytest.mark.parametrize("out_std", [None, 1.0])
@pytest.mark.parametrize(("name", "formula"), [
    ("tanh", np.tanh), ("relu", lambda x: np.maximum(x, 0)), ("elu", lambda x: np.where(x > 0, x, np.exp(x) - 1)),
    ("gelu", lambda x: x * stats.norm.cdf(x)), ("silu", lambda x: x / (1 + np.exp(-x)))])
def test_activations_and_layer_norm_equal_their_formulas(name, formula, out_std):
    """In float64, by numpy and scipy; layer normalisation has the epsilon 1e-5 and comes before the activation. A gain of
    the last layer makes it linear."""
    net = MLP([4, 6, 5, 2], out_std, activation=name, layer_norm=True).double()
    assert [norm.normalized_shape for norm in net.norms] == [(6,), (5,)] + [(2,)] * (out_std is None)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape))
        x = expected = torch.randn(9, 4, dtype=torch.float64)
        for layer, norm in zip_longest(net.layers, net.norms):
            expected = layer(expected)
            if norm is not None:
                hidden, (weight, bias) = expected.numpy(), (p.numpy() for p in norm.parameters())
                normal = (hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(hidden.var(-1, keepdims=True) + 1e-5)
                expected = torch.from_numpy(formula(normal * weight + bias))
        torch.testing.assert_close(net(x), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("lead", [(), (5,), (5, 3)])
def test_a_network_without_hidden_layers_reads_observations_of_several_axes(lead):
    """Their numbers row by row, in the dtype of the weights."""
    net, x = MLP([6, 2], 1.0, obs_ndim=2).double(), torch.randint(0, 9, (*lead, 2, 3), dtype=torch.uint8)
    weight, bias = (p.detach().numpy() for p in net.parameters())
    np.testing.assert_allclose(net(x).detach().numpy(), x.numpy().reshape(*lead, 6) @ weight.T + bias)
