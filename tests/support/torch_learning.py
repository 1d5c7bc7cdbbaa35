"""One update of a torch agent, with the parts that train() uses, for tests that call the learner directly."""

import torch

from proximo.on_torch.learner import (
    Learner,
    apply_gradient,
    flat_adam,
    make_batch,
    make_gradient,
    make_step,
    minibatch_advantages,
    update,
)
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.setup import statistic_names
from proximo.types import Coefficients, Minibatches


def make_learner(agent, cfg, loss_fn=ppo_loss, all_reduce_sum=lambda x: x):
    """Return the flat weights of an agent with their Adam state, and the Learner that changes them."""
    adam = flat_adam(agent)
    adam = adam._replace(step=adam.step.to(adam.weights.dtype))  # float64 for an agent in float64

    def apply(gradient, learning_rate):
        return apply_gradient(adam, gradient, learning_rate, cfg.adam_eps, cfg.max_grad_norm)

    names = statistic_names(loss_fn, cfg, agent.recurrent, torch.device("cpu"))
    step = make_step(make_gradient(agent, loss_fn, cfg), apply, all_reduce_sum)
    return adam, Learner(step=step, names=names, all_reduce_sum=all_reduce_sum, scale=adam.scale)


def make_minibatches(learner, rollout, advantage, index, recurrent, cfg, noise=None):
    """Normalise the advantages of all minibatches and return what distinguishes them."""
    rows, count = minibatch_advantages(advantage, rollout.valid, index, recurrent, cfg, learner.all_reduce_sum)
    return Minibatches(index=index, advantage=rows, count=count, noise=noise)


def update_once(learner, rollout, advantage, ret, index, learning_rate, cfg):
    """Run one update of an agent without a recurrent layer. Returns the statistics."""
    minibatches = make_minibatches(learner, rollout, advantage, index, False, cfg)
    return update(learner, make_batch(rollout, ret, (), False), minibatches, learning_rate,
                  Coefficients(cfg.clip_coef, cfg.ent_coef), cfg)
