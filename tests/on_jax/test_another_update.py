"""Functions of change_learner: what they return is checked, and a state that is not finite is never kept."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import Config
from proximo.errors import NumbersError, UsageError
from proximo.on_jax.another_update import changed_learner
from proximo.on_jax.learner import Learner, apply_gradient, compute_gradient, start_adam, update
from proximo.on_jax.pure_training import make_training
from proximo.on_jax.train import train
from tests.on_jax.test_setup import SMALL, changing, make_agent, make_envs
from tests.test_docs import blocks

ROOT = Path(__file__).parents[2]
ZERO = jnp.float32(0)


def descend(adam, gradient, learning_rate, eps, max_grad_norm, count):
    """Without any check of what is not finite."""
    return adam._replace(weights=jax.tree.map(lambda w, g: w - learning_rate * g, adam.weights, gradient)), ZERO


def changed(**functions):
    """A Learner of PPO with other functions, whose other parts are not used."""
    learner = Learner(SMALL, None, None, None, None, estimate=None, gradient=compute_gradient, apply=apply_gradient, update=update,
                      divisible=True)
    return changed_learner(learner, lambda learner: learner._replace(**functions))


def pure(cfg=SMALL, make_agent=make_agent, **functions):
    training = make_training(cfg, make_envs, make_agent, change_learner=lambda learner: learner._replace(**functions))
    return training, training.init(jax.random.key(1))


@pytest.mark.parametrize(("name", "result", "said"), [
    ("apply", lambda adam, gradient: adam, r"apply returned \S*Adam\. Pass \(adam, gradient, learning_rate, eps, max_grad_norm, count\) -> "),
    ("apply", lambda adam, gradient: (adam.weights, ZERO), r"apply returned \(float32 \(107,\), float32 \(\)\)\. Pass"),
    ("apply", lambda adam, gradient: (adam, gradient), r"apply returned \(\S*Adam, float32 \(107,\)\)\. Pass"),
    ("apply", lambda adam, gradient: (adam._replace(weights=gradient[1:]), ZERO),
     r"apply returned weights of float32 \(106,\), and it was float32 \(107,\)\. Pass"),
    ("apply", lambda adam, gradient: (adam._replace(exp_avg={"a": gradient}, step=adam.step + 1.0), ZERO),
     r"exp_avg of \{a: float32 \(107,\)\}, and it was float32 \(107,\)\.[^\n]*\napply returned step of float32 \(\), and it was int32 \(\)"),
    ("apply", None, "apply cannot be called with 6 arguments: 'NoneType' object is not callable. Pass"),
    ("gradient", lambda found, stats, weights: found, r"gradient returned float32 \(107,\)\. Pass \(learner, weights, batch, minibatch, "),
    ("gradient", lambda found, stats, weights: (ZERO, stats), r"gradient of float32 \(\), and the weights are float32 \(107,\)\. Pass"),
    ("gradient", lambda found, stats, weights: (weights, stats), r"gradient of \{critic\.layers\.0\.bias: float32 \(8,\), .*as pack\(\) of"),
    ("update", lambda adam, stats: adam, r"update returned \S*Adam\. Pass \(learner, adam, batch, minibatches, learning_rate, coefficients\)"),
    ("update", lambda adam, stats: (adam, 3.0), r"update returned \(\S*Adam, float\)\. Pass"),
    ("update", lambda adam, stats: (adam._replace(weights={}), stats), r"update returned weights of \{\}, and it was \{critic\.layers\.0\.bias: "),
    ("update", lambda adam, stats: (adam, {}), "The update of change_learner returns no statistics"),
    ("update", lambda adam, stats: (adam, {"a": jnp.ones(2)}), r"The update of change_learner returns a=an array float32 \(2,\)\. It must"),
    ("update", None, "update cannot be called with 6 arguments: 'NoneType' object is not callable. Pass"),
    ("estimate", lambda rollout: rollout.truncated, "estimate reads truncated, which Rollout does not have. Its fields are obs, ")])
def test_what_a_function_returns_is_told(name, result, said):
    """They were errors of lax.scan, or a gradient that was repeated for all weights."""
    function = result and {
        "apply": lambda adam, gradient, *_: result(adam, gradient), "estimate": lambda rollout, cfg: result(rollout),
        "update": lambda *arguments: result(*update(*arguments)),
        "gradient": lambda learner, weights, *rest: result(*compute_gradient(learner, weights, *rest), weights)}[name]
    with pytest.raises(UsageError, match=said):
        list(train(SMALL, make_envs, make_agent, set_up=changing(**{name: function})))


def test_a_large_network_has_dicts_by_name():
    training, state = pure(replace(SMALL, hidden_sizes=(400, 400)), apply=descend)
    after, _ = jax.jit(training.step)(state)
    assert after.adam.ok and not np.array_equal(after.adam.weights["critic.layers.1.weight"], state.adam.weights["critic.layers.1.weight"])
    training, state = pure(replace(SMALL, hidden_sizes=(400, 400)), gradient=lambda *a: (jnp.zeros(5), compute_gradient(*a)[1]))
    with pytest.raises(UsageError, match=r"gradient of float32 \(5,\), and the weights are \{critic\.layers\.0\.bias: float32 \(400,\)"):
        training.step(state)


@pytest.mark.parametrize("wrong", [
    lambda adam, gradient: (adam._replace(weights=adam.weights * jnp.nan), ZERO),
    lambda adam, gradient: (adam._replace(weights=adam.weights + 1), jnp.float32(np.inf)),
    lambda adam, gradient: (adam._replace(weights=adam.weights + 1, ok=jnp.bool_(False)), 1.0)])
def test_what_is_not_finite_is_not_kept(wrong):
    """Training went on with weights that are NaN, where `apply` had no check of its own."""
    training, state = pure(apply=lambda adam, gradient, *_: wrong(adam, gradient))
    after, _ = jax.jit(training.step)(state)
    assert not after.adam.ok and all(np.array_equal(x, after.adam.weights[name]) for name, x in state.adam.weights.items())
    with pytest.raises(NumbersError):
        list(train(SMALL, make_envs, make_agent, set_up=changing(apply=lambda adam, gradient, *_: wrong(adam, gradient))))


def test_an_update_that_has_failed_ends_the_training():
    """It says so by `ok`, as update() does after a gradient that is not finite, whose weights are those before it."""
    def failing(learner, adam, *rest):
        after, stats = update(learner, adam, *rest)
        return after._replace(ok=jnp.bool_(False)), stats

    with pytest.raises(NumbersError):
        list(train(SMALL, make_envs, make_agent, set_up=changing(update=failing)))


def test_an_update_that_is_not_finite_is_not_kept():
    def wrong(learner, adam, *rest):
        after, stats = update(learner, adam, *rest)
        return after._replace(weights=jax.tree.map(lambda w: w * jnp.nan, after.weights)), stats

    training, state = pure(update=wrong)
    after, _ = jax.jit(training.step)(state)
    assert not after.adam.ok and after.adam.step == 0
    assert all(np.array_equal(x, after.adam.weights[name]) for name, x in state.adam.weights.items())


def test_nothing_changes_without_a_valid_row():
    adam = start_adam({"a": np.ones(3, np.float32)})
    for count, expected in ((0.0, 1), (2.0, 0.5)):
        after, norm = changed(apply=descend).apply(adam, {"a": jnp.ones(3)}, 0.5, 1e-5, 1.0, count)
        np.testing.assert_allclose(after.weights["a"], expected)
        assert after.ok and norm == 0


@pytest.mark.parametrize(("count", "ok"), [(0.0, True), (2.0, False)])
def test_what_is_not_finite_without_a_valid_row_ends_nothing(count, ok):
    """The direction of a gradient is 0 / 0 there: training ended, although nothing was to be learned."""
    def along(adam, gradient, learning_rate, *_):
        norm = jnp.linalg.norm(gradient["a"])
        return adam._replace(weights={"a": adam.weights["a"] - learning_rate * gradient["a"] / norm}), norm

    adam = start_adam({"a": np.ones(3, np.float32)})
    after, _ = changed(apply=along).apply(adam, {"a": jnp.zeros(3)}, 0.5, 1e-5, 1.0, count)
    assert after.ok == ok and np.array_equal(after.weights["a"], np.ones(3))


@pytest.mark.parametrize("change", [{}, {"recurrent": "gru", "memory_size": 8}])
def test_count_is_the_number_of_valid_rows(change):
    """Of 4 environments and 16 steps in two minibatches, also where the network has no recurrent layer: it was 1 there."""
    def counting(adam, gradient, learning_rate, eps, max_grad_norm, count):
        return adam, jnp.asarray(count, jnp.float32)

    training, state = pure(replace(SMALL, **change), apply=counting)
    assert jax.jit(training.step)(state)[1].losses["grad_norm"] == 32


def test_the_learning_rate_contains_the_factor_of_desired_kl():
    """Four steps, each of which adds the learning rate that `apply` gets to every weight, with a factor of 3."""
    def add_rate(adam, gradient, learning_rate, *_):
        return adam._replace(weights=adam.weights + learning_rate), ZERO

    training, state = pure(apply=add_rate)
    after, _ = training.step(state._replace(adam=state.adam._replace(scale=jnp.float32(3))), learning_rate=0.125)
    for name, x in state.adam.weights.items():
        np.testing.assert_allclose(after.adam.weights[name], x + 4 * 3 * 0.125, atol=1e-5)


def test_another_gradient_gets_whole_minibatches():
    """Those of 4,096 rows, which a CPU divides for the loss of PPO. A constant was added once for each part."""
    def gradient(*arguments):
        found, stats = compute_gradient(*arguments)
        return found, stats | {"calls": jnp.ones(())}

    training, state = pure(replace(SMALL, num_envs=64, num_steps=128, total_timesteps=8192), gradient=gradient)
    assert jax.jit(training.step)(state)[1].losses["calls"] == 1


def page_parts():
    """What the page defines for a loss of next observations."""
    (block,) = (one for one in blocks(ROOT / "docs" / "add-a-loss.md", "python") if "def with_prediction(learner)" in one)
    page = {"__name__": "page"}
    exec(block.partition("\nproximo.train(")[0], page)
    return page


def test_the_weight_decay_of_the_page_is_that_of_matrices():
    """Without a gradient, four steps multiply matrices by (1 - 0.5 * 0.01)**4, and change nothing else."""
    page = page_parts()
    training = make_training(replace(SMALL, shared_network=True, learning_rate=0.5), make_envs, page["make_agent"], change_learner=lambda learner:
                             page["with_prediction"](learner)._replace(gradient=lambda *a: jax.tree.map(jnp.zeros_like, compute_gradient(*a))))
    state = training.init(jax.random.key(1))
    after, _ = jax.jit(training.step)(state)
    for name, x in state.adam.weights.items():
        np.testing.assert_allclose(after.adam.weights[name], x * (0.995**4 if x.ndim > 1 else 1), rtol=1e-5)


def test_the_prediction_of_the_page_is_that_of_numpy():
    """The mean squared error of one minibatch of all rows, in which episodes end, over all rows."""
    page, kept = page_parts(), []

    def change(learner):
        learner = page["with_prediction"](learner)

        def estimate(rollout, cfg):
            jax.debug.callback(lambda obs, done: kept.append((np.array(obs), np.array(done))), rollout.obs, rollout.done)
            return learner.estimate(rollout, cfg)

        return learner._replace(estimate=estimate)

    cfg = Config(framework="jax", engine="jax", num_envs=4, num_steps=64, total_timesteps=256, num_minibatches=1, update_epochs=1,
                 hidden_sizes=(8,), shared_network=True)
    training = make_training(cfg, make_envs, page["make_agent"], change_learner=change)
    state = training.init(jax.random.key(1))
    _, metrics = jax.jit(training.step)(state)
    jax.effects_barrier()
    (obs, done), w = kept[0], {name: np.asarray(x) for name, x in state.adam.weights.items()}
    (trunk,) = {name.removesuffix(".weight") for name in w if name.startswith("trunk") and name.endswith(".weight")}
    features = np.tanh(obs @ w[f"{trunk}.weight"].T + w[f"{trunk}.bias"])
    errors = ((features @ w["predict.weight"].T + w["predict.bias"])[:-1] - obs[1:]) ** 2
    assert done[:-1].any()
    assert metrics.losses["prediction"] == pytest.approx(errors.mean(-1)[~done[:-1]].sum() / done.size, rel=1e-4)

