"""The state of callbacks in checkpoints."""

from types import SimpleNamespace
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
import torch

import proximo
from proximo.runs.folder.callback_state import load_states, packed_states
from proximo.runs.folder.checkpoint import checkpoints, load_tree, save_tree
from tests.support.runs import same_logs, same_weights

FIELDS = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "update_epochs": 1, "hidden_sizes": (8,), "total_timesteps": 320,
          "checkpoint_every": 4, "logger": "none"}


class Curriculum:
    """Counts successes, and makes the pole longer with them."""

    def __init__(self):
        self.length, self.successes = 0.5, 0

    def __call__(self, it):
        self.successes += int(np.sum(it.finished.ret > 15))
        self.length = 0.5 + 0.1 * (self.successes // 2)
        it.call_envs("set_wrapper_attr", "length", self.length)
        return {"length": self.length}

    def state(self):
        return {"successes": self.successes}

    def load(self, state):
        self.successes = state["successes"]


class Other(Curriculum):
    """Has another name."""


class Held:
    """Holds any state."""

    def __init__(self, value=None):
        self.value = value

    def __call__(self, it):
        pass

    def state(self):
        return self.value

    def load(self, state):
        self.value = state


def fail_at_7(it):
    if it.iteration == 7:
        raise ZeroDivisionError


@pytest.mark.parametrize("framework", [{}, {"framework": "jax", "engine": "gym"}], ids=["torch", "jax"])
@pytest.mark.parametrize("copies", [False, True], ids=["checkpoint", "copy"])
def test_a_killed_run_continues_as_if_it_was_not(copies, framework, tmp_path, monkeypatch):
    """From the checkpoint of iteration 4, or from the copy of iteration 6, which was saved after the fault."""
    monkeypatch.setattr("proximo.runs.interrupts.recent.LEAST_SECONDS", 0.0 if copies else 1e9)
    monkeypatch.setattr("proximo.runs.interrupts.recent.SHARE", 1e9)
    whole = proximo.train("ppo", run_dir=tmp_path / "whole", callbacks=[Curriculum()], **framework, **FIELDS)
    with pytest.raises(ZeroDivisionError):  # the curriculum was called in iteration 7
        proximo.train("ppo", run_dir=tmp_path / "run", callbacks=[Curriculum(), fail_at_7], **framework, **FIELDS)
    assert int(checkpoints(tmp_path / "run")[-1].name) == (6 if copies else 4)
    proximo.resume(tmp_path / "run", callbacks=[Curriculum()])
    assert same_weights(tmp_path / "run", whole) and same_logs(tmp_path / "run", whole)


@pytest.mark.parametrize("make", [lambda: proximo.callbacks.stop_without_improvement(6, episodes=2),
                                  lambda: proximo.callbacks.stop_at(5, episodes=55)], ids=["improvement", "return"])
def test_a_resumed_run_is_ended_in_the_same_iteration(make, tmp_path):
    """Episodes have 5 steps, so the best mean is that of the first iteration, and iteration 10 has the 55th episode."""
    def env():
        return gym.make("CartPole-v1", max_episode_steps=5)

    fields = FIELDS | {"total_timesteps": 3200}
    whole = proximo.train("ppo", env=env, run_dir=tmp_path / "whole", callbacks=[make()], **fields)
    ended = int(checkpoints(whole)[-1].name)
    assert 5 < ended < 20
    with pytest.raises(ZeroDivisionError):
        proximo.train("ppo", env=env, run_dir=tmp_path / "run", **fields, callbacks=[
            make(), lambda it: 1 / 0 if it.iteration == 6 else None])
    proximo.resume(tmp_path / "run", env=env, callbacks=[make()])
    assert int(checkpoints(tmp_path / "run")[-1].name) == ended and same_weights(tmp_path / "run", whole)


def test_the_time_of_all_processes_counts():
    """Also where the object is the one that counted before."""
    it = SimpleNamespace(iteration=1)
    before = proximo.callbacks.stop_after(3600)
    now = proximo.callbacks.stop_after(3600)
    packed = packed_states([before])
    assert 0 <= packed[0]["state"] < 60
    packed[0]["state"] = 3500.0
    load_states([now], {"callbacks": packed})
    now(it)
    assert 3500 <= now.state() < 3560
    load_states([now], {"callbacks": packed})
    assert 3500 <= now.state() < 3560
    packed[0]["state"] = 3600.0
    load_states([now], {"callbacks": packed})
    with pytest.raises(proximo.StopTraining, match="3600 seconds have passed"):
        now(it)


@pytest.mark.parametrize("value", [None, 3, -float("inf"), "text", (1, [2.5, (True,)]), {"a": {3: np.float32(0.1)}, (1, 2): []},
                                   {"__array__": "x"}, np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3).T], ids=repr)
