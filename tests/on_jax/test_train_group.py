"""Members of a group with different values against train() with the same values."""

from dataclasses import replace

import jax
import numpy as np

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.facts import facts
from proximo.on_jax.train import train
from proximo.on_jax.train_group import train_group

_, make_envs, make_agent, _ = parts_of("ppo", "jax")
BASE = Config(framework="jax", engine="jax", num_envs=2, num_steps=16, total_timesteps=96, num_minibatches=2,
              update_epochs=2, hidden_sizes=(8, 8), norm_reward=True, desired_kl=0.01, anneal_clip="linear", threads=1)
OTHER = {"learning_rate": 3e-3, "adam_eps": 1e-2, "gamma": 0.5, "gae_lambda": 0.5, "clip_coef": 0.001, "ent_coef": 0.5,
         "vf_coef": 0.1, "max_grad_norm": 0.01}


def test_every_value_of_a_group_counts_and_all_of_them_compile_once():
    """The first member has the base's values, one each differs in one field, the last one in all fields and the seed:
    it equals its single run up to rounding after three iterations, also in what the log says."""
    assert [name for name, fact in facts(Config).items() if fact.sweep] == [*OTHER]
    cfgs = [BASE, *(replace(BASE, **{name: value}) for name, value in OTHER.items()), replace(BASE, **OTHER, seed=5)]
    compiled = []

    def count(name, *_, fun_name="", **__):
        if name.endswith("backend_compile_duration") and "step" in fun_name:
            compiled.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        found = [[(it.stats, it.weights()) for it in row] for row in train_group(cfgs, make_envs, make_agent)][-1]
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    assert len(compiled) == 1
    for name, (_, weights) in zip(OTHER, found[1:]):
        assert any(not np.array_equal(x, found[0][1][key]) for key, x in weights.items()), name
    *_, (stats, weights) = [(it.stats, it.weights()) for it in train(cfgs[-1], make_envs, make_agent)]
    for key, x in weights.items():
        np.testing.assert_allclose(found[-1][1][key], x, atol=5e-5)
    for key, x in stats.items():
        np.testing.assert_allclose(found[-1][0][key], x, rtol=1e-2, atol=1e-4, err_msg=key)
