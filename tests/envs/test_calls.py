"""Methods of environments that a program calls between two iterations, in one process and in workers."""

import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.config import Config
from proximo.envs.calls import call_envs
from proximo.envs.gym import make_gym
from proximo.errors import EnvError, UsageError, warn_once
from tests.support.workers import running_workers

LAYOUTS = {"one process": {}, "workers": {"env_workers": 2}, "groups": {"env_workers": 2, "env_groups": 2},
           "restarted": {"env_workers": 2, "restart_envs": 1}}
SMALL = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1, "env_workers": 0}


class Level(gym.Env):
    """Its reward is its level, which a method changes."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    level = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(2, self.t / 10, np.float32), self.level, self.t == 5, False, {}

    def lock(self, value=None):
        return threading.Lock()

    def set_level(self, level):
        self.level = float(level)
        return self.level + 1


def wrapped_level():
    return gym.wrappers.TimeLimit(Level(), 4)


@pytest.fixture(params=LAYOUTS)
def carts(request):
    envs = make_gym(Config(env_id="CartPole-v1", **LAYOUTS[request.param]), [1, 2, 3, 4])
    envs.reset()
    yield envs
    envs.close()


def test_every_environment_is_called(carts):
    """The attribute is set below the wrappers of gym.make, in order of the environments, and steps go on."""
    assert call_envs(carts, "set_wrapper_attr", "length", 0.75) == [True] * 4
    assert call_envs(carts, "get_wrapper_attr", "length") == [0.75] * 4
    carts.step(np.zeros(4, np.int64))
    assert call_envs(carts, "get_wrapper_attr", "length") == [0.75] * 4


def test_a_misspelled_attribute(carts):
    """No environment has it, so that nothing would read it. With force it is made."""
    with pytest.raises(UsageError, match=r"call_envs\('set_wrapper_attr', 'lenght'\): <CartPoleEnv<CartPole-v1>> and its "
                                         "wrappers have no attribute lenght. Did you mean length"):
        call_envs(carts, "set_wrapper_attr", "lenght", 0.75)
    with pytest.raises(UsageError, match="have no attribute zzz. Name an attribute that exists"):
        call_envs(carts, "set_wrapper_attr", name="zzz", value=1)
    assert call_envs(carts, "get_wrapper_attr", "length") == [0.5] * 4
    assert call_envs(carts, "set_wrapper_attr", "lenght", 0.75, force=True) == [True] * 4
    assert call_envs(carts, "get_wrapper_attr", "lenght") == [0.75] * 4


@pytest.mark.parametrize(("name", "arguments", "kind", "sentence"), [
    ("fly", (), UsageError, r"call_envs\('fly'\): <CartPoleEnv<CartPole-v1>> has no method fly. To set an attribute"),
    ("get_attr", ("length",), UsageError, 'to read one, "get_wrapper_attr" with its name'),
    ("metadata", (), UsageError, "has no method metadata"),
    ("reset", (), UsageError, "training plays the episodes"),
    ("set_wrapper_attr", (), EnvError, r"environment 0 \(CartPole-v1\).*set_wrapper_attr\(\) raised TypeError")])
def test_what_cannot_be_called(carts, name, arguments, kind, sentence, capfd):
    """One sentence says so, Gymnasium prints nothing, and the environments can be stepped afterwards."""
    with pytest.raises(kind, match=sentence):
        call_envs(carts, name, *arguments)
    carts.step(np.zeros(4, np.int64))
    assert "ERROR" not in capfd.readouterr().err


def test_keyword_arguments_may_have_any_name(carts):
    """Also those that functions on the way have themselves."""
    assert call_envs(carts, "set_wrapper_attr", name="length", value=0.5) == [True] * 4
    assert call_envs(carts, "get_wrapper_attr", name="length") == [0.5] * 4
    with pytest.raises(EnvError, match="set_wrapper_attr.. raised TypeError"):
        call_envs(carts, "set_wrapper_attr", fault=1, envs=2, it=3)


def test_workers_are_kept(carts):
    """A method that fails does not end them."""
    before = running_workers(carts) if hasattr(carts, "bundles") else []
    with pytest.raises(EnvError):
        call_envs(carts, "set_wrapper_attr")
    assert (running_workers(carts) if before else []) == before


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_callback_changes_the_task(tmp_path, framework, workers):
    """Rewards are those of the level that the callback before has set: 4 steps of 0, then of 3."""
    def raise_level(it):
        seen.append(it.finished.ret.tolist())
        answers.append(it.call_envs("set_level", 3))

    seen, answers = [], []
    proximo.train(env=wrapped_level, callbacks=[raise_level], run_dir=str(tmp_path / "run"), framework=framework,
                  total_timesteps=64, **SMALL | {"env_workers": workers})
    assert seen == [[0.0] * 8, [12.0] * 8]
    assert answers == [[4.0] * 4] * 2


def test_resume_continues_with_the_attribute(tmp_path):
    """What a method has changed is part of a checkpoint: a resume without the callback has the same returns."""
    def raise_level(it):
        it.call_envs("set_level", 3)
        if it.iteration == 2:
            raise proximo.StopTraining

    def look(it):
        seen.extend(it.finished.ret.tolist())

    seen = []
    run = proximo.train(env=wrapped_level, callbacks=[raise_level], run_dir=str(tmp_path / "run"), total_timesteps=96,
                        **SMALL)
    proximo.resume(run, env=wrapped_level, callbacks=[look])
    assert seen == [12.0] * 8


def test_it_is_refused_later():
    """Environments have been stepped on when the next iteration has begun, and are closed at the end."""
    its = list(proximo.iterations(env=wrapped_level, total_timesteps=64, **SMALL))
    with pytest.raises(UsageError, match=r"call_envs\(\) of iteration 1 .*had begun"):
        its[0].call_envs("set_level", 3)
    with pytest.raises(UsageError, match=r"call_envs\(\) of iteration 2 .*closes the environments"):
        its[1].call_envs("set_level", 3)


@pytest.mark.parametrize(("fields", "sentence"), [
    ({"overlap": True}, "not available with overlap=True"),
    ({"framework": "jax", "engine": "jax"}, "no methods of their own. Single environments of Gymnasium have them .engine=gym., .*train in stages .init_from")])
def test_where_it_is_not_available(fields, sentence):
    """Environments that are played meanwhile, or that are pure functions."""
    with pytest.raises(UsageError, match=sentence):
        for it in proximo.iterations("ppo", env_id="CartPole-v1", total_timesteps=64, **SMALL | fields):
            it.call_envs("set_wrapper_attr", "length", 1.0)


def test_own_vector_environments_may_have_call():
    """A VecEnv of a program answers itself."""
    class Answering:
        def call(self, name, *arguments):
            return (name, *arguments)

    assert call_envs(Answering(), "light", 1) == ["light", 1]


class Opaque(Level):
    """Its state cannot be saved."""

    def __init__(self):
        self.held = threading.Lock()


def test_what_a_call_changes_is_lost_where_environments_are_made_again(caplog):
    """They are made again after every second iteration, which is told."""
    warn_once.cache_clear()
    returns = []
    for it in proximo.iterations(env=lambda: gym.wrappers.TimeLimit(Opaque(), 4), total_timesteps=128, checkpoint_every=2,
                                 **SMALL):
        returns.append(it.finished.ret[0])
        it.call_envs("set_level", level=3)
    assert returns == [0, 12, 0, 12] and "They are made again every checkpoint_every iterations" in caplog.text


def test_what_cannot_be_sent_to_workers_is_told_and_they_live_on():
    """An argument, and a result; in one process both are possible."""
    for workers in (0, 2):
        its = proximo.iterations(env=wrapped_level, total_timesteps=64, **SMALL | {"env_workers": workers})
        it = next(its)
        if workers:
            with pytest.raises(UsageError, match=r"call_envs\('lock'\): the result cannot be sent between processes"):
                it.call_envs("lock")
            with pytest.raises(UsageError, match=r"call_envs\('lock'\): an argument cannot be sent between processes"):
                it.call_envs("lock", value=threading.Lock())
        else:
            assert len(it.call_envs("lock", value=threading.Lock())) == 4
        assert it.call_envs("set_level", level=3) == [4.0] * 4
        next(its)
        its.close()


@pytest.mark.parametrize(("name", "answer", "kind", "sentence"), [
    (3, [], UsageError, "give the name of a method"), ("light", 5, EnvError, "returned 5; it must return a list")])
def test_wrong_names_and_answers(name, answer, kind, sentence):
    """A name that is no text, and a class of make_envs that returns a number."""
    class Answering:
        def call(self, name, *arguments):
            return answer

    with pytest.raises(kind, match=sentence):
        call_envs(Answering(), name)
