"""Which observations --model fits, and what the sentences say to do where it does not."""

import re

import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.model_fit import action_problems, announce_images, check_model
from proximo.envs.arrays.obs_layout import obs_layout
from proximo.envs.arrays.spaces import read_space
from proximo.errors import UsageError
from proximo.variants import RPO
from tests.support.spec import Spec

BYTES, UNIT = spaces.Box(0, 255, (64, 64, 12), np.uint8), spaces.Box(0, 1, (64, 64, 3))
GREY, SMALL = spaces.Box(0, 255, (40, 37), np.uint8), spaces.Box(0, 255, (3, 12, 10), np.uint8)
TINY, FREE = spaces.Box(0, 255, (7, 7, 3), np.uint8), spaces.Box(-1, 1, (64, 64, 3))
VECTOR = spaces.Box(-1, 1, (3,))
PARTS = spaces.Dict({"camera": spaces.Box(0, 255, (9, 12, 3), np.uint8), "seen": VECTOR})
FLAT = spaces.Dict({"grid": TINY, "kind": spaces.Discrete(3)})


def check(space, model, norm_obs=False, **fields):
    """Check a space as the network of a run would see it."""
    reader = read_space(space, "x")
    dtype = np.dtype(np.float32) if norm_obs else reader.dtype
    check_model(Spec(reader.shape, dtype, spaces.Discrete(2), space), Config(model=model, norm_obs=norm_obs, **fields))


@pytest.mark.parametrize("space,model", [
    (BYTES, "cnn"), (UNIT, "cnn"), (GREY, "cnn"), (BYTES, "impala"), (SMALL, "impala"), (PARTS, "impala"), (PARTS, "mlp"),
    (FLAT, "mlp"), (FREE, "mlp"), (TINY, "mlp"), (VECTOR, "mlp")])
def test_what_fits(space, model):
    check(space, model)


@pytest.mark.parametrize("space,model,fields,words", [
    (spaces.Box(0, 1, (40, 40)), "cnn", {}, "bounds to .0, 1., or .H, W. of uint8. The .* float32 of shape .40, 40.. Use --model mlp."),
    (SMALL, "cnn", {}, "uint8 of shape .3, 12, 10.. Use --model impala or --model mlp."),
    (TINY, "impala", {}, "at least 8x8 pixels.* Use --model mlp."),
    (FREE, "cnn", {}, "float32 of shape .64, 64, 3.. Return uint8, or declare the bounds 0 and 1"),
    (BYTES, "cnn", {"norm_obs": True}, "Use --no-norm-obs: the network divides the pixels by 255"),
    (VECTOR, "cnn", {}, "shape .3,.. Use --model mlp"), (PARTS, "cnn", {}, "An image of CartPole-v1 has a side of 9"),
    (FLAT, "impala", {}, "CartPole-v1 have none of at least 8x8 pixels. Use --model mlp"),
    (PARTS, "mlp", {"policy_sizes": (8,)}, "share the network over them. Use --hidden-sizes")])
def test_what_does_not_fit_says_what_to_do(space, model, fields, words):
    with pytest.raises(UsageError, match=words):
        check(space, model, **fields)


def test_normalised_images_of_a_suite_without_an_observation_space_get_the_same_advice():
    with pytest.raises(UsageError, match="Use --no-norm-obs"):
        check_model(Spec((4, 84, 84), np.dtype(np.float32), spaces.Discrete(2)), Config(model="cnn", norm_obs=True))


@pytest.mark.parametrize("actions", [spaces.Discrete(2), spaces.Dict(grip=spaces.Discrete(2), move=spaces.Box(-1, 1, (2,)))])
def test_a_variant_with_a_distribution_of_its_own_needs_box_actions(actions):
    assert "This variant has its own distribution of Box actions" in "".join(action_problems(RPO(), actions))
    assert not action_problems(Config(), actions) and not action_problems(RPO(), spaces.Box(-1, 1, (2,)))


@pytest.mark.parametrize("low,high,dtype,words", [
    ([-1, 0], [1, 0], np.float32, r"Component \[1\] of the actions of CartPole-v1 lies between 0 and 0. Change"),
    ([-3e38, -1], [3e38, 1], np.float32, r"Component \[0\] .* lies between -3e\+38 and 3e\+38\. "),
    ([-1e300] * 2, [1e300] * 2, np.float64, r"1e\+300 \(2 components are like this\)\. Change the bounds, or use --dist"),
    ([-np.inf, -1], [1, 1], np.float32, r"Component \[0\] .* lies between -inf and 1\.")])
def test_a_distribution_between_bounds_needs_a_range_in_every_component(low, high, dtype, words):
    space = spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)
    for distribution in ("squashed", "beta"):
        (problem,) = action_problems(Config(distribution=distribution), space)
        assert re.search(words, problem), problem
        assert not action_problems(Config(distribution=distribution), spaces.Box(-1, 1, (2,)))
    assert not action_problems(Config(distribution="gaussian"), space)


def test_networks_for_images_that_nobody_named_are_announced(caplog):
    caplog.set_level("INFO", "proximo")
    for space in (PARTS, FLAT):
        layout = obs_layout(space)
        announce_images(Spec((layout.size,), layout.dtype, spaces.Discrete(2), space), Config())
    assert [record.message for record in caplog.records] == [
        "CartPole-v1: unless you pass a network of your own, a small convolutional network reads observation['camera'] (3, 9, 12), "
        "and its features join the other parts. --model cnn or impala selects another one."]