def test_a_state_comes_back_as_it_was(value, tmp_path):
    """With its types, and through the files of a checkpoint."""
    save_tree(tmp_path / "tree", {"callbacks": packed_states([Held(value)])})
    now = Held()
    load_states([now], load_tree(tmp_path / "tree"))
    assert repr(now.value) == repr(value) and type(now.value) is type(value)


def test_a_state_is_a_copy_and_its_parts_may_be_the_same_object():
    numbers = [1, 2]
    packed = packed_states([Held({"a": numbers, "b": numbers})])
    numbers.append(3)
    now = Held()
    load_states([now], {"callbacks": packed})
    assert now.value == {"a": [1, 2], "b": [1, 2]}


def test_a_random_generator_continues():
    generator, now = np.random.default_rng(3), Held()
    load_states([now], {"callbacks": packed_states([Held({"random": generator})])})
    assert now.value["random"].random() == generator.random()


def test_a_network_and_its_optimizer_continue(tmp_path):
    """Their state_dict() is a state: through a file, the third step is that of two steps without a break."""
    def made():
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        torch.nn.init.constant_(net[0].weight, 0.5)
        torch.nn.init.zeros_(net[0].bias)
        return net, torch.optim.Adam(net.parameters(), lr=0.1, amsgrad=True)

    def learn(net, adam, seed):
        loss = net(torch.from_numpy(np.random.default_rng(seed).normal(size=(8, 3)).astype(np.float32))).square().sum(0)[0]
        adam.zero_grad()
        (loss + net[0].weight.square().sum()).backward()
        adam.step()

    (net, adam), (now, its_adam), held = made(), made(), Held()
    learn(net, adam, 1)
    save_tree(tmp_path / "tree", {"callbacks": packed_states([Held({"net": net.state_dict(), "adam": adam.state_dict()})])})
    load_states([held], load_tree(tmp_path / "tree"))
    now.load_state_dict(held.value["net"])
    its_adam.load_state_dict(held.value["adam"])
    learn(net, adam, 2)
    learn(now, its_adam, 2)
    assert all(torch.equal(x, y) for x, y in zip(net.state_dict().values(), now.state_dict().values(), strict=True))
    assert repr(adam.state_dict()) == repr(its_adam.state_dict())


@pytest.mark.parametrize("tensor", [torch.tensor(3), torch.eye(2)[:, :1] > 0, torch.Generator().get_state(), torch.ones(2, 3).T,
                                    torch.nn.Parameter(torch.ones(1))], ids=["0d", "bool", "uint8", "transposed", "parameter"])
def test_a_tensor_is_a_state(tensor, tmp_path):
    """It is a copy."""
    packed, before = packed_states([Held([tensor])]), tensor.detach().clone()
    tensor.detach().zero_()
    save_tree(tmp_path / "tree", {"callbacks": packed})
    now = Held()
    load_states([now], load_tree(tmp_path / "tree"))
    assert torch.equal(now.value[0], before) and now.value[0].dtype == before.dtype


def contains_itself():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [object(), {"a": {1, 2}}, [gym.spaces.Discrete(2)], contains_itself(), torch.ones(2).bfloat16()],
                         ids=["o", "set", "space", "itself", "bfloat16"])
