"""Trained models: the same actions as in training, with normaliser and memory inside."""

import copy
import errno
import json
import os
import pickle
import re
import shutil
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import proximo
from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.normalize import normalize_obs
from proximo.errors import FilesError, UsageError, warn_once
from proximo.models.evaluate import evaluate
from proximo.models.read_folder import models_over_time, read_model
from proximo.models.spaces import action_for_env, action_from_env, space_from_json, space_to_json
from proximo.on_torch.train import learn
from proximo.runs.folder.checkpoint import load_tree, save_tree
from tests.support.models import random_model
from tests.support.probes import Hybrid
from tests.support.runs import train


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One small run of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    for name, words in {"plain": (), "normalised": ("--norm-obs",), "lstm": ("--recurrent", "lstm", "--norm-reward")}.items():
        assert train(folder / name, *words) == 0
    for name in ("Masked", "Started", "Bounded", "Several", "Hybrid"):
        assert train(folder / name.lower(), "--env-id", f"tests.support.probes:{name}-v0") == 0
    return folder


def test_one_observation_or_many(runs):
    model = proximo.load(runs / "plain")
    one = np.array([0.1, 0.0, -0.05, 0.2], np.float32)
    many = model.act(np.stack([one, -one, one]), deterministic=True)
    assert many.shape == (3,) and many[0] == many[2]
    model.reset()
    action = model.act(one, deterministic=True)
    assert action.shape == () and action == many[0] and spaces.Discrete(2).contains(action)
    assert proximo.load(runs / "plain" / "model").act(one, deterministic=True) == action


@pytest.mark.parametrize("model, expected", [("mlp", 1), ("cnn", 2)])
def test_a_small_network_acts_with_one_thread(model, expected, monkeypatch):
    """Two threads on a machine with other work take ten times as long. The caller's number is as before afterwards."""
    monkeypatch.setattr("proximo.envs.machine.cores.usable_cores", lambda processes=1: 4)
    shape = (4,) if model == "mlp" else (36, 36, 3)
    trained = random_model(spaces.Discrete(2), spaces.Box(0, 255, shape, np.uint8), model=model)
    seen, before = [], torch.get_num_threads()
    trained.module.register_forward_hook(lambda *given: seen.append(torch.get_num_threads()))
    torch.set_num_threads(2)
    try:
        trained.act(np.zeros(shape, np.uint8))
        trained.value(np.zeros(shape, np.uint8))
        assert seen == [expected] * 2 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_model_of_64_bit_numbers_acts_as_its_environment_is_read(tmp_path):
    """Also one that an earlier version saved, which named their own dtype; the largest number is no exception."""
    assert train(tmp_path / "run", "--env-id", "tests.support.probes:Seconds-v0") == 0
    model = proximo.load(tmp_path / "run")
    tree = load_tree(tmp_path / "run" / "model")
    assert tree["obs_dtype"] == "float32"
    save_tree(tmp_path / "old", tree | {"obs_dtype": "int64"})
    old = proximo.load(tmp_path / "old")
    seen = np.array([[2**40, 1], [-2**40, 3], [2**63 - 1, 0], [-2**63, 0]], np.int64)
    for value, same, logit, equal in zip(model.value(seen), old.value(seen), model.act(seen, deterministic=True),
                                         old.act(seen, deterministic=True), strict=True):
        assert value == same and logit == equal
    assert model.value(seen[0]) == pytest.approx(model.value(np.array([2.0**40, 1])))


def test_a_model_acts_in_a_gymnasium_environment(runs):
    """The loop that a user writes, with sampled and deterministic actions; the same seed gives the same episode."""
    model, env = proximo.load(runs / "lstm"), gymnasium.make("CartPole-v1")
    games = []
    for deterministic in (False, False, True):
        model.reset(seed=3)
        obs, _ = env.reset(seed=3)
        first, over, actions = True, False, []
        while not over:
            action = model.act(obs, first=first, deterministic=deterministic)
            obs, _, terminated, truncated, _ = env.step(action)
            first, over = False, terminated or truncated
            actions.append(int(action))
        games.append(actions)
    assert games[0] == games[1] and len(set(games[0])) == 2


