"""What a program passes to training on JAX: networks that cannot be trained, and losses that do not train them."""

import re
from dataclasses import dataclass
from inspect import getsourcelines

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import proximo
from proximo.catalog import parts_of
from proximo.config import Config
from proximo.errors import UsageError, warn_once
from proximo.on_jax import checks
from proximo.on_jax.agent import SeparateAgent, SharedAgent
from proximo.on_jax.assemble import make_head
from proximo.on_jax.checks import check_agent, check_constants, checked_loss, problems_of_variables
from proximo.on_jax.distributions import CategoricalHead
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.networks import Linear, NatureCNN
from proximo.on_jax.parameters import layer_init
from proximo.on_jax.setup import NEEDED_SETTINGS, check_settings
from proximo.on_jax.train import train
from proximo.types import LossInputs

_, make_envs, make_agent, *_ = parts_of("ppo", "jax")
SMALL = Config(framework="jax", engine="jax", num_envs=2, num_steps=4, total_timesteps=8, num_minibatches=2, update_epochs=1,
               hidden_sizes=(8,))


class Scaled(nnx.Module):
    """A layer of flax with a constant."""

    def __init__(self, inputs, outputs, scale):
        self.linear, self.scale = nnx.Linear(inputs, outputs, rngs=nnx.Rngs(0)), scale

    def __call__(self, x):
        return self.linear(x * self.scale)


def make_scaled(scale, kind=SeparateAgent):
    """Make the function that makes an agent of such layers."""
    def make(spec, cfg):
        size = spec.obs_shape[0]
        return kind(Scaled(size, 1, scale), make_head(lambda outputs: Scaled(size, outputs, scale), spec.action_space))

    return make


def test_variables_that_are_not_parameters_are_refused():
    """BatchNorm's running statistics would neither change nor be saved, and dropout would not be the same in a resume."""
    assert problems_of_variables(NatureCNN((1, 36, 36))) == []
    [sentence] = problems_of_variables(nnx.BatchNorm(3, rngs=nnx.Rngs(0)))
    assert "not parameters: mean, var. Under JAX" in sentence
    [sentence] = problems_of_variables(nnx.Dropout(0.5, rngs=nnx.Rngs(0)))
    assert "draws random numbers (dropout) from rngs.count, rngs.key, so that a resume" in sentence


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.int32])
def test_parameters_of_other_dtypes_are_refused(dtype):
    [sentence] = problems_of_variables(nnx.Dict(x=nnx.Param(jnp.zeros(3, dtype)), y=nnx.Param(np.zeros(3))))
    assert f"x is {np.dtype(dtype)}." in sentence and "y" not in sentence.split(":")[1].split(".")[0]


@pytest.mark.parametrize("array", [np, jnp], ids=["numpy", "jax"])
def test_an_array_of_a_module_is_a_constant(array):
    """The advice of the message about variables: it acts in the network, and is no weight."""
    once, twice = (next(train(SMALL, make_envs, make_scaled(array.full(4, x, np.float32)))) for x in (1, 2))
    assert once.weights().keys() == {"critic.linear.kernel", "critic.linear.bias", "head.network.linear.kernel",
                                     "head.network.linear.bias"}
    assert once.stats["losses/value_loss"] != twice.stats["losses/value_loss"]


@pytest.mark.parametrize(("equal", "other"), [(np.ones(4), np.zeros(4)), (1.0, 0.5)], ids=["arrays", "floats"])
def test_constants_of_runs_that_train_at_once_must_be_equal(equal, other):
    """The compiled function has those of the first one: also the number of a sweep that make_agent gives a layer."""
    def agents(*scales):
        return [nnx.List([Scaled(4, 1, scale)]) for scale in scales]

    check_constants(agents(equal, equal))
    with pytest.raises(UsageError, match="the constants 0.scale different"):
        check_constants(agents(equal, other))


@pytest.mark.parametrize(("agent", "sentence"), [
    (lambda: None, "returned None, which is not an nnx.Module. Return an agent such as SeparateAgent"),
    (lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)),
     "returned torch.nn.modules.container.Sequential, which is not an nnx.Module. .*, or train with framework=\"torch\".$"),
    (lambda: nnx.Linear(4, 2, rngs=nnx.Rngs(0)), "returned Linear, which lacks recurrent, evaluates_later, head, ")])
def test_what_is_no_agent_is_refused(agent, sentence):
    with pytest.raises(UsageError, match=sentence):
        check_agent(agent())


