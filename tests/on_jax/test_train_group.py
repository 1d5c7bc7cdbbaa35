"""What the compiled function of a group takes as arguments. tests/cli/test_sweep.py compares members with single runs."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.facts import facts
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.setup import first_state, make_inside_player
from proximo.on_jax.train_group import differing_values, make_member_step, member_name

_, make_envs, make_agent, _ = parts_of("ppo", "jax")
BASE = Config(framework="jax", engine="jax", num_envs=2, num_steps=4, total_timesteps=24, num_minibatches=2,
              update_epochs=2, hidden_sizes=(8, 8), threads=1)
OTHER = {"learning_rate": 3e-3, "adam_eps": 1e-2, "gamma": 0.5, "gae_lambda": 0.5, "clip_coef": 0.001, "ent_coef": 0.5,
         "vf_coef": 0.1, "max_grad_norm": 0.01}


def test_only_what_differs_is_an_argument():
    values = differing_values([BASE, replace(BASE, gamma=0.5, seed=4), replace(BASE, gamma=0.25, run_dir="x")])
    assert list(values) == ["gamma"]
    np.testing.assert_allclose(values["gamma"], [0.99, 0.5, 0.25])
    assert differing_values([BASE, replace(BASE, seed=4)]) == {}
    assert member_name([BASE, replace(BASE, gamma=0.5, seed=4)], 1) == "gamma=0.5, seed=4"


def test_every_value_that_a_sweep_takes_is_read_by_the_step():
    """The traced function of one iteration reads each of them: none is left as a constant of the first member."""
    assert [name for name, fact in facts(Config).items() if fact.sweep] == [*OTHER]
    player = make_inside_player(BASE, make_envs, make_agent, ppo_loss)
    state = first_state(player, 1, player.begin(0, None))
    values = {name: jnp.float32(value) for name, value in OTHER.items()}
    jaxpr = jax.make_jaxpr(make_member_step(BASE, player))(values, state).jaxpr
    read = {id(x) for equation in jaxpr.eqns for x in equation.invars}
    assert {name: id(x) in read for name, x in zip(sorted(OTHER), jaxpr.invars)} == dict.fromkeys(sorted(OTHER), True)