def test_the_normaliser_is_inside_and_stays_as_it_is(runs):
    """Against normalisation by hand with the saved statistics."""
    model, raw = proximo.load(runs / "normalised"), np.array([[0.3, -0.2, 0.1, 0.4]], np.float32)
    assert model.moments.count > 100
    seen = normalize_obs(model.moments, raw, model.cfg.clip_obs)
    by_hand, _ = model.actor.act(seen, None, np.ones(1, bool), (), None)
    before = model.moments
    assert model.act(raw, deterministic=True) == by_hand and model.moments is before
    assert "obs_moments" in read_model(runs / "normalised") and "obs_moments" not in read_model(runs / "plain")


def test_memory_is_kept_between_calls_and_forgets_where_told(runs):
    model, obs = proximo.load(runs / "lstm"), np.full((2, 4), 0.1, np.float32)

    def state_after(*firsts):
        model.reset()
        for first in firsts:
            model.act(obs, first=first)
        return model._state[0].numpy().copy()

    once, twice = state_after(None), state_after(None, None)
    assert not np.allclose(once, twice)
    forgot = state_after(None, [True, False])
    assert np.allclose(forgot[0], once[0], atol=1e-6) and np.allclose(forgot[1], twice[1], atol=1e-6)
    assert np.allclose(state_after(None, True), once, atol=1e-6)


def test_reset_keeps_the_noise_unless_it_gets_a_seed(runs):
    """Episodes that begin with reset() are not all played with the same noise."""
    model, obs = proximo.load(runs / "lstm"), np.zeros(4, np.float32)

    def first_actions(seed):
        actions = []
        for _ in range(60):
            model.reset(seed)
            actions.append(int(model.act(obs)))
        return actions

    assert len(set(first_actions(None))) == 2 and len(set(first_actions(3))) == 1
    for wrong in (-1, 1.5, "a", True):
        with pytest.raises(UsageError, match=r"^reset: seed=.* is not allowed\. Use a whole number from 0, or None"):
            model.reset(wrong)


def test_forbidden_actions_are_never_chosen(runs):
    model = proximo.load(runs / "masked")
    obs, mask = np.zeros((200, 2), np.float32), np.tile([False, True, True], (200, 1))
    assert set(model.act(obs, mask=mask)) == {1, 2} and 0 not in model.act(obs, mask=mask, deterministic=True)
    assert model.act(obs[0], mask=[True, False, False]) == 0


def test_a_mask_may_have_an_array_for_each_component(runs):
    """As `info` of an environment may have it; for several observations one such tuple each."""
    model, obs, parts = proximo.load(runs / "several"), np.zeros((40, 2), np.float32), ([0, 1, 1], np.array([True, False]))
    for mask in ([parts] * 40, np.tile([0, 1, 1, 1, 0], (40, 1))):
        found = model.act(obs, mask=mask)
        assert set(found[:, 0]) == {1, 2} and set(found[:, 1]) == {0}
    assert model.act(obs[0], mask=[parts])[1] == 0
    assert model.act(obs[0], mask=parts)[1] == 0 and np.isfinite(model.logprob(obs[0], [1, 0], mask=parts))
    with pytest.raises(UsageError, match="mask has 6 entries"):
        model.act(obs[0], mask=([0, 1, 1], [1, 0, 1]))


@pytest.mark.parametrize("mask", [
    [np.tile([False, True, True], (40, 1)), np.tile([True, False], (40, 1))],
    (np.tile([0, 1, 1], (40, 1)), np.tile([1, 0], (40, 1)))], ids=["list", "tuple"])
def test_a_mask_may_have_an_array_of_all_observations_for_each_component(mask, runs):
    """As a batch of Tuple observations. The numbers went to other choices."""
    model, obs = proximo.load(runs / "several"), np.zeros((40, 2), np.float32)
    found = model.act(obs, mask=mask)
    assert set(found[:, 0]) == {1, 2} and set(found[:, 1]) == {0}


@pytest.mark.parametrize(("mask", "said"), [
    (np.ones((5, 2)), r"mask has 5 rows\. 2 observations need \(2, 5\)"),
    (np.where(np.eye(5)[:2], 0.0, -np.inf), "mask has the value -inf; it must be True or 1"),
    (np.full((2, 5), np.nan), "mask has the value nan"), (np.ones((2, 4)), "mask has 8 entries")])
def test_another_mask_is_refused(mask, said, runs):
    """A transposed one went to other choices, and an additive one was inverted."""
    with pytest.raises(UsageError, match=said):
        proximo.load(runs / "several").act(np.zeros((2, 2), np.float32), mask=mask)


