"""--critic-obs: the value sees a key that the policy does not, in both frameworks."""

import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.config import Config
from proximo.envs.arrays.model_fit import check_model
from proximo.errors import UsageError
from proximo.problems import config_problems
from tests.support.probes import DictObs
from tests.support.runs import train
from tests.support.spec import Spec

SPACE = DictObs.observation_space
IMAGE = spaces.Dict({"camera": spaces.Box(0, 255, (9, 9, 3), np.uint8), "state": spaces.Box(-1, 1, (2,))})


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_policy_does_not_see_the_key_and_the_value_does(framework, tmp_path):
    """A trained model, with the key changed and without it."""
    if framework == "jax":
        pytest.importorskip("flax")
    assert train(tmp_path / "run", "--env-id", "tests.support.probes:DictObs-v0", "--critic-obs", "vector",
                 "--norm-obs", "--framework", framework) == 0
    model, agent = proximo.load(tmp_path / "run"), proximo.load(tmp_path / "run").actor.agent
    SPACE.seed(0)
    raw = [SPACE.sample() for _ in range(30)]
    other = [one | {"vector": -one["vector"]} for one in raw]
    without = [{name: x for name, x in one.items() if name != "vector"} for one in raw]
    actions = []
    for observations in (raw, other, without):
        model.reset(seed=1)
        actions.append(model.act(observations))
    assert np.array_equal(actions[0], actions[1]) and np.array_equal(actions[0], actions[2])
    assert model.act(without[0]) in (0, 1)
    assert model.logprob(without[0], 1) == model.logprob(raw[0], 1)
    assert model.value(raw[0]) != model.value(other[0])
    for given in (without, without[0]):
        with pytest.raises(UsageError, match="is a dict with kind, pair. This model takes a dict with kind, pair, vector"):
            model.value(given)
    for name, parts in (("critic", 4), ("head.network", 3)):
        encoder = agent
        for step in f"{name}.encoder".split("."):
            encoder = getattr(encoder, step)
        assert len(encoder.nets) == parts


@pytest.mark.parametrize("space,key,words", [
    (SPACE, "depth", "not a key of the observations of CartPole-v1, which have the keys kind, pair, vector"),
    (spaces.Box(-1, 1, (2,)), "x", "which have no keys: they are not a Dict"), (IMAGE, "state", "have images, and policy"),
    (spaces.Dict({"x": spaces.Box(-1, 1, (2,))}), "x", "the only key")])
def test_what_cannot_work_is_refused(space, key, words):
    with pytest.raises(UsageError, match=words):
        check_model(Spec((2,), np.dtype(np.float32), spaces.Discrete(2), space), Config(critic_obs=key))


@pytest.mark.parametrize("fields", [{"recurrent": "lstm"}, {"shared_network": True}])
def test_shared_networks_are_refused(fields):
    assert "critic_obs=x needs separate networks" in config_problems(Config(critic_obs="x", **fields))[0]