class Column(SeparateAgent):
    """An agent that forgets to remove the last axis of its values."""

    def __call__(self, obs, mask, first, state):
        return self.head(obs, mask), self.critic(obs), state


def test_values_with_a_second_axis_are_refused():
    """Their differences from the returns (B,) would be a matrix (B, B)."""
    with pytest.raises(UsageError, match=r"computes value of shape \(4, 1\) for rows of shape \(4,\)"):
        next(train(SMALL, make_envs, make_scaled(1.0, Column)))


@pytest.mark.parametrize("loss_of", [lambda loss, batch: jax.lax.stop_gradient(loss), lambda loss, batch: 0.5,
                                     lambda loss, batch: batch.ret.mean(), lambda loss, batch: (batch.value > 0).sum()],
                         ids=["stopped", "a constant", "of the returns", "a whole number"])
def test_a_loss_without_a_gradient_is_refused(loss_of):
    """It would train nothing. On torch it is refused too."""
    def loss_fn(batch, cfg):
        loss, stats = ppo_loss(batch, cfg)
        return loss_of(loss, batch), stats

    with pytest.raises(UsageError, match="has no gradient. Compute it from batch without stop_gradient"):
        next(train(SMALL, make_envs, make_agent, loss_fn))


def loss_that_raises(batch, cfg):
    raise KeyError("advantages")


@pytest.mark.parametrize(("loss_fn", "said"), [
    (loss_that_raises, r"^The loss function raised KeyError: 'advantages' \(.*test_checks\.py, line \d+\)\. Under JAX"),
    (lambda batch, cfg: (batch.logprob.detach().mean(), {"loss": 0.0}), "^The loss function raised AttributeError.*computes with jax.numpy"),
    (lambda batch, cfg: (batch.value, {"loss": 0.0}), r"the loss=an array float32 \(4,\)\. It must be an array with one number"),
    (lambda batch, cfg: batch.value, r"^The loss function returns an array float32 \(4,\)\. Return the loss, and a dict"),
    (lambda batch, cfg: (batch.value.mean(), {"loss": np.float32(1)}), r"loss=np\.float32\(1\.0\)\. It must be"),
    (lambda batch, cfg: (batch.value.mean(), {}), r'no statistics\. Return at least one: {"loss": loss}\.')])
def test_a_loss_that_cannot_be_used_is_described(loss_fn, said):
    """Exceptions were passed on, and arrays were shown as tracers of JAX."""
    with pytest.raises(UsageError, match=said):
        next(train(SMALL, make_envs, make_agent, loss_fn))


@pytest.mark.parametrize("name", ["logprob", "value", "entropy"])
def test_a_loss_of_one_output_of_the_network_is_enough(name):
    """The check leaves its gradient as it is: that of a sum of squares is twice the output."""
    def loss_of(x):
        rows = dict.fromkeys(LossInputs._fields, jnp.ones(3)) | {name: x}
        return checked_loss(lambda batch, cfg: ((getattr(batch, name) ** 2).sum(), {"loss": 0.0}), LossInputs(**rows), SMALL)[0]

    found = jax.jit(jax.grad(loss_of))(jnp.arange(3.0))
    np.testing.assert_array_equal(found, [0, 2, 4])


def test_float64_is_refused():
    """JAX_ENABLE_X64 of another program's environment."""
    with jax.enable_x64(True), pytest.raises(UsageError, match="jax_enable_x64=True, and training needs False. Unset JAX_ENABLE_X64"):
        next(train(SMALL, make_envs, make_agent))


@pytest.mark.parametrize("name, value", [("jax_default_prng_impl", "rbg"), ("jax_threefry_partitionable", False),
                                         ("jax_numpy_rank_promotion", "raise"), ("jax_numpy_dtype_promotion", "strict")])
def test_settings_of_jax_that_change_the_numbers_are_refused(name, value):
    """A program has set them for its own computations. The settings that the message names are accepted."""
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        with pytest.raises(UsageError, match=f"JAX is set to {name}={value}, and training needs"):
            check_settings()
        for accepted in NEEDED_SETTINGS[name]:
            jax.config.update(name, accepted)
            check_settings()
    finally:
        jax.config.update(name, getattr(before, "value", before))


@dataclass(frozen=True)
class Stepped(Config):
    def learning_rate_at(self, iteration):
        return self.learning_rate * (0.5 if iteration > 2 else 1.0)


@dataclass(frozen=True)
class Bounded(Config):
    def __post_init__(self):
        assert self.learning_rate < 1


def loss_with_if(inputs, cfg):
    assert inputs.value.mean() < 1e9
    return ppo_loss(inputs, cfg)