def test_a_mask_of_actions_that_have_none_is_refused(runs):
    with pytest.raises(UsageError, match=r"mask was given, and actions of Box.* cannot be masked\. Leave it out"):
        proximo.load(runs / "bounded").act(np.zeros(2, np.float32), mask=[True])


def test_a_model_that_cannot_be_written_says_what_to_do(runs, tmp_path, monkeypatch):
    """Free space on the disk would not help where the folder is not writable."""
    def refuse(*args):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("proximo.runs.folder.checkpoint.save_file", refuse)
    with pytest.raises(FilesError, match=r"\(Permission denied\)\. Make the folder writable, or choose another folder\.$"):
        proximo.load(runs / "plain").save(tmp_path / "new")


def test_log_probabilities_of_scalar_actions():
    """Those of N actions were sums over all of them: (N,) was broadcast against (N, 1)."""
    assert action_from_env(np.zeros(3, np.float32), spaces.Box(-1, 1, ()), 3).shape == (3, 1)
    assert action_from_env(np.float32(0), spaces.Box(-1, 1, ()), 1).shape == (1, 1)


def test_a_mask_that_allows_nothing_is_refused(runs):
    """The action would be a forbidden one, or none of the space."""
    for name, mask in (("masked", [0, 0, 0]), ("several", [0, 0, 1, 0, 0])):
        model, obs = proximo.load(runs / name), np.zeros((2, 2), np.float32)
        with pytest.raises(UsageError, match="the mask of observation 1 allows no action"):
            model.act(obs, mask=[np.ones(len(mask)), mask])
        with pytest.raises(UsageError, match="the mask of observation 0 allows no action"):
            model.act(obs[0], mask=mask)
        with pytest.raises(UsageError, match="the mask of observation 0 allows no action"):
            model.logprob(obs[0], model.act(obs[0]), mask=mask)
    inside = random_model(spaces.Discrete(2), spaces.Dict(a=spaces.Box(-1, 1, (2,)), action_mask=spaces.MultiBinary(2)))
    ended = {"a": np.zeros(2, np.float32), "action_mask": np.zeros(2, np.int8)}
    assert np.isfinite(inside.value(ended))
    with pytest.raises(UsageError, match="the mask of observation 0 allows no action"):
        inside.act(ended)


@pytest.mark.parametrize("name,space", [
    ("started", spaces.Discrete(2, start=5)), ("several", spaces.MultiDiscrete([3, 2])),
    ("bounded", spaces.Box(np.array([-1, 0], np.float32), np.array([1, 2], np.float32)))])
def test_actions_are_as_the_environment_takes_them(runs, name, space):
    """With `start` added, clipped to the bounds, and in the dtype of the space."""
    model = proximo.load(runs / name)
    for action in model.act(np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)):
        assert space.contains(action if name != "started" else int(action))


KINDS = {"plain": {}, "lstm": {"recurrent": "lstm"}, "normalised": {"norm_obs": True}, "gru": {"recurrent": "gru"},
         "masked": {"env_id": "tests.support.probes:Masked-v0"}, "started": {"env_id": "tests.support.probes:Started-v0"},
         "several": {"env_id": "tests.support.probes:Several-v0"},
         "continuous": {"config": "ppo_continuous_action", "env_id": "Pendulum-v1", "norm_obs": False}}


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_log_probabilities_are_those_of_training(kind, monkeypatch, tmp_path):
    """Against the rollout of the training loop, step by step; the learning rate is too small to change the weights."""
    kept = {}

    def keep(setup, rollout, *rest):
        kept.update({name: None if x is None else x.numpy().copy() for name, x in rollout._asdict().items()})
        return learn(setup, rollout, *rest)

    monkeypatch.setattr("proximo.on_torch.train.learn", keep)
    fields = {"config": "ppo", "num_envs": 3, "num_steps": 32, "num_minibatches": 1, "total_timesteps": 96,
              "learning_rate": 1e-30, "logger": "none"} | KINDS[kind]
    model = proximo.load(proximo.train(run_dir=tmp_path / "run", **fields))
    if model.moments is not None:  # the rollout has normalised observations, by statistics that changed at every step
        model.moments = None
    start = getattr(model.spec.action_space, "start", 0)
    for t in range(32):
        obs, first = kept["obs"][t], kept["first"][t]
        mask = None if kept["mask"] is None else kept["mask"][t]
        flags, state = model._memory(3, first)
        value, logprob = model.actor.evaluate(obs, mask, flags, state, kept["action"][t])
        assert np.allclose(value, kept["value"][t], atol=1e-5) and np.allclose(logprob, kept["logprob"][t], atol=1e-5)
        if model.spec.observation_space is None or isinstance(model.spec.observation_space, spaces.Box):
            assert np.allclose(model.value(obs, first), kept["value"][t], atol=1e-5)
            found = model.logprob(obs, kept["action"][t] + start, first, mask)
            assert np.allclose(found, kept["logprob"][t], atol=1e-5)
        model.choose(obs, first, mask)


