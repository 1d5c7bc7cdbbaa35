"""Which environments an agent may play in: those with the same observations and actions, part by part, in order."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import proximo
from proximo.config import Config
from proximo.envs.gym_checks import check_envs
from proximo.errors import UsageError
from proximo.models.task import check_bounds, task_difference
from proximo.on_torch.agent import SharedAgent
from proximo.on_torch.distributions import CategoricalHead
from proximo.protocols import Spec

UNIT = spaces.Box(-1, 1, (2,), np.float32)
SORTED, GIVEN = spaces.Dict({"b": UNIT, "a": UNIT}), spaces.Dict(b=UNIT, a=UNIT)


def spec(action_space=spaces.Discrete(2), observation_space=None):  # noqa: B008
    return Spec((4,), np.dtype(np.float32), action_space, observation_space)


@pytest.mark.parametrize(("before", "after", "sentence"), [
    (spec(observation_space=GIVEN), spec(observation_space=SORTED), "observations are in the order"),
    (spec(spaces.Dict(turn=UNIT, grip=UNIT)), spec(spaces.Dict({"turn": UNIT, "grip": UNIT})),
     "parts of actions are in the order grip, turn, but the agent was trained with turn, grip"),
    (spec(spaces.Discrete(3)), spec(spaces.Discrete(3, start=1)), r"actions Discrete\\(3, start=1\\)"),
    (spec(spaces.MultiDiscrete([3, 2])), spec(spaces.MultiDiscrete([3, 2], start=[1, 0])), "actions MultiDiscrete"),
    (spec(spaces.Discrete(3)), spec(spaces.Discrete(4)), "actions Discrete"),
    (spec(), spec(), "^$"),
    (spec(observation_space=GIVEN), spec(observation_space=GIVEN), "^$"),
])
def test_differences(before, after, sentence):
    assert re.search(sentence.replace("\\\\", "\\"), task_difference(before, after, False))


@pytest.mark.parametrize("bounds", [(-5, 1), (-1, 5)])
def test_bounds_to_which_actions_are_scaled_must_be_the_same(bounds, caplog):
    wide = spec(spaces.Box(*bounds, (2,), np.float32))
    with pytest.raises(UsageError, match="scales actions to their bounds"):
        check_bounds(spec(UNIT), wide, Config(distribution="squashed"))
    check_bounds(spec(UNIT), wide, Config())
    assert "Actions are clipped to the new bounds" in caplog.text


class Ordered(gymnasium.Env):
    """Observations of two parts, in the order of `space`."""

    action_space = spaces.Discrete(2)

    def __init__(self, space=GIVEN):
        self.observation_space, self.time = space, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.time += 1
        return self.observation_space.sample(), 1.0, self.time == 5, False, {}


def test_parts_in_another_order_are_refused_wherever_an_agent_plays(tmp_path):
    """The network would read each part for another one."""
    run = proximo.train(env=Ordered, total_timesteps=64, num_envs=2, num_steps=16, num_minibatches=2, run_dir=tmp_path / "run")
    with pytest.raises(UsageError, match="parts of observations are in the order"):
        proximo.evaluate(run, 2, env=lambda: Ordered(SORTED))
    with pytest.raises(UsageError, match="keys in the same order"):
        check_envs([Ordered(), Ordered(SORTED)], "Ordered")


def test_a_run_that_begins_with_the_weights_of_another_task_says_so(tmp_path, caplog):
    run = proximo.train(env=Ordered, total_timesteps=64, num_envs=2, num_steps=16, num_minibatches=2, run_dir=tmp_path / "run")
    proximo.train(env=lambda: Ordered(SORTED), init_from=str(run), total_timesteps=64, num_envs=2, num_steps=16,
                  num_minibatches=2, run_dir=tmp_path / "next")
    assert "The parts of observations are in the order" in caplog.text and "used as it is" in caplog.text


class Largest(gymnasium.Env):
    """Choose the largest of some items, each of `numbers` numbers: the reward is the first of them."""

    def __init__(self, items=3, numbers=2):
        self.observation_space = spaces.Box(0, 1, (items, numbers), np.float32)
        self.action_space = spaces.Discrete(items)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.items = self.np_random.random(self.observation_space.shape, np.float32)
        return self.items, {}

    def step(self, action):
        return self.items, float(self.items[action, 0]), True, False, {}


class Last(torch.nn.Module):
    """The last number of the features."""

    def forward(self, x):
        return x[..., -1:]


def scoring(spec, cfg):
    """A network that scores each item with the same weights."""
    score = torch.nn.Sequential(torch.nn.Linear(spec.obs_shape[-1], 1), torch.nn.Flatten(-2))
    return SharedAgent(score, torch.nn.Sequential(Last(), torch.nn.Linear(1, 1)),
                       CategoricalHead(torch.nn.Identity(), int(spec.action_space.n)))


def fixed(spec, cfg):
    """A network with weights for each item."""
    body = torch.nn.Sequential(torch.nn.Flatten(-2), torch.nn.Linear(int(np.prod(spec.obs_shape)), 4))
    return SharedAgent(body, torch.nn.Linear(4, 1), CategoricalHead(torch.nn.Linear(4, int(spec.action_space.n)), int(spec.action_space.n)))


FEW = {"total_timesteps": 32, "num_envs": 2, "num_steps": 16, "num_minibatches": 2}


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    return proximo.train(env=Largest, make_agent=scoring, run_dir=tmp_path_factory.mktemp("scorer") / "run", **FEW)


def test_a_network_that_takes_all_sizes_plays_others_than_those_of_its_run(scorer, caplog):
    """It plays as a model that was made for these sizes, with the weights of the run."""
    model = proximo.load(scorer, make_agent=scoring)
    found = [proximo.evaluate(one, 20, Largest, env_kwargs={"items": 6}, make_agent=scoring).returns for one in (scorer, model)]
    assert found[0] == found[1] and "Box(0.0, 1.0, (6, 2), float32)" not in caplog.text
    assert "observations float32 of shape (6, 2)" in caplog.text and "Its network is used as it is." in caplog.text
    (layer,), envs = (one for one in model.module.modules() if isinstance(one, torch.nn.Linear) and one.in_features == 2), Largest(6)
    played = []
    for seed in found[0] and range(20):
        items, _ = envs.reset(seed=seed)
        played.append(items[int(layer(torch.from_numpy(items)).argmax()), 0])
    assert np.mean(found[0]) == pytest.approx(np.mean(played), abs=0.25)
    assert proximo.evaluate(model, 4, Largest, make_agent=scoring).returns, "the model has the sizes of its run as before"


def test_evaluations_during_training_may_have_other_sizes(tmp_path):
    run = proximo.train(env=Largest, make_agent=scoring, run_dir=tmp_path / "run", eval_every=32, eval_env_kwargs={"items": 6}, **FEW)
    assert (tmp_path / "run" / "model-best").exists() and "eval/return_mean" in (run / "metrics.csv").read_text()


@pytest.mark.parametrize(("options", "kwargs", "sentence"), [
    ({"make_agent": fixed}, {"items": 6}, "agent was trained with .*Its network does not take these sizes: "),
    ({"make_agent": scoring, "norm_obs": True}, {"items": 6}, "With norm_obs, an agent takes only the sizes of its run"),
    ({"make_agent": scoring}, {"numbers": 3}, "Its network does not take these sizes"),
    ({}, {"items": 6}, "Use the environment of the run, or one with the same spaces")])
def test_sizes_that_an_agent_does_not_take(options, kwargs, sentence, tmp_path):
    run = proximo.train(env=Largest, run_dir=tmp_path / "run", **FEW, **options)
    parts = {name: part for name, part in options.items() if name == "make_agent"}
    with pytest.raises(UsageError, match=sentence):
        proximo.evaluate(run, 2, Largest, env_kwargs=kwargs, **parts)


def test_a_network_that_is_made_again_needs_its_function(scorer):
    model = proximo.load(scorer, make_agent=scoring)
    with pytest.raises(UsageError, match="If the network is your own, pass the same make_agent as in training"):
        proximo.evaluate(model, 2, Largest, env_kwargs={"items": 6})
    with pytest.raises(UsageError, match="one with the same spaces"):
        proximo.evaluate(model, 2, "CartPole-v1", make_agent=scoring)
