"""A model that one framework has trained acts the same in the other, through the files of a run and Model.act."""

import copy
import pickle
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import proximo
from proximo.catalog import config_class, parts_of
from proximo.envs.normalize import normalize_obs
from proximo.models.export.portable import Portable
from proximo.models.read_folder import model_from, read_model
from proximo.on_jax.actor import Actor
from proximo.on_jax.assemble import assemble
from proximo.on_jax.box_heads import make_box_head
from proximo.on_jax.parameters import make_bind
from proximo.runs.folder.run import config_from
from tests.support.runs import train

T, N = 20, 3
ATOL = 2e-5  # float32 numbers of order 1 that went through the same arithmetic in another order
SHORT = ("--num-steps", "16", "--total-timesteps", "96", "--update-epochs", "1", "--learning-rate", "0.01")
IMAGE = ("--env-id", "tests.support.probes:Image-v0", "--model", "impala")
PONG = ("--env-id", "PongNoFrameskip-v4", "--screen-size", "36", "--num-minibatches", "1", "--env-workers", "0")
CASES = {  # variant, words
    "mlp": ("ppo", ()), "normalised": ("ppo", ("--norm-obs", "--norm-reward")),
    "shared": ("ppo", ("--shared-network",)), "several": ("ppo", ("--env-id", "tests.support.probes:Several-v0")),
    "lstm": ("ppo", ("--recurrent", "lstm", "--norm-obs")), "gru": ("ppo", ("--recurrent", "gru")),
    "gaussian": ("ppo_continuous_action", ("--env-id", "Pendulum-v1")),
    "gaussian lstm": ("ppo_continuous_action", ("--env-id", "Pendulum-v1", "--recurrent", "lstm")),
    "impala": ("ppo", IMAGE), "cnn": ("ppo_atari", PONG),
}


@pytest.fixture(scope="module", params=CASES)
def trained(request, tmp_path_factory):
    """The models of one small run of every kind in both frameworks."""
    if request.param == "cnn":
        pytest.importorskip("ale_py")
    (variant, words), folder = CASES[request.param], tmp_path_factory.mktemp("runs")
    for framework in ("torch", "jax"):
        code = train(folder / framework, *SHORT, *words, "--framework", framework, "--device", "cpu", variant=variant)
        assert code == 0
    return request.param, {framework: read_model(folder / framework) for framework in ("torch", "jax")}


def load_as(tree, framework):
    cfg = config_from(tree["config"], config_class(tree["variant"]), Path("model"))
    return model_from(tree, cfg, parts_of(tree["variant"], framework).make_actor)


def observations(model):
    shape, rng = (T, N, *model.spec.obs_shape), np.random.default_rng(0)
    return rng.integers(0, 256, shape).astype(np.uint8) if model.spec.obs_dtype == np.uint8 \
        else (2 * rng.normal(size=shape)).astype(np.float32)