def test_one_observation_has_one_value_and_log_probability(runs):
    model, obs = proximo.load(runs / "plain"), np.array([0.1, 0.0, -0.05, 0.2], np.float32)
    assert isinstance(model.value(obs), float) and isinstance(model.logprob(obs, 1), float)
    assert np.exp(model.logprob(obs, 0)) + np.exp(model.logprob(obs, 1)) == pytest.approx(1)
    assert model.predict(obs) == model.act(obs, deterministic=True)
    with pytest.raises(UsageError, match=r"the action has shape \(2,\). 1 observations need \(1,\)"):
        model.logprob(obs, [0, 1])


def test_another_number_of_observations_clears_the_recurrent_state_with_a_warning(runs, capsys):
    obs, model = np.full((2, 4), 0.1, np.float32), proximo.load(runs / "lstm")
    fresh = model.value(obs[0])
    model.act(obs[0])
    assert model.value(obs[0]) != fresh and capsys.readouterr().err == ""
    for _ in range(2):
        model.act(obs)
        model.act(obs[0])
    assert capsys.readouterr().err.count("had 1 observations before these 2: all of them begin an episode") == 1
    plain = proximo.load(runs / "plain")
    plain.act(obs)
    plain.act(obs[0])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("first", "warnings"), [([False, False], 1), ([True, False], 1), ([True, True], 0), (True, 0)])
def test_flags_that_continue_an_episode_without_its_state_are_warned_of(runs, capsys, first, warnings):
    """Rows of another number of observations have no state, whatever `first` says."""
    obs, model = np.full((2, 4), 0.1, np.float32), proximo.load(runs / "lstm")
    model.act(obs[0])
    model.act(obs, first=first)
    assert capsys.readouterr().err.count("had 1 observations before these 2") == warnings


@pytest.mark.parametrize("kind", ["lstm", "normalised"])
def test_a_saved_model_is_the_model_that_it_is_now(runs, kind, tmp_path):
    """Also after its torch module was changed, as fine-tuning does."""
    model = proximo.load(runs / kind)
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    before = model.value(obs)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.mul_(1.5)
    model.save(tmp_path / "mine")
    again = proximo.load(tmp_path / "mine")
    assert np.array_equal(again.value(obs), model.value(obs)) and not np.allclose(again.value(obs), before)
    assert np.array_equal(again.predict(obs), model.predict(obs)) and repr(again) == repr(model)
    for one in (model, again):
        assert (one.moments is None, one.return_moments is None) == (kind == "lstm", kind == "normalised")
    assert repr((again.moments, again.return_moments)) == repr((model.moments, model.return_moments))


def test_a_model_that_cannot_act_is_not_saved_in_place_of_another_one(runs, tmp_path):
    model = proximo.load(runs / "plain")
    model.save(tmp_path / "mine")
    with torch.no_grad():
        next(model.module.parameters())[0] = torch.nan
    with pytest.raises(FilesError, match="contain NaN or infinity"):
        model.save(tmp_path / "mine")
    proximo.load(tmp_path / "mine")


RICH = spaces.Dict(camera=spaces.Box(0, 255, (9, 8, 3), np.uint8), seen=spaces.Box(-1, 1, (2,)), more=spaces.Tuple([
    spaces.Discrete(5, start=1), spaces.MultiBinary(2)]))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("action_space,observation_space,fields", [
    (spaces.Discrete(3), spaces.Box(-1, 1, (4,)), {"recurrent": "lstm", "norm_obs": True}),
    (spaces.Discrete(3, start=2), spaces.Discrete(6), {}), (spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,))),
     RICH, {"norm_obs": True}), (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (4,)), {"distribution": "gsde"})])
