"""set_up of JAX: functions of the Learner that another update replaces, with environments in every place."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.catalog import parts_of
from proximo.config import Config
from proximo.envs.pure import PureVec
from proximo.errors import UsageError
from proximo.on_jax.learner import compute_gradient
from proximo.on_jax.pure_training import make_training
from proximo.on_jax.setup import set_up
from proximo.on_jax.train import train
from proximo.protocols import Episode, Step

_, make_envs, make_agent, *_ = parts_of("ppo", "jax")
SMALL = Config(framework="jax", engine="jax", num_envs=4, num_steps=16, total_timesteps=192, num_minibatches=2, update_epochs=2,
               hidden_sizes=(8,), anneal_lr="none")
PLACES = {"inside": SMALL, "host": replace(SMALL, engine="gym"), "memory": replace(SMALL, recurrent="gru", memory_size=8)}


def changing(**functions):
    """Return a set_up whose Learner has other functions."""
    def with_functions(*arguments):
        return set_up(*arguments, change_learner=lambda learner: learner._replace(**functions))

    return with_functions


def weights(cfg, **arguments):
    """The weights after every iteration, and the statistics of the last one."""
    kept = [(it.weights(), it.stats) for it in train(cfg, make_envs, make_agent, **arguments)]
    return [one for one, _ in kept], kept[-1][1]


def add_one(adam, gradient, learning_rate, eps, max_grad_norm, count):
    """In the place of a step of Adam: 1 is added to every weight."""
    return adam._replace(weights=jax.tree.map(lambda w: w + 1, adam.weights), step=adam.step + 1), jnp.float32(7.0)


@pytest.mark.parametrize("cfg", PLACES.values(), ids=PLACES)
def test_a_change_that_changes_nothing_gives_the_same_weights(cfg):
    (first, *_, last), _ = weights(cfg)
    (first_again, *_, last_again), _ = weights(cfg, set_up=changing())
    assert all(np.array_equal(x, first_again[name]) and np.array_equal(last[name], last_again[name]) for name, x in first.items())


@pytest.mark.parametrize("cfg", PLACES.values(), ids=PLACES)
def test_apply_is_called_once_for_each_minibatch(cfg):
    """Each of the 2 * 2 calls of an iteration adds 1, and the norm that it returns is logged."""
    (first, second, third), stats = weights(cfg, set_up=changing(apply=add_one))
    for name, x in first.items():
        np.testing.assert_allclose(second[name], x + 4, atol=1e-5)
        np.testing.assert_allclose(third[name], x + 8, atol=1e-5)
    assert stats["losses/grad_norm"] == 7


def test_estimate_gives_the_advantages_and_the_targets_of_the_values():
    """With advantages of 0, the policy has no gradient, and the target of the value function is the value itself."""
    cfg = replace(SMALL, ent_coef=0.0, norm_adv="none", update_epochs=1, num_minibatches=1)
    start = make_training(cfg, make_envs, make_agent).init(jax.random.key(cfg.seed)).adam.weights
    kept, stats = weights(cfg, set_up=changing(estimate=lambda rollout, cfg: jnp.zeros_like(rollout.value)))
    for name, x in start.items():
        np.testing.assert_allclose(kept[-1][name], x, atol=1e-6)
    assert stats["losses/value_loss"] == pytest.approx(0, abs=1e-10) and stats["losses/policy_loss"] == 0
    assert np.abs(weights(cfg)[0][-1]["critic.layers.0.weight"] - start["critic.layers.0.weight"]).max() > 1e-4


def test_gradient_may_add_terms_and_statistics():
    """Against a weight decay, whose gradient is the weight: of a loss that is 0 otherwise, by steps of plain descent."""
    def descend(adam, gradient, learning_rate, eps, max_grad_norm, count):
        return adam._replace(weights=jax.tree.map(lambda w, g: w - 0.1 * g, adam.weights, gradient)), jnp.float32(0)

    def decay(learner, weights, batch, minibatch, coefficients):
        gradient, stats = compute_gradient(learner, weights, batch, minibatch, coefficients)
        flat = jnp.concatenate([weights[name].ravel() for name in sorted(weights)])  # as pack() orders them
        return 0 * gradient + flat, stats | {"squares": jnp.square(flat).sum()}

    (first, second, third), stats = weights(SMALL, set_up=changing(gradient=decay, apply=descend, divisible=False))
    for name, x in first.items():
        np.testing.assert_allclose(third[name], 0.9**8 * x, rtol=1e-4, atol=1e-7)
    steps = [0.9**(2 * k) * sum(np.square(x).sum() for x in second.values()) for k in range(4)]
    assert stats["losses/squares"] == pytest.approx(np.mean(steps), rel=1e-4)


def test_pure_functions_take_the_same_change():
    training = make_training(SMALL, make_envs, make_agent, change_learner=lambda learner: learner._replace(apply=add_one))
    state = training.init(jax.random.key(SMALL.seed))
    after, _ = jax.jit(training.step)(state)
    for name, x in state.adam.weights.items():
        np.testing.assert_allclose(after.adam.weights[name], x + 4, atol=1e-5)


class Alternating:
    """Episodes of one step, reset one step late: every second row of every environment is a filler."""

    obs_shape, obs_dtype, action_space = (1,), np.dtype(np.float32), spaces.Discrete(2)
    observation_space, players, metric_names = spaces.Box(-1, 1, (1,)), (), ()

    def __init__(self, num_envs):
        self.num_envs = num_envs

    def reset(self, key):
        return jnp.zeros((), bool), self.made(jnp.zeros((), bool), jnp.zeros(self.num_envs), begins=True)

    def step(self, filler, action):
        return ~filler, self.made(filler, jnp.where(filler, 0.0, action.astype(jnp.float32)))

    def made(self, filler, reward, begins=False):
        filler, no = jnp.full(self.num_envs, filler), jnp.zeros(self.num_envs, bool)
        over = no if begins else ~filler
        return Step(obs=jnp.ones((self.num_envs, 1)), first=filler | begins, mask=None, reward=reward, terminated=over, truncated=no,
                    final_obs=None, valid=~filler, episode=Episode(over, reward, jnp.ones(self.num_envs, jnp.int32)), metrics={})


def test_minibatches_of_filler_rows_are_left_out_inside_the_compiled_function():
    """Environments of a program, in minibatches of one row, of which half are fillers; run by the loop and as pure functions."""
    fields = {"num_envs": 4, "num_steps": 4, "num_minibatches": 16, "update_epochs": 3, "norm_adv": "none", "hidden_sizes": (8,),
              "total_timesteps": 32}

    def make_alternating(cfg, seeds):
        return PureVec(Alternating(len(seeds)), seeds[0])

    for it in proximo.iterations("ppo", make_envs=make_alternating, env_id="Alternating-v0", framework="jax", **fields):
        assert it.steps == it.iteration * 8 and it.snapshot()["adam"][".step"] == it.iteration * 3 * 8
    training = make_training(Config(framework="jax", **fields), make_alternating, make_agent)
    state, _ = jax.jit(training.step)(training.init(jax.random.key(1)))
    assert state.adam.step == 3 * 8


@pytest.mark.parametrize(("change", "said"), [
    (lambda learner: None, r"change_learner returned None\. Pass \(learner\) -> learner\._replace"),
    (lambda: None, "change_learner cannot be called with 1 argument"),
    (lambda learner: learner._replace(estimate=lambda rollout, cfg: rollout.reward.mean(0)),
     r"estimate returned an array float32 \(4,\), and a rollout has the shape \(16, 4\)"),
    (lambda learner: learner._replace(gradient=lambda *a: (compute_gradient(*a)[0], {"a,b": jnp.zeros(3)})),
     r"The gradient of change_learner returns a,b=an array float32 \(3,\)[^\n]*\n[^\n]* statistic with the name 'a,b'"),
    (lambda learner: learner._replace(gradient=lambda *a: (compute_gradient(*a)[0], {"grad_norm": jnp.zeros(())})),
     "The gradient of change_learner returns the statistic grad_norm, which the update adds itself")])
def test_what_cannot_work_is_told(change, said):
    with pytest.raises(UsageError, match=said):
        list(train(SMALL, make_envs, make_agent, set_up=partial(set_up, change_learner=change)))


def test_another_framework_is_told():
    with pytest.raises(UsageError, match=r"framework=torch, and this loop trains with JAX\. Use the loop of proximo/on_torch/train\.py"):
        set_up(replace(SMALL, framework="torch"), make_envs, make_agent, None)


TWO_DEVICES = """
import json
from dataclasses import replace
from tests.on_jax.test_setup import PLACES, add_one, changing, weights
for cfg in PLACES.values():
    (first, second, _), _ = weights(replace(cfg, device_ids=(0, 1)), set_up=changing(apply=add_one))
    print(json.dumps([float((second[name] - x).mean()) for name, x in first.items()]))
"""


@pytest.mark.long
def test_several_devices_take_the_change():
    """In a separate process, because the number of devices is fixed when JAX starts."""
    env = os.environ | {"JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", TWO_DEVICES], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(found) == 3 and all(x == pytest.approx(4, abs=1e-4) for one in found for x in one)