def firsts():
    first = np.random.default_rng(1).random((T, N)) < 0.2
    first[0] = True
    return first


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_deterministic_actions_are_equal(framework, trained):
    """T raw observations with ends of episodes between them, recurrent state and normaliser included. Choices are
    equal, means of a Gaussian within ATOL."""
    name, trees = trained
    ours, theirs = (load_as(trees[framework], other) for other in ("torch", "jax"))
    for obs, first in zip(observations(ours), firsts()):
        if obs.ndim == 4 and ours.spec.observation_space is not None:  # as the environment returns images
            obs = np.moveaxis(obs, 1, -1)
        one, other = (model.act(obs, first=first, deterministic=True) for model in (ours, theirs))
        assert one.dtype == other.dtype and one.shape == other.shape
        if "gaussian" in name:
            np.testing.assert_allclose(other, one, atol=ATOL, rtol=0)
        else:
            assert np.array_equal(one, other)
    assert (ours.moments is not None) == ours.cfg.norm_obs


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_distributions_and_values_are_equal(framework, trained):
    """The networks with the saved weights: log-probability of an action, entropy, value and recurrent state."""
    _, trees = trained
    ours, theirs = (load_as(trees[framework], other) for other in ("torch", "jax"))
    agent, bound = ours.actor.agent, make_bind(theirs.actor.agent)(
        {name: jnp.asarray(x) for name, x in trees[framework]["weights"].items()})
    raw, first = observations(ours), firsts()
    obs = raw if ours.moments is None else normalize_obs(ours.moments, raw, ours.cfg.clip_obs)
    with torch.no_grad():
        dist, value, state = agent(torch.from_numpy(obs), None, torch.from_numpy(first), agent.initial_state(N, "cpu"))
        action = dist.mode()
        expected = [dist.logprob(action), dist.entropy(), value, *state]
    dist, value, state = bound(jnp.asarray(obs), None, jnp.asarray(first), bound.initial_state(N))
    found = [dist.logprob(jnp.asarray(action.numpy())), dist.entropy(), value, *state]
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(np.asarray(b), a.numpy(), atol=ATOL, rtol=1e-5)
    assert float(np.asarray(value).std()) > 1e-4, "equal values for all observations would prove nothing"


def test_values_and_log_probabilities_are_equal(trained):
    """Of the same files, in both frameworks, with memory: the actor of JAX against that of torch."""
    _, trees = trained
    models = {framework: load_as(trees["jax"], framework) for framework in ("torch", "jax")}
    obs, first = observations(models["torch"]), firsts()
    for t in range(4):
        found = {}
        for framework, model in models.items():
            flags, state = model._memory(N, first[t])
            action = models["torch"].actor.act(model._normalized(obs[t]), None, flags, models["torch"]._memory(N, first[t])[1],
                                               t)[0]
            found[framework] = model.actor.evaluate(model._normalized(obs[t]), None, flags, state, action)
            assert model.actor.weights().keys() == trees["jax"]["weights"].keys()
        for one, other in zip(found["torch"], found["jax"]):
            assert one.shape == (N,) and np.allclose(one, other, atol=ATOL)
        for model in models.values():
            model.choose(obs[t], first[t], None, deterministic=True)


def test_a_model_of_jax_is_exported(trained):
    """What is written to a file (models/export/portable.py) acts as the actor of JAX does, on raw observations with resets."""
    name, trees = trained
    ours, theirs = (load_as(trees["jax"], framework) for framework in ("torch", "jax"))
    portable = Portable(ours, mask=False)
    state = {port.name: torch.zeros(N, *port.shape) for port in portable.inputs if port.name == "state"}
    for obs, first in zip(observations(ours), firsts()):
        if obs.ndim == 4 and ours.spec.observation_space is not None:
            obs = np.moveaxis(obs, 1, -1)
        found = portable({"obs": torch.from_numpy(obs), "first": torch.from_numpy(first)} | state)
        state = {"state": found["next_state"]} if state else {}
        wanted = theirs.act(obs, first=first, deterministic=True)
        np.testing.assert_allclose(found["action"].numpy(), wanted, atol=ATOL * ("gaussian" in name), rtol=0)


def network(spec, cfg):
    return assemble(spec, cfg, make_box_head)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_with_a_network_in_jax_acts_as_the_model(duplicate, tmp_path):
    """In the middle of an episode, with the recurrent state and the noise of then."""
    run = proximo.train(make_agent=network, recurrent="gru", framework="jax", device="cpu", num_steps=16,
                        total_timesteps=64, run_dir=tmp_path / "run", logger="none")
    model = proximo.load(run, make_agent=network)
    assert type(model.actor) is Actor
    seen = observations(model)[:6]
    model.act(seen[0])
    other = duplicate(model)
    played = [(model.value(obs), model.act(obs)) for obs in seen]
    copied = [(other.value(obs), other.act(obs)) for obs in seen]
    assert np.array_equal(played, copied)