def test_a_copy_acts_as_the_model_and_has_a_state_of_its_own(action_space, observation_space, fields, duplicate):
    """In the middle of an episode: the same sampled actions from there on, whatever the model does meanwhile."""
    model = random_model(action_space, observation_space, **fields)
    model.act(observation_space.sample())
    other = duplicate(model)
    seen = [observation_space.sample() for _ in range(6)]
    played = [(model.value(obs), model.act(obs)) for obs in seen]
    copied = [(other.value(obs), other.act(obs)) for obs in seen]
    assert all(one == value and np.array_equal(np.hstack([*_parts(a)]), np.hstack([*_parts(b)]))
               for (one, a), (value, b) in zip(played, copied, strict=True))


def _parts(action):
    return action.values() if isinstance(action, dict) else [action]


def test_saving_replaces_an_earlier_model_and_nothing_else(runs, tmp_path, monkeypatch):
    """A run, a folder of the user's, a file, a link to such a folder and the working directory stay as they are."""
    model = proximo.load(runs / "plain")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    (tmp_path / "empty").mkdir()
    shutil.copytree(runs / "plain", tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("precious", "notes.txt", "link", "run"):
        with pytest.raises(UsageError, match=f"{name} exists and is not a folder of a model alone"):
            model.save(tmp_path / name)
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UsageError, match="is the working directory"):
        model.save(".")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.chdir(tmp_path)
    for name in ("new", "new", "empty"):
        model.save(name)
        assert repr(proximo.load(name)) == repr(model)


@pytest.mark.parametrize(("call", "sentence"), [
    (lambda model, obs: model.act([]), "no observation was given"),
    (lambda model, obs: model.act(()), "no observation was given"),
    (lambda model, obs: model.act(np.zeros((0, 4))), "no observation was given"),
    (lambda model, obs: model.act(torch.zeros(4, requires_grad=True)), "the observation cannot be read"),
    (lambda model, obs: model.act([[0.0, 1.0], [2.0]]), "the observation cannot be read"),
    (lambda model, obs: model.act((obs, {})), r"the observation is a tuple of 2 with an info, as reset\(\) or step\(\) of an environment "),
    (lambda model, obs: model.act((obs, 1.0, False, False, {})), r"a tuple of 5 with an info, as reset\(\) or step\(\) "),
    (lambda model, obs: model.act(np.stack([obs, obs]), first=[True]), "2 observations need"),
    (lambda model, obs: model.act(obs, first="x"), r"first='x' is not allowed\. Give True where an episode begins"),
    (lambda model, obs: model.act(np.stack([obs, obs]), first=np.array([0, 2])), r"first=array\(\[0, 2\]\) is not allowed"),
    (lambda model, obs: model.act(obs, first=float("nan")), "first=nan is not allowed"),
    (lambda model, obs: model.act(obs, first=[[True], []]), r"first cannot be read \(ValueError: .*\)\. Give a number, an array"),
    (lambda model, obs: model.act(obs, mask=torch.ones(2, requires_grad=True)), r"mask cannot be read \(RuntimeError: .*grad"),
    (lambda model, obs: model.logprob(obs, torch.ones((), requires_grad=True)), "the action cannot be read"),
    (lambda model, obs: model.logprob(obs, [[0], [0, 1]]), "the action cannot be read"),
    (lambda model, obs: model.act(obs, deterministic="no"), r"deterministic='no' is not allowed\. Use True or False\.$"),
    (lambda model, obs: model.predict(obs, deterministic=np.ones(2)), r"deterministic=array\(\[1\., 1\.\]\) is not allowed"),
    (lambda model, obs: model.predict(np.stack([obs] * 3), None, np.ones(3, bool)),
     r"mask has 3 entries\. .* Where episodes begin is another argument: first=\.\.\.$"),
    (lambda model, obs: model.act(obs, mask=[True] * 3), "mask has 3 entries.*component of the action.$"),
    (lambda model, obs: model.logprob(obs, 9), r"the action 9 is not in Discrete\(2\)"),
    (lambda model, obs: model.logprob(np.stack([obs, obs]), [0, -1]), "the action -1 is not in"),
    (lambda model, obs: model.logprob(obs, None), "the action"),
    (lambda model, obs: model.logprob(obs, 0.5), "the action has dtype float64")])
