"""Encoders of JAX: acting in numpy equals acting in a compiled function, and features are those of Gymnasium."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout, write_rows
from proximo.errors import UsageError
from proximo.on_jax.assemble import assemble
from proximo.on_jax.encoders import Encoder
from proximo.on_jax.parameters import initial_weights, make_bind, make_numpy_bind
from proximo.on_torch.encoders import Encoder as TorchEncoder
from tests.support.spec import Spec

SPACE = spaces.Dict({"kind": spaces.Discrete(3, start=1), "more": spaces.Tuple([
    spaces.MultiDiscrete([2, 4]), spaces.Box(-1, 1, (3,)), spaces.Box(0, 9, (2,), np.int16)]), "flag": spaces.MultiBinary(2)})
ACTIONS = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2])])
LAYOUT = obs_layout(SPACE)


def rows_of(observations):
    rows = np.zeros((len(observations), LAYOUT.size), np.uint8)
    for row, one in zip(rows, observations):
        write_rows(LAYOUT, one, row)
    return rows


def test_features_without_images_are_those_of_gymnasium():
    """Against gymnasium.spaces.flatten, in numpy and in JAX."""
    SPACE.seed(0)
    observations = [SPACE.sample() for _ in range(9)]
    wanted = np.stack([spaces.flatten(SPACE, one) for one in observations]).astype(np.float32)
    encoder, rows = Encoder(LAYOUT.parts, None), rows_of(observations)
    assert encoder.features == wanted.shape[1]
    for found in (encoder(rows), encoder(rows[None])[0], jax.jit(lambda x: encoder(x))(jnp.asarray(rows))):
        assert found.dtype == np.float32 and np.array_equal(found, wanted)
    assert isinstance(encoder(rows), np.ndarray)


@pytest.mark.parametrize("make", [Encoder, TorchEncoder])
def test_an_image_needs_a_network(make):
    """The message names the part, in both frameworks; without images none is needed."""
    parts = obs_layout(spaces.Dict({"camera": spaces.Box(0, 255, (16, 16, 3), np.uint8), "speed": spaces.Box(-1, 1, (2,))})).parts
    assert make([part for part in parts if part.kind == "vector"]).features == 2
    with pytest.raises(UsageError, match=r"observation\['camera'\] is an image, and make_image_net=None"):
        make(parts)


def test_an_agent_acts_in_numpy_as_in_jax():
    """Observations and actions of several parts, with masks."""
    agent = assemble(Spec((LAYOUT.size,), LAYOUT.dtype, ACTIONS, SPACE), Config(hidden_sizes=(8,)))
    generator, rows = np.random.default_rng(0), rows_of([SPACE.sample() for _ in range(9)])
    weights = {name: x + generator.normal(0, 0.3, x.shape).astype(np.float32)
               for name, x in initial_weights(agent, generator).items()}
    noise = np.asarray(agent.head.noise(jax.random.key(1), 9))
    mask = generator.random((9, 7)) < 0.5
    mask[:, [0, 3, 5]] = True
    found = make_numpy_bind(agent)(weights).act(rows, mask, None, (), noise)
    wanted = make_bind(agent)(weights).act(jnp.asarray(rows), jnp.asarray(mask), None, (), jnp.asarray(noise))
    assert isinstance(found.action, np.ndarray) and found.action.dtype == np.float32
    np.testing.assert_allclose(found.action, wanted.action, atol=1e-5)
    assert all(mask[i, int(one[0])] and mask[i, 3 + int(one[3])] and mask[i, 5 + int(one[4])]
               for i, one in enumerate(found.action))
