"""A loss function of a program gets the network and the rows of a minibatch, before training and during it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import proximo
from proximo.errors import UsageError
from proximo.on_torch.assemble import assemble
from proximo.on_torch.loss import ppo_loss
from tests.support.probes import Masked

FIELDS = {"env_id": "CartPole-v1", "num_envs": 4, "num_steps": 16, "total_timesteps": 256, "threads": 1}


def computed_again(batch, cfg):
    """Compute what the network gives for the rows once more, and nothing from what is given."""
    rows = batch.rows
    dist, value, _ = batch.agent(rows.obs, rows.mask, rows.first, rows.state)
    return ppo_loss(batch._replace(logprob=dist.logprob(rows.action), value=value, entropy=batch.dist.entropy(),
                                   old_logprob=rows.logprob), cfg)


def last_weights(**changed):
    return [it.weights() for it in proximo.iterations("ppo", **FIELDS | changed)][-1]


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_network_and_the_rows_are_those_of_the_minibatch(framework, recurrent):
    if framework == "jax":
        pytest.importorskip("flax")
        from proximo.on_jax.loss import ppo_loss as loss

        def again(batch, cfg):
            rows = batch.rows
            dist, value, _ = batch.agent(rows.obs, rows.mask, rows.first, rows.state)
            return loss(batch._replace(logprob=dist.logprob(rows.action), value=value, entropy=batch.dist.entropy()), cfg)
    else:
        again = computed_again
    fields = {"framework": framework, "recurrent": recurrent}
    expected, found = last_weights(**fields), last_weights(**fields, loss_fn=again)
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_loss_of_other_observations_changes_the_network(framework):
    """Under JAX, the module that make_agent returned has no weights: a loss that calls it has no gradient."""
    if framework == "jax":
        pytest.importorskip("flax")
        import jax.numpy as numbers

        from proximo.on_jax.loss import ppo_loss as loss
    else:
        numbers, loss = torch, ppo_loss
    obs = numbers.asarray(np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32))
    action = numbers.asarray(np.asarray(obs[:, 2] > 0).astype(np.int32 if framework == "jax" else np.int64))

    def cloning(batch, cfg):
        cloned = -batch.agent.head(obs, None).logprob(action).mean()
        return 0.0 * loss(batch, cfg)[0] + cloned, {"cloning": cloned.detach() if framework == "torch" else cloned}

    found = [it.stats["losses/cloning"] for it in proximo.iterations(
        "ppo", **FIELDS | {"framework": framework, "learning_rate": 1e-2, "total_timesteps": 512}, loss_fn=cloning)]
    assert found[-1] < 0.5 * found[0]


@pytest.mark.slow
def test_with_compile_the_network_has_its_current_weights():
    expected, found = last_weights(compile=True), last_weights(compile=True, loss_fn=computed_again)
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-3, atol=1e-4)


def test_before_training_every_action_is_allowed_and_buffers_stay():
    """Rows of zeros would forbid all actions, whose log-probabilities are not finite."""
    seen, counters = [], []

    def make_agent(spec, cfg):
        agent = assemble(spec, replace(cfg, shared_network=True))
        agent.trunk = nn.Sequential(agent.trunk, nn.BatchNorm1d(cfg.hidden_sizes[-1]))
        counters.append(agent.trunk[-1].num_batches_tracked)
        return agent

    def watched(batch, cfg):
        if not seen:
            seen.append((batch.dist.entropy(), batch.rows.mask, batch.dist.logprob(batch.rows.action), int(counters[-1])))
        return ppo_loss(batch, cfg)

    next(proximo.iterations("ppo", env=Masked, make_agent=make_agent, loss_fn=watched, num_envs=4, num_steps=16,
                            total_timesteps=64, threads=1))
    entropy, mask, logprob, counted = seen[0]
    assert mask.all() and torch.isfinite(entropy).all() and torch.isfinite(logprob).all() and counted == 0


@pytest.mark.parametrize("change", [lambda stats: dict(reversed(stats.items())), lambda stats: stats | {"more": stats["entropy"]}])
def test_statistics_that_change_their_names_or_order_are_told(change):
    """They are averaged by their places: the numbers of one would be logged under the name of another."""
    calls = []

    def loss(batch, cfg):
        calls.append(1)
        found, stats = ppo_loss(batch, cfg)
        return found, stats if len(calls) < 5 else change(stats)

    with pytest.raises(UsageError, match=r"returns the statistics .*, and at first value_loss, .*\. Return the same names in the same order"):
        list(proximo.iterations("ppo", **FIELDS, loss_fn=loss))
