"""Rows of structured observations against the observations that they were written from, and which arrays are images."""

from collections import OrderedDict

import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.image_axes import as_returned, channels_first, image_axes, is_image_part, stored_shape
from proximo.envs.arrays.obs_layout import float_view, obs_layout, part_views, write_rows
from proximo.envs.arrays.spaces import read_space
from proximo.envs.envpool_arrays import pool_reader
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.normalize import make_normalizer
from proximo.errors import UsageError, warn_once
from tests.support.normalized import Normalized
from tests.support.play import random_actions
from tests.support.probes import DictObs

FLOATS = spaces.Dict({"b": spaces.Box(-1, 1, (2, 2), np.float64), "a": spaces.Tuple([spaces.Box(-9, 9, (3,))])})
MIXED = spaces.Dict(OrderedDict(
    flag=spaces.MultiBinary(3), camera=spaces.Box(0, 255, (9, 8, 3), np.uint8), number=spaces.Discrete(4, start=-2),
    action_mask=spaces.MultiBinary(2), inner=spaces.Tuple([
        spaces.MultiDiscrete([2, 5], start=[1, 0]), spaces.Box(-1, 1, (3,)), spaces.Box(0, 9, (2,), np.int64),
        spaces.Box(0, 1, (8, 8, 4), np.float64), spaces.Box(0, 255, (10, 9), np.uint8)])))


def test_every_part_can_be_read_back():
    """One observation, and several in one structure; parts are aligned, and in Gymnasium's order."""
    layout = obs_layout(MIXED)
    one = MIXED.sample()
    row = np.zeros(layout.size, np.uint8)
    write_rows(layout, one, row)
    flag, camera, number, choice, vector, whole, stack, grey = part_views(layout, row)
    assert np.array_equal(flag, one["flag"]) and np.array_equal(camera, one["camera"].transpose(2, 0, 1))
    assert number == one["number"] + 2 and np.array_equal(choice, one["inner"][0] - [1, 0])
    assert np.array_equal(vector, one["inner"][1]) and np.array_equal(whole, one["inner"][2])
    assert np.array_equal(stack, one["inner"][3].transpose(2, 0, 1).astype(np.float32))
    assert np.array_equal(grey, one["inner"][4][None]) and grey.dtype == camera.dtype == np.uint8
    assert all(part.start % part.dtype.itemsize == 0 for part in layout.parts) and layout.size % 8 == 0
    assert [part.name for part in layout.parts][3] == "observation['inner'][0]"
    rows = np.zeros((2, layout.size), np.uint8)
    batch = {name: np.stack([one[name]] * 2) for name in ("flag", "camera", "number")}
    write_rows(layout, batch | {"inner": tuple(np.stack([x] * 2) for x in one["inner"])}, rows)
    assert np.array_equal(rows, np.stack([row] * 2))


@pytest.mark.parametrize(("dtype", "stored"), [
    (np.int64, np.float32), (np.uint64, np.float32), (np.float64, np.float32), (np.int32, np.int32), (np.int16, np.int16),
    (np.uint8, np.uint8), (np.float32, np.float32)])
def test_numbers_of_64_bits_are_stored_as_float32(dtype, stored):
    """JAX would take their lower half. As one array, as a part, and in EnvPool."""
    whole = spaces.Box(0, 100, (3,), dtype)
    assert read_space(whole, "x").dtype == pool_reader(whole, whole).dtype == stored
    assert obs_layout(spaces.Tuple([whole])).parts[0].dtype == stored


@pytest.mark.parametrize("other", [spaces.Box(-1, 1, (2,)), spaces.Discrete(3)])
def test_parts_without_numbers_are_refused_before_training(other):
    """A model with such a part could not be loaded."""
    with pytest.raises(UsageError, match="x: observation.'a'. has no numbers. Leave it out of the observation space"):
        read_space(spaces.Dict({"a": spaces.Box(-1, 1, (0,)), "b": other}), "x")


