"""JAX behind the interface of tests/support/frameworks.py."""

from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from proximo.on_jax import bounded, box_heads, distributions, learner, play_host, rollout
from proximo.on_jax.assemble import assemble
from proximo.on_jax.gae import estimate_advantages, gae, without_fillers
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.parameters import initial_weights, make_bind
from proximo.on_jax.value_norm import count_returns, with_normalized_values
from proximo.types import Carry, Coefficients, LossInputs, Minibatches, RolloutBuffer
from tests.support.frameworks import AdamRecord, NumpyAgent, NumpyHead, map_tree
from tests.support.normalized import RAW
from tests.support.scripted import PLAIN, Recorded, make_scripted
from tests.support.scripted_pure import ScriptedPure

# Compiles large networks in half the time. What it computes is the same up to rounding.
compile_fast = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def identity(x):
    return x


class Compiled:
    """A module whose call is compiled; otherwise JAX would compile every operation by itself."""

    def __init__(self, module):
        self.module, self.call = module, compile_fast(module)

    def __call__(self, *args):
        return self.call(*args)

    def __getattr__(self, name):
        return getattr(self.module, name)


class BoundAgent(NumpyAgent):
    """An agent with its description and its weights by name."""

    def __init__(self, framework, description, weights):
        super().__init__(framework, make_bind(description)(weights))
        self.description, self.weights = description, weights