@pytest.mark.parametrize("trunk", [
    lambda obs: np.clip(obs, -1, 1), lambda obs: np.stack([obs]), lambda obs: np.eye(4)[obs[..., 0].argmax()]])
def test_numpy_in_a_network_is_named_with_its_line_and_what_to_use(trunk):
    """The line was one of numpy, and nothing was said about tables."""
    def make(spec, cfg):
        class Trunk(nnx.Module):
            def __call__(self, obs):
                return trunk(obs)

        return SharedAgent(Trunk(), Linear(4, 1), make_head(lambda size: Linear(4, size), spec.action_space))

    with pytest.raises(UsageError, match=rf"^{re.escape(__file__)}, line \d+ needs .* np\.tanh, and jnp\.asarray\(TABLE\)\[index\]"):
        next(train(SMALL, make_envs, make))


def place(function):
    """The place of the line below `def`, as errors name it."""
    return re.escape(f"{__file__}, line {getsourcelines(function)[1] + 1} needs the value of a number of JAX")


@pytest.mark.parametrize("engine", ["auto", "gym"])
@pytest.mark.parametrize(("config", "own", "function"), [
    (Stepped, {}, Stepped.learning_rate_at), (Config, {"loss_fn": loss_with_if}, loss_with_if)])
def test_a_condition_on_a_traced_number_is_named_with_its_line(engine, config, own, function, tmp_path):
    """It was a TracerBoolConversionError of JAX."""
    with pytest.raises(UsageError, match=place(function)):
        proximo.train(config, env_id="CartPole-v1", framework="jax", engine=engine, num_steps=8, total_timesteps=64,
                      run_dir=tmp_path / "run", **own)


def test_a_condition_on_a_number_of_a_sweep_is_named_with_its_line(tmp_path):
    with pytest.raises(UsageError, match=place(Bounded.__post_init__)):
        proximo.sweep(Bounded, env_id="CartPole-v1", num_steps=8, total_timesteps=64, run_dir=tmp_path / "runs",
                      learning_rate=[1e-3, 1e-4])


class CustomMemory(nnx.Module):
    """A GRU, and the faults that one can have: where its state is not set to 0, or is not the one that it is given."""

    def __init__(self, fault):
        self.cell, self.fault = nnx.GRUCell(8, 8, rngs=nnx.Rngs(0)), fault

    def initial_state(self, num_envs):
        return (jnp.zeros((num_envs, 8)),)

    def __call__(self, x, first, state):
        acts, state = first.ndim == 1, state[0]
        if self.fault == "begins at zero" and not acts:
            state = jnp.zeros_like(state)
        outputs = []
        for row, begins in zip(x[None] if acts else x, first[None] if acts else first):
            if self.fault != ("ignores first in a step" if acts else "ignores first in a sequence"):
                state = jnp.where(begins[:, None], 0.0, state)
            state, _ = self.cell(state, row)
            outputs.append(state)
        return (outputs[0] if acts else jnp.stack(outputs)), (state,)


@pytest.mark.parametrize("engine", ["jax", "gym"])
@pytest.mark.parametrize("fault", ["", "begins at zero", "ignores first in a step", "ignores first in a sequence"])
def test_a_recurrent_network_that_learns_from_other_states_than_it_acted_on_is_warned_of(fault, engine, caplog):
    """As on torch: its ratio of probabilities is not 1 before the first step."""
    def make_agent(spec, cfg):
        return SharedAgent(layer_init(Linear(4, 8)), layer_init(Linear(8, 1)), CategoricalHead(layer_init(Linear(8, 2)), 2),
                           CustomMemory(fault))

    warn_once.cache_clear()
    next(proximo.iterations(SMALL, engine=engine, make_agent=make_agent, num_minibatches=1))
    assert caplog.text.count("The ratio of old and new probabilities is therefore not 1") == bool(fault)


def test_built_in_recurrent_networks_are_not_compiled_for_the_comparison(monkeypatch):
    def refuse(agent, carry):
        raise AssertionError

    monkeypatch.setattr(checks, "check_sequence", refuse)
    next(proximo.iterations(SMALL, recurrent="gru"))


@pytest.mark.parametrize("part", [Scaled(4, 2, 1.0), flax.linen.Dense(2)])
def test_a_network_in_place_of_a_function_that_makes_one_is_refused(part, tmp_path):
    with pytest.raises(UsageError, match=r"is a network, and a function that makes one is needed. Pass \(spec, cfg\) -> the"):
        proximo.train(SMALL, make_agent=part, logger="none", run_dir=tmp_path / "run")
