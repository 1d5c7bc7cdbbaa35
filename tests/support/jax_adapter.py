"""JAX behind the interface of tests/support/frameworks.py."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from proximo.on_jax import distributions, learner
from proximo.on_jax.agent import assemble
from proximo.on_jax.gae import gae
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.networks import binder, initial_weights
from proximo.on_jax.optimizer import apply_gradient, start_adam
from proximo.on_jax.rollout import Carry, Policy, Storage, collect, collect_host
from proximo.protocols import Episode
from proximo.types import LossInputs
from tests.support.frameworks import AdamRecord, NumpyAgent, NumpyHead, map_tree
from tests.support.scripted import PLAIN, Recorded, make_scripted
from tests.support.scripted_pure import ScriptedPure


class Adapter:
    """Numpy arrays in, numpy arrays out."""

    name = "jax"

    def __init__(self):
        self.compiled_gae, self.compiled_update = jax.jit(gae), jax.jit(self.update_once, static_argnums=(0, 7))

    def float64(self):
        return jax.enable_x64(True)

    def float32(self):
        return jax.enable_x64(False)

    def to_array(self, tree):
        return map_tree(lambda x: jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x, tree)

    def to_numpy(self, tree):
        return map_tree(lambda x: np.array(x) if isinstance(x, jax.Array) and not jnp.issubdtype(
            x.dtype, jax.dtypes.prng_key) else x, tree)

    def make_key(self, seed):
        return jax.random.key(seed)

    def gradient(self, function, *inputs):
        """Return the gradients of function(*inputs), a scalar, with respect to each input."""
        return [np.asarray(x) for x in jax.grad(function, tuple(range(len(inputs))))(*self.to_array(inputs))]

    def gae(self, reward, value, next_value, terminated, done, gamma, gae_lambda):
        return np.asarray(self.compiled_gae(reward, value, next_value, terminated, done, gamma, gae_lambda))

    def loss(self, rows, cfg):
        """Return the loss, a scalar, and its statistics, for a dict with the fields of LossInputs."""
        loss, stats = ppo_loss(*LossInputs(**self.to_array(rows)), cfg)
        return float(loss), {name: float(x) for name, x in stats.items()}

    def loss_gradient(self, rows, names, cfg):
        """Return the gradients of the loss with respect to the named rows."""
        others = self.to_array({name: x for name, x in rows.items() if name not in names})
        return self.gradient(lambda *given: ppo_loss(*LossInputs(**dict(zip(names, given)), **others), cfg)[0],
                             *(rows[name] for name in names))

    def make_head(self, kind, *args):
        """Make a head over features that are its parameters already."""
        return NumpyHead(self, getattr(distributions, kind)(lambda features: features, *args))

    def set_logstd(self, head, logstd):
        head.raw.logstd[...] = jnp.asarray(logstd)

    def logstd_gradient(self, head, features, action):
        """Return the gradient of the sum of log-densities with respect to the logarithm of the deviation."""
        def total(logstd):
            self.set_logstd(head, logstd)
            return head.raw(features, None).logprob(action).sum()

        return np.asarray(jax.grad(total)(jnp.zeros(features.shape[-1])))

    def make_agent(self, spec, cfg, seed=0, factor=1.0):
        """Make an agent in float64 with the weights of its heads multiplied by a factor."""
        agent = assemble(spec, cfg)
        weights = {name: jnp.asarray(x, jnp.float64) for name, x in initial_weights(
            agent, np.random.default_rng(seed)).items()}
        for name in weights:
            if name.startswith("head.") and "weight" in name:
                weights[name] = factor * weights[name]
        bound = NumpyAgent(self, binder(agent)(weights))
        bound.graph, bound.values = agent, weights
        return bound

    def weights(self, agent):
        return self.to_numpy(agent.values)

    def weight_gradient(self, agent, function):
        """Return the gradients of function(raw agent), a scalar, by the names of the weights."""
        return self.to_numpy(jax.grad(lambda weights: function(binder(agent.graph)(weights)))(agent.values))

    def collect(self, mode, patterns, steps, rollouts=1, agent=PLAIN):
        """Return one Recorded for each of consecutive rollouts in scripted environments."""
        play = self.start_inside(patterns, agent) if mode == "inside" else self.start_host(mode, patterns, steps, agent)
        records = []
        for number in range(rollouts):
            noise = np.asarray(jax.random.gumbel(self.make_key(number), (steps, len(patterns), 2)))
            rollout, episodes = play(noise)
            episode = Episode(finished=episodes.finished, ret=episodes.ret, length=episodes.length)
            records.append(Recorded(*map_tree(lambda x: None if x is None else np.array(x), (rollout, episode, noise))))
        return records

    def start_host(self, mode, patterns, steps, agent):
        """Reset environments outside the compiled function; return noise -> (rollout, episodes)."""
        envs = make_scripted(mode, patterns)
        policy = Policy(acting=lambda weights: agent.act, value=lambda weights, *args: agent.value(*args),
                        evaluate=(lambda weights, *args: agent.evaluate(*args)) if agent.evaluates_later else None)
        storage = Storage(envs, steps, SimpleNamespace(action_shape=(), action_dtype=np.int32), None)
        step = envs.reset()
        state = () if agent.evaluates_later else (np.zeros(len(patterns)),)
        carry = Carry(obs=step.obs, mask=None, first=step.first, state=state)

        def play(noise):
            nonlocal carry
            rollout, carry, episodes = collect_host(policy, {}, envs, carry, storage, noise)
            return rollout, episodes

        return play

    def start_inside(self, patterns, agent):
        """Reset environments inside the compiled function; return noise -> (rollout, episodes)."""
        envs = ScriptedPure(patterns)
        env_state, step = envs.reset(self.make_key(0))
        state = () if agent.evaluates_later else (jnp.zeros(len(patterns), jnp.float32),)
        carry = Carry(obs=step.obs, mask=None, first=step.first, state=state)

        @jax.jit
        def compiled(env_state, carry, noise):
            return collect(agent, envs, env_state, carry, noise)

        def play(noise):
            nonlocal env_state, carry
            rollout, env_state, carry, episodes = compiled(env_state, carry, noise)
            return rollout, episodes

        return play

    def adam_steps(self, weights, gradients, rates, eps, max_grad_norm):
        """Apply one step of Adam for each gradient and rate.

        Returns:
            One AdamRecord per step.
        """
        adam, records = start_adam(self.to_array(weights)), []
        for gradient, rate in zip(gradients, rates, strict=True):
            adam, norm = apply_gradient(adam, self.to_array(gradient), rate, eps, max_grad_norm)
            parts = [self.to_numpy(dict(x)) for x in adam[:3]]
            records.append(AdamRecord(*parts, norm=float(norm), step=int(adam.step), ok=bool(adam.ok)))
        return records

    def normalize_advantage(self, advantage, valid, index, recurrent, cfg):
        return self.to_numpy(learner.normalized_advantage(*self.to_array((advantage, valid, index)), recurrent, cfg,
                                                          lambda x: x))

    def explained_variance(self, value, ret, valid):
        return np.asarray(learner.explained_variance(*self.to_array((value, ret, valid)), lambda x: x))

    def select_minibatch(self, batch, index, recurrent):
        return self.to_numpy(learner.take(*self.to_array((batch, index)), recurrent))

    def update(self, agent, rollout, advantage, ret, index, learning_rate, cfg):
        """Run one update of an agent without a recurrent layer.

        Returns:
            The weights by name, the statistics, the number of minibatches that ran, and `ok` of Adam.
        """
        adam, stats = self.compiled_update(agent.graph, agent.values, rollout, advantage, ret, index, learning_rate, cfg)
        return self.to_numpy(adam.weights), {name: float(x) for name, x in stats.items()}, int(adam.step), bool(adam.ok)

    def update_once(self, graph, weights, rollout, advantage, ret, index, learning_rate, cfg):
        """Run one update from the initial state of Adam; to be compiled."""
        functions = learner.Learner(bound=binder(graph), loss_fn=ppo_loss, average=lambda x: x, unroll=False)
        rows, count = learner.normalized_advantage(advantage, rollout.valid, index, False, cfg, lambda x: x)
        batch = learner.flat_batch(rollout, ret, (), False)
        return learner.update(functions, start_adam(weights), batch, rows, count,
                              learner.Draws(minibatch=index, noise=None), learning_rate, cfg.clip_coef, cfg)