def test_arguments_that_cannot_be_right(call, sentence, runs):
    with pytest.raises(UsageError, match=sentence):
        call(proximo.load(runs / "plain"), np.zeros(4, np.float32))


@pytest.mark.parametrize("action", [1, {"a": 1}, {"a": 1, "b": (np.zeros(2),)}, {"a": 1, "b": (np.zeros(2), 1, 1)}])
def test_an_action_of_another_structure_is_told(action):
    """All of `a` and `b`, which has two parts."""
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3))))
    with pytest.raises(UsageError, match="does not have the parts of Dict.*Give actions as `act` returns them"):
        random_model(space, spaces.Box(-1, 1, (2,))).logprob(np.zeros(2, np.float32), action)


def test_a_list_without_observations_of_several_parts():
    model = random_model(spaces.Discrete(2), spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3)))
    for nothing in ([], {"a": np.zeros((0, 2)), "b": np.zeros(0, int)}):
        with pytest.raises(UsageError, match="no observation was given"):
            model.act(nothing)


def test_actions_of_several_parts_have_the_structure_of_their_space(runs):
    """One action, and a list of N; masks cover the discrete part."""
    model, mask = proximo.load(runs / "hybrid"), np.array([False, True, True])
    one = model.act(np.zeros(2, np.float32), mask=mask)
    assert Hybrid.action_space.contains(one) and one["choice"] > 0
    several = model.act(np.zeros((3, 2), np.float32), mask=np.stack([mask] * 3), deterministic=True)
    assert len(several) == 3 and all(Hybrid.action_space.contains(action) for action in several)
    found = model.logprob(np.zeros((3, 2), np.float32), several)
    assert np.allclose(found, model.logprob(np.zeros(2, np.float32), several[0])) and np.isfinite(found).all()
    rows = action_from_env(several, Hybrid.action_space, 3)
    assert rows.shape == (3, 5) and rows[:, 0].tolist() == [action["choice"] for action in several]


@pytest.mark.parametrize("obs", [np.zeros(3), np.zeros((2, 5)), np.zeros((1, 1, 4)), np.float32(1)])
def test_an_observation_of_another_shape_is_refused(runs, obs):
    with pytest.raises(UsageError, match=r"the observation has shape .* This model takes \(4,\) or \(N, 4\)"):
        proximo.load(runs / "plain").act(obs)


def test_the_settings_that_make_observations_are_named(runs):
    """Those of the environment itself have another shape, and are refused."""
    model = proximo.load(runs / "plain")
    model.cfg = replace(model.cfg, grayscale=True, resize=36)
    with pytest.raises(UsageError, match=r"has shape \(2,\). This model takes .*Observations are made with grayscale=True, resize=36\.$"):
        model.act([0.0, 1.0])


def test_a_run_that_has_lost_its_model_is_told_how_to_get_it_back(runs, tmp_path):
    """As "a run that has reached a checkpoint", which it is."""
    folder = tmp_path / "run"
    shutil.copytree(runs / "plain", folder)
    shutil.rmtree(folder / "model")
    for path in (folder, next(folder.glob("checkpoints/*"))):
        with pytest.raises(FilesError, match="contains no model. It has checkpoints: a resume that trains longer writes"):
            proximo.load(path)
    proximo.resume(folder, total_timesteps=352)
    assert proximo.load(folder).act(np.zeros(4)) in (0, 1)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FilesError, match="contains no model"):
        proximo.load(tmp_path)
    save_tree(tmp_path / "model", {"iteration": 3})
    with pytest.raises(FilesError, match="variant is missing"):
        proximo.load(tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "tree.json", "tensors.safetensors"])