def test_a_state_that_cannot_be_saved_is_told_in_the_first_iteration(value, tmp_path):
    """The sentence names the callback. No checkpoint is due yet."""
    with pytest.raises(proximo.UsageError, match=r"state\(\) of Held returned something that cannot be saved: a .*Return numbers"):
        proximo.train("ppo", run_dir=tmp_path / "run", callbacks=[Held(value)], **FIELDS)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_state_without_load_is_refused(tmp_path):
    """Its state would be lost at a resume without a word. An attribute of that name that is no method is none."""
    class Half:
        def __call__(self, it):
            pass

        def state(self):
            return 1

    class Word(Half):
        state = "begun"

    with pytest.raises(proximo.UsageError, match=r"callbacks has Half, which has state\(\) and no load\(state\)"):
        proximo.train("ppo", run_dir=tmp_path / "run", callbacks=[Half()], **FIELDS)
    assert packed_states([Word(), print, lambda it: None, Mock()]) == []


@pytest.mark.parametrize(("given", "values", "sentence"), [
    ([], [], "the callbacks Curriculum, Held, and this resume was given none of them. The state of Curriculum, Held is not used. To"),
    ([Other(), Held()], [0, 3], "was given Other, Held. The state of Curriculum is not used. Other begins without a state. To"),
    ([Curriculum(), Held(), Held()], [7, None, None], "The state of Held is not used. Held begins without a state. To continue exactly"),
    ([Held(), print, Curriculum()], [3, None, 7], "")])
def test_other_callbacks_at_a_resume_are_told(given, values, sentence, caplog):
    """Those that are the same continue; functions without a state may come and go."""
    before = Curriculum()
    before.successes = 7
    load_states(given, {"callbacks": packed_states([before, Held(3)])})
    assert sentence in caplog.text and bool(caplog.text) == bool(sentence)
    assert [getattr(one, "successes", getattr(one, "value", None)) for one in given] == values


def test_a_checkpoint_without_states_is_continued(caplog):
    """It is of an earlier version, or the callback is new."""
    now = Curriculum()
    load_states([now], {})
    load_states([now], None)
    assert now.successes == 0 and "WARNING" not in caplog.text
    assert caplog.text.count("The checkpoint has no state of the callbacks Curriculum.") == 1


def test_a_state_that_is_not_accepted_is_told_before_training(tmp_path):
    """One sentence names the callback, the cause and the line; the run stays as it is."""
    class Strict(Held):
        def load(self, state):
            raise KeyError("level")

    run = proximo.train("ppo", run_dir=tmp_path / "run", callbacks=[Strict(3)], **FIELDS)
    before = sorted(run.rglob("*"))
    with pytest.raises(proximo.UsageError, match=r"load\(\) of Strict did not accept .*KeyError: 'level' \(.*line \d+\)"):
        proximo.resume(run, total_timesteps=640, callbacks=[Strict(3)])
    assert sorted(run.rglob("*")) == before
    proximo.resume(run, total_timesteps=352, callbacks=[Held(3)])


def test_the_state_is_that_of_the_iteration(tmp_path):
    """Of each checkpoint."""
    class Count(Held):
        def __call__(self, it):
            self.value = it.iteration

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SECONDS", 0.0)
        run = proximo.train("ppo", run_dir=tmp_path / "run", callbacks=[Count()], **FIELDS | {"keep_checkpoints": 0})
    found = [(int(path.name), load_tree(path)["callbacks"]) for path in checkpoints(run)]
    assert found == [(number, [{"name": "Count", "state": number}]) for number in (4, 8, 10)]


def test_a_method_of_an_object_with_state_is_told(caplog):
    class Tracker(Held):
        def note(self, it):
            """Nothing."""

    load_states([Tracker(1)], None)
    assert "WARNING" not in caplog.text
    load_states([Tracker(1).note], None)
    assert "callbacks has note(), a method of a Tracker, whose state() and load() are not used." in caplog.text
