"""Functions of a Setup that a program made: what they return is checked, and a state that is not finite is never kept."""

from pathlib import Path

import numpy as np
import pytest
import torch

import proximo
from proximo.errors import NumbersError, UsageError
from proximo.on_torch.learner import apply_gradient, make_gradient, make_step
from proximo.on_torch.setup import set_up
from tests.test_docs import blocks

PAGE = Path(__file__).parents[2] / "docs" / "add-a-loss.md"
FIELDS = {"env_id": "CartPole-v1", "num_envs": 2, "num_steps": 32, "num_minibatches": 2, "hidden_sizes": (8,), "logger": "none",
          "total_timesteps": 192, "anneal_lr": False}


def with_apply(apply):
    """A set_up whose step calls `apply(adam, gradient, learning_rate, cfg)`."""
    def set_up_with_apply(cfg, make_envs, make_agent, loss_fn, state):
        setup = set_up(cfg, make_envs, make_agent, loss_fn, state)
        step = make_step(make_gradient(setup.agent, loss_fn, cfg), lambda gradient, rate: apply(setup.adam, gradient, rate, cfg),
                         setup.learner.all_reduce_sum)
        return setup._replace(learner=setup.learner._replace(step=step))

    return set_up_with_apply


def adam(adam, gradient, learning_rate, cfg):
    return apply_gradient(adam, gradient, learning_rate, cfg.adam_eps, cfg.max_grad_norm)


def wrong_in_the_second_iteration(change):
    """Adam, but for the tenth minibatch. Writes the weights before it into `kept`."""
    kept = []

    def apply(state, gradient, learning_rate, cfg):
        kept.append(state.weights.clone())
        return change(state) if len(kept) == 10 else adam(state, gradient, learning_rate, cfg)

    return apply, kept


def nan_weights(state):
    state.weights.mul_(torch.nan)
    return torch.ones(())


def nan_moments(state):
    """The weights of the next step would be NaN."""
    state.exp_avg_sq.mul_(torch.nan)
    state.weights.add_(1)
    state.step.add_(1)
    return torch.tensor(torch.nan)


@pytest.mark.parametrize("change", [nan_weights, nan_moments])
def test_what_is_not_finite_is_not_kept(change):
    """Training went on with weights that are NaN, where `apply` had no check of its own."""
    apply, kept = wrong_in_the_second_iteration(change)
    states = []

    def remember(*arguments):
        states.append(with_apply(apply)(*arguments))
        return states[0]

    training = proximo.iterations("ppo", set_up=remember, **FIELDS)
    next(training)
    with pytest.raises(NumbersError, match="in iteration 2, after 64 steps. The weights are those before it"):
        next(training)
    assert len(kept) == 16  # the minibatches after it ran, and changed nothing
    assert torch.equal(states[0].adam.weights, kept[9]) and states[0].adam.step == 9
    assert all(x.isfinite().all() for x in states[0].adam[:4])


def test_values_are_normalised_in_a_step_of_a_program():
    """With norm_value, the step of the page learned values and clipped them in the scale of the rewards."""
    fields = FIELDS | {"norm_value": True, "total_timesteps": 128}
    for ours, programs in zip(proximo.iterations("ppo", **fields), proximo.iterations("ppo", set_up=with_apply(adam), **fields)):
        assert ours.stats == programs.stats
        assert all(np.array_equal(x, programs.weights()[name]) for name, x in ours.weights().items())


