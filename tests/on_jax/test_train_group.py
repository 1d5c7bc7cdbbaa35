"""The compiled function of a group against one with constants. tests/cli/test_sweep.py compares members with single runs."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.envs.pure import plain
from proximo.errors import UsageError
from proximo.facts import facts
from proximo.on_jax.agent import SeparateAgent
from proximo.on_jax.assemble import make_head
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.members import HostState, at_once, differing_values, make_member_step, stack_members
from proximo.on_jax.networks import Linear
from proximo.on_jax.setup import first_state, make_inside_player
from proximo.on_jax.train import train
from proximo.on_jax.train_group import continue_members, first_states, member_name, train_group

_, make_envs, make_agent, *_ = parts_of("ppo", "jax")
BASE = Config(framework="jax", engine="jax", num_envs=2, num_steps=4, total_timesteps=24, num_minibatches=2,
              update_epochs=2, hidden_sizes=(8, 8), threads=1)
OTHER = {"learning_rate": 9e-3, "adam_eps": 1e-2, "gamma": 0.5, "gae_lambda": 0.5, "clip_coef": 0.001, "ent_coef": 0.5,
         "vf_coef": 0.1, "max_grad_norm": 0.01}


def test_only_what_differs_is_an_argument():
    values = differing_values([BASE, replace(BASE, gamma=0.5, seed=4), replace(BASE, gamma=0.25, run_dir="x")])
    assert list(values) == ["gamma"]
    np.testing.assert_allclose(values["gamma"], [0.99, 0.5, 0.25])
    assert differing_values([BASE, replace(BASE, seed=4)]) == {}
    assert member_name([BASE, replace(BASE, gamma=0.5, seed=4)], 1) == "gamma=0.5, seed=4"


def test_a_step_with_arrays_of_all_values_equals_one_that_has_them_as_constants():
    """In the second of three iterations, with everything that reads them: annealing, reward statistics, desired_kl."""
    assert [name for name, fact in facts(Config).items() if fact.sweep] == [*OTHER]
    base = replace(BASE, norm_reward=True, anneal_clip="linear", anneal_ent="cosine", desired_kl=1.0)
    first, own = (make_inside_player(cfg, make_envs, make_agent, ppo_loss) for cfg in (base, replace(base, **OTHER)))
    state = first_state(own, 1, own.begin(0, own.normalizer.start()))._replace(iteration=jnp.int32(1))
    values = {name: jnp.float32(value) for name, value in OTHER.items()}
    found, expected = jax.jit(make_member_step(base, first))(values, state)[0], jax.jit(own.step)(state)[0]
    assert float(expected.adam.scale) < 1.2, "the learning rate is at the upper end of desired_kl"
    for one, other in zip(jax.tree.leaves((found.adam, found.carry)), jax.tree.leaves((expected.adam, expected.carry)),
                          strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_calls_of_a_network_are_checked_for_groups_too():
    def make_wrong(spec, cfg):
        return SeparateAgent(Linear(3, 1), make_head(lambda size: Linear(4, size), spec.action_space))

    with pytest.raises(UsageError, match=r"The network raised TypeError: dot_general .* Correct make_agent"):
        next(train_group([BASE, replace(BASE, seed=2)], make_envs, make_wrong))


@pytest.mark.parametrize(("change", "sentence"), [({"num_steps": 8, "total_timesteps": 48}, "differ in num_steps, total_timesteps."),
                                                  ({"clip_vloss": False}, "differ in clip_vloss. .* seed and in learning_rate, ")])
def test_members_that_differ_in_constants_are_refused(change, sentence):
    """Every member would train with the values of the first one."""
    with pytest.raises(UsageError, match=sentence):
        next(train_group([BASE, replace(BASE, **change)], make_envs, make_agent))


def test_a_network_of_flax_has_the_first_weights_that_it_has_alone():
    """make_agent draws them with the seed of each member. One weight is enough: flax draws the others in the same way."""
    def make_custom(spec, cfg):
        rngs, size = nnx.Rngs(cfg.seed), spec.obs_shape[0]
        head = make_head(lambda outputs: nnx.Linear(size, outputs, rngs=rngs), spec.action_space)
        return SeparateAgent(nnx.Linear(size, 1, rngs=rngs), head)

    cfgs = [replace(BASE, seed=seed, learning_rate=1e-12) for seed in (1, 2)]  # the weights stay as they were
    together = [it.weights() for it in next(train_group(cfgs, make_envs, make_custom))]
    for cfg, weights in zip(cfgs, together):
        expected = next(train(cfg, make_envs, make_custom)).weights()
        for name, x in expected.items():
            np.testing.assert_allclose(weights[name], x, atol=1e-6)
    assert not np.allclose(together[0]["critic.kernel"], together[1]["critic.kernel"])


def test_members_whose_networks_have_other_constants_are_refused():
    """The compiled function would use those of the first member."""
    def make_custom(spec, cfg):
        agent = make_agent(spec, cfg)
        agent.shift = np.full(2, cfg.seed, np.float32)
        return agent

    with pytest.raises(UsageError, match="the constants shift different for runs that train at once"):
        next(train_group([replace(BASE, seed=seed) for seed in (1, 2)], make_envs, make_custom))
    next(train_group([BASE, replace(BASE, learning_rate=1e-3)], make_envs, make_custom))


def test_a_resume_leaves_the_factor_of_the_learning_rate_at_its_limit():
    """The limit is 1e-2 / learning_rate. The compiled function divides in float32, which rounds up for this rate."""
    rate = 0.0025276381909547737
    assert np.float32(1e-2) / np.float32(rate) > np.float32(1e-2 / rate)
    cfgs = [replace(BASE, learning_rate=x, desired_kl=0.9, update_epochs=4) for x in (rate, 5e-3)]
    kept = [it.snapshot() for it in next(train_group(cfgs, make_envs, make_agent))]
    player = make_inside_player(cfgs[0], make_envs, make_agent, ppo_loss)
    states = continue_members(cfgs, player, first_states(cfgs, player, make_agent), kept)
    assert [float(state.adam.scale) for state in states] == [float(one["adam"][".scale"]) for one in kept]
    assert float(states[0].adam.scale) > 3.9


def test_rollouts_that_do_not_fit_into_the_memory_together_are_refused(monkeypatch):
    """One fits, a thousand do not. On a CPU, a thousand runs have one rollout for each device at a time."""
    monkeypatch.setattr("proximo.envs.machine.memory.machine_bytes", lambda: 300_000)
    make_inside_player(BASE, make_envs, make_agent, ppo_loss)
    with pytest.raises(UsageError, match="num_steps=4 x num_envs=2 x 1000 runs = 8,000 observations"):
        make_inside_player(BASE, make_envs, make_agent, ppo_loss, 1000)
    assert at_once(SimpleNamespace(size=2), 1000) == 2
    monkeypatch.setattr("proximo.on_jax.members.on_cpu", lambda: False)
    assert at_once(SimpleNamespace(size=1), 1000) == 1000


def test_whole_floats_are_converted():
    """The check of configurations accepts them."""
    cfgs = [replace(BASE, total_timesteps=24.0, num_envs=2.0, seed=seed) for seed in (1, 2)]
    assert [its[1].iteration for its in train_group(cfgs, make_envs, make_agent)] == [1, 2, 3]


def test_members_are_stacked_and_read_without_compiling(caplog):
    """A function for every shape and number of members would take longer than training begins. Keys come out too."""
    player = make_inside_player(BASE, make_envs, make_agent, ppo_loss)
    states = [first_state(player, seed, player.begin(seed, None)) for seed in range(3)]
    HostState(lambda: stack_members(states[:2])).member(0)  # what every number of members needs
    with jax.log_compiles():
        stacked = stack_members(states)
        copied = HostState(lambda: stacked)
        found = [copied.member(m) for m in range(3)]
    assert not [record.message for record in caplog.records if "compil" in record.message.lower()]
    assert jax.tree.structure(stacked) == jax.tree.structure(states[0])
    for one, state in zip(found, states, strict=True):
        for x, expected in zip(jax.tree.leaves(one), jax.tree.leaves(state), strict=True):
            np.testing.assert_array_equal(x, plain(expected))


def test_threads_that_save_members_copy_the_state_once(monkeypatch):
    """Otherwise 64 members that are saved at the same time would need 64 times the memory."""
    copies = []

    def slow(x):
        copies.append(x)
        time.sleep(0.05)
        return x

    monkeypatch.setattr("proximo.on_jax.members.plain", slow)
    state = HostState(lambda: np.arange(4))
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(state.member, range(4))) == [0, 1, 2, 3]
    assert len(copies) == 1
