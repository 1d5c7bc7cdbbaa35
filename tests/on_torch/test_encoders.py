"""Encoders: features of Gymnasium, and a network for small images against loops of numpy."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.envs.arrays.obs_layout import obs_layout, write_rows
from proximo.on_torch.encoders import Encoded, Encoder, SmallCNN
from tests.on_torch.test_networks import gain

SPACE = spaces.Dict({"kind": spaces.Discrete(3, start=1), "more": spaces.Tuple([
    spaces.MultiDiscrete([2, 4]), spaces.Box(-1, 1, (2, 2)), spaces.Box(0, 9, (2,), np.int16)]), "flag": spaces.MultiBinary(2)})


@pytest.mark.parametrize("lead", [(6,), (2, 3)])
def test_features_without_images_are_those_of_gymnasium(lead):
    """Against gymnasium.spaces.flatten; a network over them gets their number."""
    layout = obs_layout(SPACE)
    SPACE.seed(0)
    observations, rows = [SPACE.sample() for _ in range(6)], np.zeros((6, layout.size), np.uint8)
    for row, one in zip(rows, observations):
        write_rows(layout, one, row)
    wanted = np.stack([spaces.flatten(SPACE, one) for one in observations]).astype(np.float32)
    encoder = Encoder(layout.parts)
    assert encoder.features == wanted.shape[1] and not encoder.state_dict()
    found = encoder(torch.from_numpy(rows).view(*lead, -1))
    assert found.dtype == torch.float32 and np.array_equal(found.numpy(), wanted.reshape(*lead, -1))
    net = Encoded(encoder, lambda features: torch.nn.Linear(features, 2))
    torch.testing.assert_close(net(torch.from_numpy(rows)), net.network(torch.from_numpy(wanted)))


def slow_cnn(net, image):
    """Apply relu(conv 3x3) and the maximum of each 3x3 window at every second pixel, three times, then relu(dense)."""
    x = image.astype(float) / 255
    for conv in net.convs:
        weight, bias = (p.detach().double().numpy() for p in conv.parameters())
        padded, (height, width) = np.pad(x, ((0, 0), (1, 1), (1, 1))), x.shape[1:]
        y = np.array([[np.maximum((weight * padded[:, i:i + 3, j:j + 3]).sum((1, 2, 3)) + bias, 0) for j in range(width)]
                      for i in range(height)])
        x = np.array([[y[max(i - 1, 0):i + 2, max(j - 1, 0):j + 2].max((0, 1)) for j in range(0, width, 2)]
                      for i in range(0, height, 2)]).transpose(2, 0, 1)
    weight, bias = (p.detach().double().numpy() for p in net.dense.parameters())
    return np.maximum(weight @ x.flatten() + bias, 0)


@pytest.mark.parametrize("shape", [(1, 8, 11), (3, 9, 16)])
def test_small_images_go_through_three_convolutions(shape):
    """Sizes that are even and odd; gains of sqrt 2, unless torch's own first weights are kept."""
    torch.manual_seed(0)
    net, images = SmallCNN(shape, 5), torch.randint(256, (2, 2, *shape), dtype=torch.uint8)
    expected = [[slow_cnn(net, image) for image in row] for row in images.numpy()]
    np.testing.assert_allclose(net(images).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert [tuple(conv.weight.shape) for conv in net.convs] == [(16, shape[0], 3, 3), (32, 16, 3, 3), (32, 32, 3, 3)]
    layers, plain = (*net.convs, net.dense), SmallCNN(shape, 5, orthogonal=False)
    assert all(gain(layer.weight) == pytest.approx(math.sqrt(2), rel=1e-3) for layer in layers)
    assert all(gain(layer.weight) is None for layer in (*plain.convs[1:], plain.dense))


def test_images_and_vectors_are_joined_in_the_order_of_the_parts():
    """Each image by the network that was made for its shape, channels first."""
    space = spaces.Dict({"camera": spaces.Box(0, 255, (8, 9, 3), np.uint8), "speed": spaces.Box(-1, 1, (2,))})
    layout, made = obs_layout(space), []
    encoder = Encoder(layout.parts, lambda shape: made.append(SmallCNN(shape, 4)) or (made[0], 4))
    row, one = np.zeros(layout.size, np.uint8), space.sample()
    write_rows(layout, one, row)
    image = torch.from_numpy(one["camera"]).permute(2, 0, 1)
    expected = torch.cat([made[0](image[None]), torch.from_numpy(one["speed"])[None]], -1)
    torch.testing.assert_close(encoder(torch.from_numpy(row)[None]), expected)
    assert len(made) == 1 and encoder.features == 6