def test_a_damaged_model_names_what_to_do(name, runs, tmp_path):
    run = shutil.copytree(runs / "plain", tmp_path / "run")
    os.truncate(run / "model" / name, 20)
    again = rf" A resume of {re.escape(str(run))} that trains longer writes the model again\.$"
    with pytest.raises(FilesError, match=rf"^[^.]*{re.escape(str(run))}.*[^.]\. Restore it from a copy\.{again}"):
        proximo.load(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(FilesError, match=r"[^.]\. Restore it from a copy\.$"):
        proximo.load(run)


def test_a_damaged_model_or_one_of_another_network_is_refused(runs, tmp_path):
    tree = load_tree(runs / "plain" / "model")
    name = next(iter(tree["weights"]))
    save_tree(tmp_path / "model", tree | {"weights": {**tree["weights"], name: tree["weights"][name][:2]}})
    with pytest.raises(FilesError, match=f"the weights belong to another network: {name} is"):
        proximo.load(tmp_path)
    path = tmp_path / "model" / "tensors.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(FilesError, match="is damaged"):
        proximo.load(tmp_path)


@pytest.mark.parametrize("name", ["weights", "obs_moments"])
def test_a_model_with_nan_is_refused(runs, tmp_path, name):
    """It would act, and an evaluation would report its returns."""
    tree = load_tree(runs / "normalised" / "model")
    array = next(iter(tree[name]))
    bad = tree[name][array].copy()
    bad.flat[0] = np.nan
    save_tree(tmp_path / "model", tree | {name: tree[name] | {array: bad}})
    with pytest.raises(FilesError, match=f"{array} of the model contain NaN or infinity"):
        proximo.load(tmp_path)


def test_repr_shows_variant_environment_and_shapes(runs):
    assert repr(proximo.load(runs / "plain")) == (
        "Model(variant='ppo', env_id='CartPole-v1', obs_shape=(4,), obs_dtype=float32, action_space=Discrete(2))")


class Subclass(spaces.Discrete):
    """A suite may have one."""


def test_a_subclass_of_a_space_is_saved_as_its_base():
    assert space_from_json(space_to_json(Subclass(3))) == spaces.Discrete(3)


@pytest.mark.parametrize("space", [
    spaces.Discrete(3), spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4),
    spaces.Box(-2.0, np.array([1, np.inf], np.float32), (2,), np.float32), spaces.Box(-1, 1, (2, 3), np.float64)])
def test_action_spaces_travel_as_json(space):
    text = json.dumps(space_to_json(space), allow_nan=False)  # a parser without infinite numbers reads it
    again = space_from_json(json.loads(text))
    assert again == space
    assert space_from_json(json.loads(text.replace('"inf"', "Infinity"))) == space  # as earlier versions wrote it
    raw = np.zeros((2, *space.shape)) if isinstance(space, spaces.Box) else np.zeros((2, *space.shape), int)
    assert space.contains(action_for_env(raw, again)[0]) or isinstance(space, spaces.Discrete)


def test_evaluation_plays_as_many_whole_games_in_every_row(runs):
    """The same number in each row, so that short episodes are not favoured; a second evaluation gives the same."""
    model = proximo.load(runs / "plain")
    found = [evaluate(model, make_gym(Config(), [1, 2, 3]), 7, False, seed=5) for _ in range(2)]
    assert found[0] == found[1] and len(found[0].returns) == 7
    assert found[0].returns == [float(length) for length in found[0].lengths]  # CartPole: 1 a step
    assert found[0] != evaluate(model, make_gym(Config(), [1, 2, 3]), 7, False, seed=6)


def test_eval_prints_and_writes(runs, tmp_path, capsys):
    assert main(["eval", str(runs / "normalised"), "--episodes", "5", "--json", str(tmp_path / "eval.json")]) == 0
    assert "CartPole-v1: " in (said := capsys.readouterr().out) and "over 5 episodes (deterministic actions" in said
    assert '"episodes": 5' in (tmp_path / "eval.json").read_text()
    assert main(["eval", str(runs / "plain" / "model"), "--episodes", "3", "--no-deterministic"]) == 0
    assert "sampled actions" in capsys.readouterr().out


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_newest_checkpoint_has_the_weights_of_the_model(framework, tmp_path):
    """Against the model that was saved in the same iteration; `proximo rate` plays with such weights."""
    assert train(tmp_path / "run", "--framework", framework, "--norm-obs") == 0
    times, models = zip(*models_over_time(tmp_path / "run"), strict=True)
    newest = read_model(tmp_path / "run")
    assert len(times) == 2 and times[-1] == 320
    assert all(np.array_equal(models[-1]["weights"][name], x) for name, x in newest["weights"].items())
    assert any(not np.array_equal(models[0]["weights"][name], x) for name, x in newest["weights"].items())
    assert all(np.array_equal(models[-1]["obs_moments"][name], x) for name, x in newest["obs_moments"].items())


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_checkpoint_is_loaded_as_the_model_of_its_iteration(framework, tmp_path, capsys):
    """Against the model that a run has which was not trained beyond it, with its statistics of normalisation."""
    for name, steps in {"short": 160, "long": 320}.items():
        assert train(tmp_path / name, "--framework", framework, "--norm-obs", "--norm-reward", "--no-anneal-lr",
                     "--keep-checkpoints", "0", "--checkpoint-every", "5", "--total-timesteps", steps) == 0
    first, last = sorted((tmp_path / "long" / "checkpoints").iterdir())
    seen = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    models = [proximo.load(path) for path in (tmp_path / "short", first, last, tmp_path / "long")]
    values, counts = [model.value(seen) for model in models], [float(model.return_moments.count) for model in models]
    assert np.array_equal(values[0], values[1]) and np.array_equal(values[2], values[3])
    assert counts[0] == counts[1] < counts[2] == counts[3]
    assert not np.array_equal(values[1], values[2])
    assert proximo.evaluate(first, 2) == proximo.evaluate(tmp_path / "short", 2) and main(["eval", str(first)]) == 0
    assert main(["card", str(first)]) == 2 and "is a checkpoint, which is not shared" in capsys.readouterr().err
    (first / "tensors.safetensors").write_bytes(b"")
    with pytest.raises(FilesError, match="tensors.safetensors"):
        proximo.load(first)