def test_vectors_of_floats_stay_one_vector():
    """It equals gymnasium.spaces.flatten, so that it is stored and normalised as before."""
    layout, reader = obs_layout(FLOATS), read_space(FLOATS, "x")
    one = FLOATS.sample()
    assert layout.dtype == np.float32 and reader.shape == (7,)
    assert np.array_equal(reader.flatten(one), spaces.flatten(FLOATS, one).astype(np.float32))
    assert float_view(FLOATS, (7,)).whole and obs_layout(spaces.Discrete(3)) is None and obs_layout(None) is None


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_only_vectors_of_floats_are_normalised(mode):
    """In a game, also its last observations: against statistics of the vector alone; all other bytes stay as they are."""
    cfg = Config(env_id="tests.support.probes:Rich-v0", norm_obs=True, autoreset=mode)
    plain, normalized = make_gym(cfg, [1, 2]), Normalized(make_gym(cfg, [1, 2]), cfg)
    layout, rng, seen, ends = obs_layout(plain.observation_space), np.random.default_rng(0), [], 0
    index = [part.path for part in layout.parts].index(("seen",))
    assert make_normalizer(cfg, plain).spec.obs_dtype == plain.obs_dtype == np.uint8
    one, other = plain.reset(), normalized.reset()
    for _ in range(20):
        over = one.terminated | one.truncated
        ends += over.sum()
        seen.append(part_views(layout, one.obs)[index][~over if mode == "next-step" else slice(None)].copy())
        rows = np.concatenate(seen).astype(np.float64)
        moments = normalized.statistics.obs
        assert moments.mean.shape == (2,) and np.allclose(moments.mean, rows.mean(0), atol=1e-4)
        assert (other.final_obs is None) == (mode == "next-step")
        pairs = [(one.obs, other.obs)] if mode == "next-step" else [(one.obs, other.obs), (one.final_obs[over], other.final_obs[over])]
        for raw, found in pairs:
            views, changed = part_views(layout, raw), part_views(layout, found)
            assert np.allclose(changed[index], (views[index] - moments.mean) / np.sqrt(moments.var + 1e-8), atol=1e-5)
            assert all(np.array_equal(a, b) for i, (a, b) in enumerate(zip(views, changed)) if i != index)
        action = random_actions(plain, one, rng)
        one, other = plain.step(action), normalized.step(action)
    assert ends > 0


def test_normalising_leaves_the_rows_of_the_environments_as_they_are():
    """They may be read again, as the last observations of a worker process that is lost."""
    layout = obs_layout(MIXED)
    rows, view = np.zeros((2, layout.size), np.uint8), float_view(MIXED, (layout.size,))
    for row in rows:
        write_rows(layout, MIXED.sample(), row)
    before = rows.copy()
    written = view.write(rows, view.read(rows) + 1)
    assert np.array_equal(rows, before) and not np.array_equal(written, before)


def test_a_number_that_is_not_finite_is_refused():
    """Its name is said: in a row of bytes nobody else would see it."""
    layout = obs_layout(MIXED)
    one = MIXED.sample()
    one["inner"][1][1] = np.nan
    with pytest.raises(ValueError, match=r"observation\['inner'\]\[1\] is not finite"):
        write_rows(layout, one, np.zeros(layout.size, np.uint8))


@pytest.mark.parametrize("space,axes,part", [
    (spaces.Box(0, 255, (64, 64, 12), np.uint8), "last", True), (spaces.Box(0, 255, (3, 64, 60), np.uint8), "first", True),
    (spaces.Box(0, 255, (8, 9), np.uint8), "grey", True), (spaces.Box(0, 1, (64, 60, 3)), "last", True),
    (spaces.Box(0, 1, (1, 8, 8), np.float64), "first", True), (spaces.Box(-1, 1, (64, 64, 3)), "", False),
    (spaces.Box(0, 255, (7, 7, 3), np.uint8), "last", False), (spaces.Box(0, 2, (10, 10), np.uint8), "grey", False),
    (spaces.Box(0, 1, (64, 64)), "", False), (spaces.Box(0, 255, (5, 9), np.uint8), "", False),
    (spaces.Box(0, 9, (10, 10, 3), np.int64), "", False), (spaces.Discrete(3), "", False)])
