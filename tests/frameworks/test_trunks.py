"""Which network is made for which observations, and how many features it has."""

from importlib import import_module

import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout
from tests.support.spec import Spec


def trunks(framework):
    return import_module(f"proximo.on_{framework.name}.trunks")


@pytest.mark.parametrize(("model", "size", "kind", "features"), [
    ("impala", (9, 40), "ImpalaCNN", 256), ("cnn", (36, 40), "NatureCNN", 512), ("mlp", (36, 40), "NatureCNN", 256),
    ("mlp", (35, 90), "SmallCNN", 128), ("mlp", (90, 35), "SmallCNN", 128)])
def test_images_get_the_network_that_fits_model_and_size(framework, model, size, kind, features):
    """36 pixels are the least for the three convolutions of NatureCNN."""
    net, number = trunks(framework).make_image_net((1, *size), Config(model=model))
    assert type(net).__name__ == kind and number == features == net.dense.weight[...].shape[0]


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_packed_observations_go_through_an_encoder_and_the_hidden_layers(framework, model):
    space = spaces.Dict({"camera": spaces.Box(0, 255, (36, 36, 1), np.uint8), "speed": spaces.Box(-1, 1, (2,))})
    layout = obs_layout(space)
    net, features = trunks(framework).make_trunk(Spec((layout.size,), layout.dtype, spaces.Discrete(2), space),
                                                 Config(model=model, hidden_sizes=(8, 7, 6)))
    seen = {"mlp": 256, "cnn": 512}[model] + 2
    assert features == 6 and net.encoder.features == seen
    assert [tuple(layer.weight[...].shape) for layer in net.network.layers] == [(8, seen), (7, 8), (6, 7)]
