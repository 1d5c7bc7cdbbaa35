"""A network of one's own that acts with values of another shape, or with none, is refused with a sentence.

torch broadcast them or ended with its own error, and learned from zeros where there were none.
"""

import pytest
import torch

import proximo
from proximo.errors import UsageError


def torch_agent(changed):
    from proximo.on_torch.agent import SharedAgent
    from proximo.on_torch.distributions import CategoricalHead

    def make(spec, cfg):
        linear = torch.nn.Linear
        return changed(SharedAgent)(linear(4, 8), linear(8, 1), CategoricalHead(linear(8, 2), 2))

    return make


def jax_agent(changed):
    from flax import nnx

    from proximo.on_jax.agent import SharedAgent
    from proximo.on_jax.distributions import CategoricalHead

    def make(spec, cfg):
        def linear(*sizes):
            return nnx.Linear(*sizes, rngs=nnx.Rngs(0))

        return changed(SharedAgent)(linear(4, 8), linear(8, 1), CategoricalHead(linear(8, 2), 2))

    return make


def wide_act(base):
    class Agent(base):
        def act(self, *given):
            acted = super().act(*given)
            return acted._replace(value=acted.value[:, None])
    return Agent


def act_without_values(base):
    class Agent(base):
        def act(self, *given):
            return super().act(*given)._replace(value=None, logprob=None)
    return Agent


def wide_value(base):
    class Agent(base):
        def value(self, *given):
            return super().value(*given)[:, None]
    return Agent


PLACES = [("torch", {}), ("torch", {"env_groups": 2, "env_workers": 2}), ("jax", {}), ("jax", {"engine": "gym"})]


@pytest.mark.parametrize(("framework", "settings"), PLACES, ids=str)
@pytest.mark.parametrize(("changed", "sentence"), [
    (wide_act, r"computes value of shape \((\d), 1\) for a step of shape \(\1,\)\. Return one number per row"),
    (wide_value, r"computes value of shape \((\d), 1\) for a step of shape \(\1,\)\. Return one number per row"),
    (act_without_values, r"computes no logprob for a step .*\n.*computes no value for a step"),
], ids=["act", "value", "none"])
def test_acting_gives_one_number_per_row(framework, settings, changed, sentence, tmp_path):
    if framework == "jax":
        pytest.importorskip("jax")
    make = {"torch": torch_agent, "jax": jax_agent}[framework](changed)
    with pytest.raises(UsageError, match=sentence):
        proximo.train("ppo", env_id="CartPole-v1", framework=framework, num_envs=4, num_steps=8, total_timesteps=64,
                      make_agent=make, run_dir=str(tmp_path / "run"), **settings)


def one_action(base):
    class Agent(base):
        def act(self, *given):
            acted = super().act(*given)
            return acted._replace(action=acted.action[:1])
    return Agent


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_one_action_for_all_rows_is_refused(framework, tmp_path):
    """It was that of every environment."""
    if framework == "jax":
        pytest.importorskip("jax")
    make = {"torch": torch_agent, "jax": jax_agent}[framework](one_action)
    with pytest.raises(UsageError, match=r"acts by an array of shape \(1,\) .* as the head declares them: shape \(4,\)"):
        proximo.train("ppo", env_id="CartPole-v1", framework=framework, num_envs=4, num_steps=8, total_timesteps=64,
                      make_agent=make, run_dir=str(tmp_path / "run"))


def test_a_network_of_another_width_is_named_in_jax(tmp_path):
    """It ended in an error of JAX."""
    pytest.importorskip("jax")
    from flax import nnx

    from proximo.on_jax.agent import SharedAgent
    from proximo.on_jax.distributions import CategoricalHead

    def make(spec, cfg):
        def linear(*sizes):
            return nnx.Linear(*sizes, rngs=nnx.Rngs(0))

        return SharedAgent(linear(5, 8), linear(8, 1), CategoricalHead(linear(8, 2), 2))

    with pytest.raises(UsageError, match=r"The network raised TypeError: dot_general .* shape \(4, 4\)\. Correct make_agent"):
        proximo.train("ppo", env_id="CartPole-v1", framework="jax", num_envs=4, num_steps=8, total_timesteps=64,
                      make_agent=make, run_dir=str(tmp_path / "run"))