def test_which_arrays_are_images(space, axes, part):
    """By dtype, bounds and shape; and writing an image through a view with the environment's axes is the same."""
    assert (image_axes(space), is_image_part(space)) == (axes, part)
    if axes:
        image = space.sample()
        rows = np.zeros((2, *stored_shape(axes, space.shape)), space.dtype)
        as_returned(axes, rows)[1] = image
        assert np.array_equal(rows[1], channels_first(axes, image)) and not rows[0].any()


PARTS = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Tuple([
    spaces.Discrete(3), spaces.Box(0, 255, (9, 9, 3), np.uint8)])})
IMAGE = np.full((9, 9, 3), 7, np.uint8)


@pytest.mark.parametrize("a,image", [
    (np.array([0.5, 1.0]), IMAGE), ([0.5, 1.0], IMAGE), (np.array([0.5, 1], np.float32), IMAGE.astype(np.int64))])
def test_parts_of_other_dtypes_are_converted_with_a_warning(a, image, caplog):
    """As whole observations are, where no number is lost."""
    warn_once.cache_clear()
    flatten = read_space(PARTS, "x").flatten
    assert np.array_equal(flatten({"a": a, "b": (1, image)}),
                          flatten({"a": np.array([0.5, 1], np.float32), "b": (1, IMAGE)}))
    assert len(caplog.records) == 1 and "It is converted. Return np.asarray(observation[" in caplog.text


@pytest.mark.parametrize("observation,words", [
    ({"a": [0.5, 1.0]}, "observation has no key 'b'"), ({"a": [0.5, 1.0], "b": (7, IMAGE)}, "is 7, which is not in Discrete"),
    ({"a": [0.5, 1.0], "b": (1, IMAGE + 0.5)}, "has dtype float64; its space requires uint8"),
    ({"a": np.zeros(3), "b": (1, IMAGE)}, "has shape .3,.; its space requires .2,."), ({"a": [0, 1], "b": (1,)}, "has 1 parts")])
def test_other_structures_and_lost_numbers_are_faults(observation, words):
    with pytest.raises(ValueError, match=words):
        read_space(PARTS, "x").flatten(observation)


@pytest.mark.parametrize(("when", "keys", "named"), [
    ("reset", ("goal",), "observation['goal']"), ("step", ("goal", "action_mask"), "observation['goal'] and no observation['action_mask']"),
    ("inner", ("goal",), "observation['pair'][0]['goal']"), ("never", ("goal",), "")])
def test_keys_that_the_space_does_not_have_are_told_once(when, keys, named, caplog):
    """They were left out without a word. Of the first observations only: comparing takes time."""
    class Extra(DictObs):
        if when == "inner":
            observation_space = spaces.Dict({"pair": spaces.Tuple([spaces.Dict({"vector": spaces.Box(-1, 1, (2,))})])})

        def observe(self):
            extra = dict.fromkeys(keys, np.zeros(2))
            if when == "inner":
                return {"pair": ({"vector": np.zeros(2, np.float32)} | extra,)}
            return super().observe() | (extra if when == "reset" or (when == "step" and self.played) else {})

    warn_once.cache_clear()
    envs = GymEnvs(Extra, [1, 2], f"Extra-{when}")
    envs.reset()
    for _ in range(3):
        envs.step(np.zeros(2, np.int64))
    said = (f"Extra-{when}: the observation space has no {named}, so the agent does not see what the environment returns there. Add "
            "it to the observation space, or leave it out of the observation.")
    assert [record.getMessage() for record in caplog.records] == [said] * bool(named)