def test_autocast_of_a_program_does_not_change_a_model(runs):
    """Values would be bfloat16, which numpy does not have, and actions others."""
    model, obs = proximo.load(runs / "plain"), np.zeros(4, np.float32)
    value, action = model.value(obs), model.act(obs, deterministic=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.value(obs) == value and model.act(obs, deterministic=True) == action


def test_a_checkpoint_that_is_left_out_is_told_in_whole_sentences(tmp_path, caplog):
    """A message that is continued has one full stop."""
    assert train(tmp_path / "run") == 0
    (next((tmp_path / "run" / "checkpoints").iterdir()) / "manifest.json").write_text("{")
    assert len(models_over_time(tmp_path / "run")) == 1
    assert "Restore it from a copy. This checkpoint is left out." in caplog.text


def test_a_model_of_another_user_is_told_in_whole_sentences(tmp_path, monkeypatch):
    def refuse(folder, kind):
        raise FilesError("tree.json cannot be read (Permission denied).") from PermissionError()

    assert train(tmp_path / "run") == 0
    monkeypatch.setattr("proximo.models.read_folder.load_tree", refuse)
    with pytest.raises(FilesError, match=r"\(Permission denied\)\. Its owner can allow it: chmod"):
        read_model(tmp_path / "run")


def test_an_agent_that_was_trained_with_masks_says_that_it_gets_none(tmp_path, caplog):
    """Also after a resume and where it was saved again; an evaluation passes masks itself."""
    run = tmp_path / "run"
    assert train(run, "--env-id", "tests.support.probes:Masked-v0") == 0
    assert main(["resume", str(run), "--total-timesteps", "352", "--allow-import", "tests"]) == 0
    proximo.load(run).save(tmp_path / "saved")
    proximo.evaluate(run, 2, allow_import="tests.support.probes")
    assert "trained with action masks" not in caplog.text
    for folder in (run, tmp_path / "saved", run / "checkpoints" / "00000011"):
        warn_once.cache_clear()
        caplog.clear()
        model = proximo.load(folder)
        obs = np.zeros(model.spec.obs_shape)
        model.act(obs, mask=np.ones(3))
        model.value(obs)
        assert "trained with action masks" not in caplog.text
        model.act(obs)
        model.logprob(obs, 1)
        assert caplog.text.count("trained with action masks") == 1


def test_an_agent_that_was_trained_without_masks_needs_none(runs, caplog):
    warn_once.cache_clear()
    model = proximo.load(runs / "plain")
    model.act(np.zeros(4))
    assert "masks" not in caplog.text and not model.spec.masked


@pytest.mark.parametrize("fields", [{}, {"overlap": True}, {"framework": "jax"}])
def test_a_model_of_an_iteration_knows_whether_there_were_masks(fields):
    if "framework" in fields:
        pytest.importorskip("jax")
    for env_id, masked in (("tests.support.probes:Masked-v0", True), ("CartPole-v1", False)):
        it = next(iter(proximo.iterations("ppo", env_id=env_id, num_steps=16, num_minibatches=1, total_timesteps=256, **fields)))
        assert it.spec.masked == it.model().spec.masked == masked
