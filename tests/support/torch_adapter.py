"""torch behind the interface of tests/support/frameworks.py."""

from contextlib import nullcontext

import numpy as np
import torch
from torch import nn

from proximo.on_torch import bounded, box_heads, distributions, learner
from proximo.on_torch.assemble import assemble
from proximo.on_torch.gae import gae, without_fillers
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.rollout import Policy, Storage, collect, make_evaluate_all, make_evaluate_last
from proximo.on_torch.value_norm import count_returns
from proximo.types import Carry, LossInputs
from tests.support.frameworks import AdamRecord, NumpyAgent, NumpyHead, map_tree
from tests.support.normalized import RAW
from tests.support.scripted import PLAIN, Recorded, make_scripted
from tests.support.torch_learning import make_learner, update_once


class Adapter:
    """Numpy arrays in, numpy arrays out."""

    name = "torch"
    float32 = float64 = nullcontext

    def to_array(self, tree):
        return map_tree(lambda x: torch.from_numpy(np.array(x)) if isinstance(x, (np.ndarray, np.generic)) else x, tree)

    def to_numpy(self, tree):
        return map_tree(lambda x: x.detach().numpy().copy() if isinstance(x, torch.Tensor) else np.array(x)
                        if isinstance(x, (torch.Tensor, np.ndarray)) else x, tree)

    def make_key(self, seed):
        return torch.Generator().manual_seed(seed)

    def gradient(self, function, *inputs):
        """Return the gradients of function(*inputs), a scalar, with respect to each input."""
        tensors = [x.requires_grad_() for x in self.to_array(inputs)]
        parts = torch.autograd.grad(function(*tensors), tensors, allow_unused=True)
        return [np.zeros(x.shape) if g is None else g.numpy() for x, g in zip(tensors, parts)]

    def gae(self, reward, value, next_value, terminated, done, gamma, gae_lambda):
        return gae(*self.to_array((reward, value, next_value, terminated, done)), gamma, gae_lambda).numpy()

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
        return NumpyHead(self, next(getattr(module, kind) for module in (bounded, box_heads, distributions) if hasattr(module, kind))(nn.Identity(), *args))

    def set_logstd(self, head, logstd):
        with torch.no_grad():
            head.raw.logstd.copy_(torch.from_numpy(logstd))

    def logstd_gradient(self, head, features, action):
        """Return the gradient of the sum of log-densities with respect to the logarithm of the deviation."""
        total = head.raw(*self.to_array((features, None))).logprob(torch.from_numpy(action)).sum()
        return torch.autograd.grad(total, head.raw.logstd)[0].numpy()

    def make_agent(self, spec, cfg, seed=0, factor=1.0):
        """Make an agent in float64 with the weights of its heads multiplied by a factor."""
        torch.manual_seed(seed)
        agent = assemble(spec, cfg).double()
        with torch.no_grad():
            for name, p in agent.named_parameters():
                if name.startswith("head.") and "weight" in name:
                    p.mul_(factor)
        return NumpyAgent(self, agent)

    def weights(self, agent):
        return self.to_numpy(dict(agent.raw.named_parameters()))

    def weight_gradient(self, agent, function):
        """Return the gradients of function(raw agent), a scalar, by the names of the weights."""
        parameters = dict(agent.raw.named_parameters())
        parts = torch.autograd.grad(function(agent.raw), list(parameters.values()), allow_unused=True)
        return {name: np.zeros(p.shape) if g is None else g.numpy() for (name, p), g in zip(parameters.items(), parts)}

    def collect(self, mode, patterns, steps, rollouts=1, agent=PLAIN):
        """Return one Recorded for each of consecutive rollouts in scripted environments."""
        envs, records = make_scripted(mode, patterns), []
        head = distributions.CategoricalHead(nn.Identity(), 2)
        evaluate = make_evaluate_all(agent.evaluate) if agent.evaluates_later else make_evaluate_last(agent.value)
        policy = Policy(act=agent.act, value=agent.value, evaluate=evaluate,
                        evaluates_later=agent.evaluates_later)
        storage = Storage(envs, envs.obs_dtype, steps, head, None, torch.device("cpu"))
        step = envs.reset()
        carry = Carry(obs=torch.as_tensor(step.obs), mask=None, first=torch.as_tensor(step.first),
                      state=agent.initial_state(torch.zeros(envs.num_envs)), statistics=None)
        for number in range(rollouts):
            noise = head.noise(self.make_key(number), steps, envs.num_envs)
            rollout, carry, episode, _ = collect(policy, envs, RAW, carry, storage, noise)
            records.append(Recorded(*self.to_numpy((rollout, episode, noise))))
        return records

    def adam_steps(self, weights, gradients, rates, eps, max_grad_norm):
        """Apply one step of Adam for each gradient and rate.

        Returns:
            One AdamRecord per step.
        """
        module, records = nn.Module(), []
        for name, x in weights.items():
            module.register_parameter(name.replace(".", "_"), nn.Parameter(torch.from_numpy(np.array(x))))
        adam = learner.flat_adam(module)
        adam = adam._replace(step=adam.step.to(adam.weights.dtype))
        for gradient, rate in zip(gradients, rates, strict=True):
            flat = torch.cat([torch.from_numpy(gradient[name]).flatten() for name in weights])
            norm = learner.apply_gradient(adam, flat, torch.tensor(rate, dtype=flat.dtype), eps, max_grad_norm)
            parts = [{name: part.reshape(x.shape) for (name, x), part in zip(weights.items(), np.split(
                vector.numpy().copy(), np.cumsum([x.size for x in weights.values()])[:-1]))} for vector in adam[:3]]
            records.append(AdamRecord(*parts, norm=float(norm), step=int(adam.step), ok=bool(adam.ok)))
        return records

    def minibatch_advantages(self, advantage, valid, index, recurrent, cfg):
        return self.to_numpy(learner.minibatch_advantages(*self.to_array((advantage, valid, index)), recurrent, cfg,
                                                         lambda x: x))

    def explained_variance(self, value, ret, valid):
        return learner.explained_variance(*self.to_array((value, ret, valid)), lambda x: x)

    def select_minibatch(self, batch, index, recurrent):
        return self.to_numpy(learner.select_minibatch(*self.to_array((batch, index)), recurrent))

    def count_returns(self, agent, ret, valid):
        """Add returns to the moments of an agent."""
        count_returns(agent.raw, *self.to_array((ret, valid)), lambda x: x)

    def update(self, agent, rollout, advantage, ret, index, learning_rate, cfg):
        """Run one update of an agent without a recurrent layer.

        Returns:
            The weights by name, the statistics, the number of minibatches that ran, and `ok` of Adam.
        """
        adam, functions = make_learner(agent.raw, cfg)
        stats = update_once(functions, *self.to_array((rollout, advantage, ret, index)), learning_rate, cfg)
        return self.weights(agent), stats, int(adam.step), bool(adam.ok)