class Adapter:
    """Numpy arrays in, numpy arrays out."""

    name = "jax"

    def __init__(self):
        self.compiled_gae = compile_fast(gae)
        self.compiled_updates = {}

    def float64(self):
        return jax.enable_x64(True)

    def float32(self):
        return jax.enable_x64(False)

    def to_array(self, tree):
        return map_tree(lambda x: jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x, tree)

    def to_numpy(self, tree):
        return map_tree(lambda x: np.array(x) if isinstance(x, (jax.Array, np.ndarray)) else x, tree)

    def make_key(self, seed):
        return jax.random.key(seed)

    def gradient(self, function, *inputs):
        """Return the gradients of function(*inputs), a scalar, with respect to each input."""
        return [np.asarray(x) for x in jax.grad(function, tuple(range(len(inputs))))(*self.to_array(inputs))]

    def gae(self, reward, value, next_value, terminated, done, gamma, gae_lambda):
        return np.asarray(self.compiled_gae(reward, value, next_value, terminated, done, gamma, gae_lambda))

    def without_fillers(self, rollout):
        return self.to_numpy(without_fillers(self.to_array(rollout)))

    def loss(self, rows, cfg):
        """Return the loss, a scalar, and its statistics, for a dict with the fields of LossInputs."""
        loss, stats = ppo_loss(LossInputs(**self.to_array(rows)), cfg)
        return float(loss), {name: float(x) for name, x in stats.items()}

    def loss_gradient(self, rows, names, cfg):
        """Return the gradients of the loss with respect to the named rows."""
        others = self.to_array({name: x for name, x in rows.items() if name not in names})
        return self.gradient(lambda *given: ppo_loss(LossInputs(**dict(zip(names, given)), **others), cfg)[0],
                             *(rows[name] for name in names))

    def make_head(self, kind, *args):
        """Make a head over features that are its parameters already."""
        return NumpyHead(self, next(getattr(module, kind) for module in (bounded, box_heads, distributions) if hasattr(module, kind))(identity, *args))

    def set_logstd(self, head, logstd):
        head.raw = make_bind(head.raw)({"logstd": jnp.asarray(logstd)})

    def logstd_gradient(self, head, features, action):
        """Return the gradient of the sum of log-densities with respect to the logarithm of the deviation."""
        bind = make_bind(head.raw)
        return np.asarray(jax.grad(lambda logstd: bind({"logstd": logstd})(features, None).logprob(action).sum())(
            jnp.zeros(features.shape[-1])))

    def make_agent(self, spec, cfg, seed=0, factor=1.0):
        """Make an agent in float64 with the weights of its heads multiplied by a factor."""
        agent = assemble(spec, cfg)
        weights = {name: jnp.asarray(x, jnp.float64) * (factor if name.startswith("head.") and "weight" in name else 1)
                   for name, x in initial_weights(agent, np.random.default_rng(seed)).items()}
        bound = BoundAgent(self, agent, weights)
        for owner, part in ((bound.raw, "trunk"), (bound.raw, "memory"), (bound.raw, "critic"),
                            (bound.raw.head, "network")):
            if hasattr(owner, part):
                setattr(owner, part, Compiled(getattr(owner, part)))
        return bound

    def weights(self, agent):
        return self.to_numpy(agent.weights)

    def weight_gradient(self, agent, function):
        """Return the gradients of function(raw agent), a scalar, by the names of the weights."""
        bind = make_bind(agent.description)
        return self.to_numpy(jax.grad(lambda weights: function(bind(weights)))(agent.weights))

    def collect(self, mode, patterns, steps, rollouts=1, agent=PLAIN):
        """Return one Recorded for each of consecutive rollouts in scripted environments."""
        play = self.start_inside(patterns, agent) if mode == "inside" else self.start_host(mode, patterns, steps, agent)
        records = []
        for number in range(rollouts):
            noise = np.asarray(jax.random.gumbel(self.make_key(number), (steps, len(patterns), 2)))
            collected = play(noise)
            records.append(Recorded(*self.to_numpy((collected.rollout, collected.episode, noise))))
        return records

    def start_host(self, mode, patterns, steps, agent):
        """Reset environments outside the compiled function. Returns the function from noise to Collected."""
        def evaluate(buffer, closing):
            arrays = buffer.arrays
            if agent.evaluates_later:
                logprob, value = agent.evaluate(arrays["obs"], None, arrays["action"])
                return logprob, value[:-1], value[-1]
            never = np.zeros_like(closing.first)
            return arrays["logprob"], arrays["value"], agent.value(closing.obs, never, closing.state)

        envs, policy = make_scripted(mode, patterns), play_host.Policy(
            agent.act, agent.value, evaluate, agent.evaluates_later)
        buffer = RolloutBuffer(envs, envs.obs_dtype, steps, SimpleNamespace(action_shape=(), action_dtype=np.int32), None)
        step = envs.reset()
        carry = Carry(obs=step.obs, mask=None, first=step.first, state=agent.initial_state(np.zeros(len(patterns))),
                      statistics=None)

        def play(noise):
            nonlocal carry
            collected = play_host.collect_on_host(policy, envs, RAW, carry, buffer, noise)
            carry = collected.carry
            return collected

        return play

    def start_inside(self, patterns, agent):
        """Reset environments inside the compiled function. Returns the function from noise to Collected."""
        envs = ScriptedPure(patterns)
        env_state, step = envs.reset(self.make_key(0))
        carry = Carry(obs=step.obs, mask=None, first=step.first,
                      state=agent.initial_state(jnp.zeros(len(patterns), jnp.float32)), statistics=None)

        def play(noise):
            nonlocal env_state, carry
            collected = compiled_collect(agent)(self.to_array(patterns), env_state, carry, noise)
            env_state, carry = collected.envs, collected.carry
            return collected

        return play

    def adam_steps(self, weights, gradients, rates, eps, max_grad_norm):
        """Apply one step of Adam for each gradient and rate.

        Returns:
            One AdamRecord per step.
        """
        adam, records, apply = learner.start_adam(weights), [], compile_fast(learner.apply_gradient)
        for gradient, rate in zip(gradients, rates, strict=True):
            adam, norm = apply(adam, gradient, rate, eps, max_grad_norm)
            parts = [self.to_numpy(dict(x)) for x in adam[:3]]
            records.append(AdamRecord(*parts, norm=float(norm), step=int(adam.step), ok=bool(adam.ok)))
        return records

    def minibatch_advantages(self, advantage, valid, index, recurrent, cfg):
        return self.to_numpy(learner.minibatch_advantages(*self.to_array((advantage, valid, index)), recurrent, cfg,
                                                         identity))

    def explained_variance(self, value, ret, valid):
        return float(learner.explained_variance(*self.to_array((value, ret, valid)), identity))

    def select_minibatch(self, batch, index, recurrent):
        return self.to_numpy(learner.select_minibatch(*self.to_array((batch, index)), recurrent))

    def count_returns(self, agent, ret, valid):
        """Add returns to the moments of an agent."""
        agent.weights = count_returns(agent.weights, jnp.asarray(ret), jnp.asarray(valid), identity)
        agent.raw = make_bind(agent.description)(agent.weights)

    def update(self, agent, rollout, advantage, ret, index, learning_rate, cfg):
        """Run one update of an agent without a recurrent layer.

        Returns:
            The weights by name, the statistics, the number of minibatches that ran, and `ok` of Adam.
        """
        key = cfg, tuple(agent.weights)
        if key not in self.compiled_updates:  # JAX itself would compile for every new description of the same agent
            self.compiled_updates[key] = compile_fast(partial(self.update_once, agent.description, cfg))
        adam, stats = self.compiled_updates[key](agent.weights, rollout, advantage, ret, index, learning_rate)
        return self.to_numpy(adam.weights), {name: float(x) for name, x in stats.items()}, int(adam.step), bool(adam.ok)

    def update_once(self, description, cfg, weights, rollout, advantage, ret, index, learning_rate):
        """Run one update from the initial state of Adam. To be compiled."""
        loss_fn = with_normalized_values(ppo_loss) if cfg.norm_value else ppo_loss
        functions = learner.Learner(cfg=cfg, agent=description, bind=make_bind(description), loss_fn=loss_fn,
                                    all_reduce_sum=identity, estimate=estimate_advantages, gradient=learner.compute_gradient,
                                    apply=learner.apply_gradient, update=learner.update, divisible=False)
        rows, count = learner.minibatch_advantages(advantage, rollout.valid, index, False, cfg, identity)
        return learner.update(functions, learner.start_adam(weights), learner.make_batch(rollout, ret, (), False),
                              Minibatches(index=index, advantage=rows, count=count, noise=None), learning_rate,
                              Coefficients(cfg.clip_coef, cfg.ent_coef))


@cache
def compiled_collect(agent):
    """Compile collecting in scripted environments."""
    return compile_fast(lambda patterns, env_state, carry, noise: rollout.collect(
        agent, ScriptedPure(patterns), RAW, env_state, carry, noise))