def norm_is_the_rate(framework):
    """A set_up whose `apply` is Adam, and returns the learning rate that it got in the place of the norm."""
    if framework == "torch":
        return with_apply(lambda *arguments: (adam(*arguments), arguments[2].clone())[1])
    from proximo.on_jax.learner import apply_gradient as step_of_jax
    from proximo.on_jax.setup import set_up as set_up_jax

    def apply(adam, gradient, learning_rate, *others):
        return step_of_jax(adam, gradient, learning_rate, *others)[0], learning_rate

    return lambda *arguments: set_up_jax(*arguments, change_learner=lambda learner: learner._replace(apply=apply))


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_learning_rate_contains_the_factor_of_desired_kl(framework):
    """That of an iteration is logged at the end of the one before, whose epoch has adapted it. torch passed the one without factor."""
    if framework == "jax":
        pytest.importorskip("flax")
    fields = FIELDS | {"desired_kl": 1e-4, "framework": framework, "update_epochs": 1, "total_timesteps": 320}
    stats = [it.stats for it in proximo.iterations("ppo", set_up=norm_is_the_rate(framework), **fields)]
    logged = [one["charts/learning_rate"] for one in stats]
    assert len(set(logged)) > 2 and stats[0]["losses/grad_norm"] == pytest.approx(2.5e-4)
    assert [one["losses/grad_norm"] for one in stats[1:]] == pytest.approx(logged[:-1])


@pytest.mark.parametrize(("norm", "said"), [(None, "returns None as the norm of the gradient. Let `apply` return a tensor"),
                                            (0.5, "returns float as"), (torch.ones(3), r"returns torch\.Tensor as")])
def test_a_norm_of_another_kind_is_told(norm, said):
    with pytest.raises(UsageError, match=said):
        next(proximo.iterations("ppo", set_up=with_apply(lambda *_: norm), **FIELDS))


def test_statistics_without_a_name_are_told():
    """The last one would be logged as the norm of the gradient."""
    def set_up_with_one_more(*arguments):
        setup = set_up(*arguments)

        def step(*given):
            stats, norm = setup.learner.step(*given)
            return torch.cat([stats, torch.full((1,), 7.0)]), norm

        return setup._replace(learner=setup.learner._replace(step=step))

    with pytest.raises(UsageError, match=r"The step of set_up returns 7 statistics, and learner.names has 6: value_loss, .*\. Add a"):
        next(proximo.iterations("ppo", set_up=set_up_with_one_more, **FIELDS))


@pytest.mark.parametrize(("name", "said"), [("entropy", "has entropy twice"), ("grad_norm", "has the statistic grad_norm, which"),
                                            ("a,b", "has a statistic with the name 'a,b'")])
def test_names_that_cannot_be_logged_are_told(name, said):
    """Of two statistics with one name, only the last was logged."""
    def set_up_with_this_name(*arguments):
        setup = set_up(*arguments)

        def step(*given):
            stats, norm = setup.learner.step(*given)
            return torch.cat([stats, torch.full((1,), 7.0)]), norm

        return setup._replace(learner=setup.learner._replace(step=step, names=[*setup.learner.names, name]))

    with pytest.raises(UsageError, match=f"learner.names of set_up {said}"):
        next(proximo.iterations("ppo", set_up=set_up_with_this_name, **FIELDS))


def new_advantages(framework):
    """The set_up of the page that estimates advantages again in each epoch."""
    loop, page = f"on_{framework}.setup", {"__name__": "page"}
    (block,) = (one for one in blocks(PAGE, "python") if "def set_up_with_new_advantages" in one and loop in one)
    exec(block.partition("\n\n\nproximo.train(")[0], page)
    return page["set_up_with_new_advantages"]


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize(("epochs", "rate", "equal"), [(1, 1e-2, True), (3, 1e-12, True), (3, 1e-2, False)])
def test_advantages_of_the_page_are_those_of_the_network_at_the_beginning_of_an_epoch(framework, epochs, rate, equal):
    """They are those of the rollout in the first epoch, and in all where the network stays the same. Otherwise, they are not."""
    if framework == "jax":
        pytest.importorskip("flax")
    fields = FIELDS | {"framework": framework, "update_epochs": epochs, "learning_rate": rate, "total_timesteps": 64}
    (plain,) = proximo.iterations("ppo", **fields)
    (again,) = proximo.iterations("ppo", **fields, set_up=new_advantages(framework))
    same = [np.allclose(again.stats[f"losses/{name}"], plain.stats[f"losses/{name}"], rtol=1e-4, atol=1e-6)
            for name in ("value_loss", "policy_loss", "grad_norm")]
    assert same == [equal] * 3, (plain.stats, again.stats)
