"""Proximal policy optimization (PPO; Schulman et al. 2017, arXiv 1707.06347) in one file: read it from top to bottom.

    python examples/single_file_ppo.py --env-id CartPole-v1 --seed 1 --total-timesteps 500000 --csv cartpole.csv

It trains on any Gymnasium environment with discrete actions and needs torch, numpy and gymnasium only. The weights are
bit for bit those of `proximo train ppo --threads 1` with the same settings (tests/examples/test_single_file_ppo.py).
"Detail N" is a number of "The 37 Implementation Details of PPO" (Huang et al. 2022); docs/details.md lists them all.

Axes of arrays: T steps of a rollout, N environments, A actions; E epochs, M minibatches, B rows of a minibatch.
"""

import argparse
import hashlib
import math
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


@dataclass(frozen=True)
class Config:
    """The defaults of `proximo train ppo`."""

    env_id: str = "CartPole-v1"  # id of the environment
    seed: int = 1  # seed of every random draw: weights, environments, actions, minibatches
    total_timesteps: int = 500_000  # environment steps over all environments, rounded down to whole iterations
    num_envs: int = 4  # N: environments that are stepped side by side (detail 1)
    num_steps: int = 128  # T: steps in each environment between two updates
    hidden_size: int = 64  # units in each of the two hidden layers (detail 13)
    learning_rate: float = 2.5e-4  # step size of Adam in the first iteration; it falls linearly to 0 (detail 4)
    adam_eps: float = 1e-5  # epsilon of Adam (detail 3)
    gamma: float = 0.99  # discount factor
    gae_lambda: float = 0.95  # lambda of generalized advantage estimation (detail 5)
    num_minibatches: int = 4  # M: minibatches in each epoch (detail 6)
    update_epochs: int = 4  # E: passes over each rollout
    clip_coef: float = 0.2  # epsilon: how far the ratio may leave 1 before its gradient stops (detail 8)
    ent_coef: float = 0.01  # weight of the entropy bonus (detail 10)
    vf_coef: float = 0.5  # weight of the value loss (detail 10)
    max_grad_norm: float = 0.5  # a gradient of a larger norm is scaled down to this norm (detail 11)

    @property
    def batch_size(self) -> int:
        """Rows of a rollout."""
        return self.num_envs * self.num_steps

    @property
    def num_iterations(self) -> int:
        """Rollouts, each followed by one update."""
        return self.total_timesteps // self.batch_size


STREAMS = ("init", "env", "action", "minibatch")


def stream_seed(seed: int, stream: str, iteration: int = 0) -> int:
    """Return the 64-bit seed of the generator for one key. Different keys give independent seeds.

    Every random draw belongs to a key. Therefore it does not depend on how many numbers were drawn before it.
    """
    key = (seed, STREAMS.index(stream), iteration, 0)  # 0 is the rank of the only process
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def layer_init(layer: nn.Linear, std: float = math.sqrt(2)) -> nn.Linear:
    """Set orthogonal weights of gain `std` and zero biases (detail 2)."""
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


def hidden_layers(obs_size: int, hidden_size: int) -> list[nn.Module]:
    """Two layers of tanh units (detail 13)."""
    return [layer_init(nn.Linear(obs_size, hidden_size)), nn.Tanh(),
            layer_init(nn.Linear(hidden_size, hidden_size)), nn.Tanh()]


class Agent(nn.Module):
    """The critic, V(obs), and the actor, logits of pi(action | obs): two networks that share nothing (detail 13)."""

    def __init__(self, obs_size: int, num_actions: int, cfg: Config) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # leaves torch's global generator as it was
            torch.manual_seed(stream_seed(cfg.seed, "init"))
            # Proximo draws the layers of a shared network first, even where they are not used. Same draws, same bits.
            hidden_layers(obs_size, cfg.hidden_size)
            self.critic = nn.Sequential(*hidden_layers(obs_size, cfg.hidden_size),
                                        layer_init(nn.Linear(cfg.hidden_size, 1), 1.0))
            self.actor = nn.Sequential(*hidden_layers(obs_size, cfg.hidden_size),
                                       layer_init(nn.Linear(cfg.hidden_size, num_actions), 0.01))  # almost uniform

    def value(self, obs: Tensor) -> Tensor:
        """Map observations (..., obs_size) to values (...)."""
        return self.critic(obs).squeeze(-1)


def gumbel_noise(seed: int, *shape: int) -> Tensor:
    """Draw -log(Exp(1)), the standard Gumbel distribution."""
    generator = torch.Generator()
    state = generator.get_state()  # a header, then 624 words; manual_seed would make them of 32 bits of the seed
    state.numpy().view(np.int64)[3:627] = np.random.default_rng(seed).integers(2**32, size=624)
    return -torch.empty(shape).exponential_(generator=generator.set_state(state)).log()


def sample(logits: Tensor, noise: Tensor) -> Tensor:
    """Sample actions (...) from softmax(logits): they are the argmax of logits plus noise (the Gumbel-max trick)."""
    return (logits + noise).argmax(-1)


def logprob_and_entropy(logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Return log pi(action) and the entropy of pi, both (...)."""
    logp = logits.log_softmax(-1)
    return logp.gather(-1, action.unsqueeze(-1)).squeeze(-1), -(logp.exp() * logp).sum(-1)


class Environments:
    """N environments that are stepped together (detail 1) and reset in the same step in which their episode ends."""

    def __init__(self, cfg: Config) -> None:
        # FlattenObservation makes one vector of any observation.
        self.envs = [gym.wrappers.FlattenObservation(gym.make(cfg.env_id)) for _ in range(cfg.num_envs)]
        space = self.envs[0].action_space
        if not isinstance(space, gym.spaces.Discrete):
            raise SystemExit(f"env_id={cfg.env_id} has the actions {space}. Use an environment with Discrete actions.")
        self.num_actions, self.first_action = int(space.n), int(space.start)
        seed = stream_seed(cfg.seed, "env")
        obs = [env.reset(seed=(seed + i) % 2**31)[0] for i, env in enumerate(self.envs)]
        self.obs = np.array(obs, np.float32)  # (N, obs_size)
        self.running_return = np.zeros(cfg.num_envs)
        self.last_returns: deque[float] = deque(maxlen=100)  # of episodes that ended

    def step(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        """Step each environment with its action (N,). `self.obs` is then what to act on next.

        Returns:
            next_obs (N, obs_size): what followed the action, also where `self.obs` already begins the next episode.
            reward, terminated (the episode ended), truncated (a time limit cut it off), each (N,).
        """
        next_obs, reward = np.empty_like(self.obs), np.empty(len(self.envs))
        terminated, truncated = np.empty((2, len(self.envs)), bool)
        for i, env in enumerate(self.envs):
            next_obs[i], reward[i], terminated[i], truncated[i], _ = env.step(action[i] + self.first_action)
        self.obs = next_obs.copy()
        self.running_return += reward
        for i in np.flatnonzero(terminated | truncated):
            self.obs[i], _ = self.envs[i].reset()
            self.last_returns.append(self.running_return[i])
            self.running_return[i] = 0
        return next_obs, reward.astype(np.float32), terminated, truncated


class Rollout(NamedTuple):
    """T steps in N environments, time first."""

    obs: Tensor  # (T, N, obs_size)
    action: Tensor  # (T, N)
    logprob: Tensor  # (T, N)     of the action, under the policy that took it
    value: Tensor  # (T, N)       V(obs[t])
    next_value: Tensor  # (T, N)  V of what followed action[t]
    reward: Tensor  # (T, N)
    terminated: Tensor  # (T, N)  the episode ended: there is no future to value
    done: Tensor  # (T, N)        the episode ended or a time limit cut it off


@torch.no_grad()
def collect(agent: Agent, envs: Environments, cfg: Config, iteration: int) -> Rollout:
    """Play T steps. Episodes continue from one rollout to the next (detail 1)."""
    noise = gumbel_noise(stream_seed(cfg.seed, "action", iteration), cfg.num_steps, cfg.num_envs, envs.num_actions)
    steps = []
    for t in range(cfg.num_steps):
        action = sample(agent.actor(torch.from_numpy(envs.obs)), noise[t]).numpy()
        steps.append((envs.obs, action, *envs.step(action)))
    obs, action, next_obs, reward, terminated, truncated = (torch.from_numpy(np.stack(x)) for x in zip(*steps))
    # Acting needs neither log-probabilities nor values. Computing them for all steps at once is faster.
    logprob, _ = logprob_and_entropy(agent.actor(obs), action)
    value = agent.value(torch.cat([obs, torch.from_numpy(envs.obs)[None]]))  # (T + 1, N)
    value, next_value = value[:-1], value[1:].clone()
    # After a time limit the future is worth V(next_obs[t]): obs[t + 1] begins an episode. Elsewhere both are the same.
    for t in truncated.any(1).nonzero().flatten():
        next_value[t] = torch.where(truncated[t], agent.value(next_obs[t]), next_value[t])
    return Rollout(obs, action, logprob, value, next_value, reward, terminated, terminated | truncated)


def gae(rollout: Rollout, gamma: float, gae_lambda: float) -> Tensor:
    """Return advantages (T, N) by generalized advantage estimation (Schulman et al. 2016, eq. 16; detail 5)."""
    delta = rollout.reward + gamma * rollout.next_value * ~rollout.terminated - rollout.value
    advantage, running = torch.empty_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        running = delta[t] + gamma * gae_lambda * ~rollout.done[t] * running
        advantage[t] = running
    return advantage


def normalize(advantage: Tensor) -> Tensor:
    """Shift and scale the advantages (E, M, B) to mean 0 and deviation 1 in each minibatch (detail 7)."""
    x = advantage.double()  # because E[x^2] - E[x]^2 loses digits
    mean = x.mean(-1, keepdim=True)
    std = (x.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0.0).sqrt()
    return ((x - mean) / (std + 1e-8)).float()


def ppo_loss(logprob: Tensor, entropy: Tensor, value: Tensor, old_logprob: Tensor, old_value: Tensor,
             advantage: Tensor, ret: Tensor, cfg: Config) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of one minibatch and numbers to watch. All arguments (B,); "old" means: of the rollout."""
    logratio = logprob - old_logprob
    ratio = logratio.exp()
    clipped_ratio = ratio.clamp(1 - cfg.clip_coef, 1 + cfg.clip_coef)
    policy_loss = torch.maximum(-advantage * ratio, -advantage * clipped_ratio).mean()  # detail 8

    clipped_value = old_value + (value - old_value).clamp(-cfg.clip_coef, cfg.clip_coef)
    value_loss = 0.5 * torch.maximum((value - ret).square(), (clipped_value - ret).square()).mean()  # detail 9

    loss = policy_loss - cfg.ent_coef * entropy.mean() + cfg.vf_coef * value_loss  # detail 10
    stats = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy.mean(),
             "old_approx_kl": -logratio.mean(), "approx_kl": (ratio - 1 - logratio).mean(),
             "clipfrac": ((ratio - 1).abs() > cfg.clip_coef).float().mean()}  # detail 12
    return loss, {name: x.detach() for name, x in stats.items()}


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1) on one vector that holds all weights of the agent, (P,)."""

    BETA1, BETA2 = 0.9, 0.999

    def __init__(self, agent: Agent, cfg: Config) -> None:
        self.cfg, self.parameters = cfg, list(agent.parameters())
        self.weights = parameters_to_vector(self.parameters).detach()
        vector_to_parameters(self.weights, self.parameters)  # the parameters are views of the vector from now on
        self.exp_avg, self.exp_avg_sq = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.num_updates = torch.tensor(0.0)

    def step(self, loss: Tensor, learning_rate: Tensor) -> None:
        """Move the weights against the gradient of `loss`."""
        gradient = parameters_to_vector(torch.autograd.grad(loss, self.parameters))
        norm = torch.linalg.vector_norm(gradient)
        gradient *= (self.cfg.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)  # detail 11
        self.num_updates += 1
        self.exp_avg.lerp_(gradient, 1 - self.BETA1)
        self.exp_avg_sq.lerp_(gradient.square(), 1 - self.BETA2)
        rms = (self.exp_avg_sq / (1 - self.BETA2**self.num_updates)).sqrt()
        step_size = learning_rate / (1 - self.BETA1**self.num_updates)
        self.weights -= self.exp_avg / (rms + self.cfg.adam_eps) * step_size  # detail 3


def update(agent: Agent, adam: Adam, rollout: Rollout, cfg: Config, iteration: int) -> dict[str, float]:
    """Learn from one rollout: E epochs of M minibatches. Returns means over all minibatches, for the log."""
    # A tensor, because Python's float / tensor multiplies by the reciprocal, which rounds differently.
    learning_rate = torch.tensor(cfg.learning_rate * (1.0 - (iteration - 1) / cfg.num_iterations))  # detail 4
    shuffle = np.random.default_rng(stream_seed(cfg.seed, "minibatch", iteration))
    index = np.stack([shuffle.permutation(cfg.batch_size) for _ in range(cfg.update_epochs)])  # detail 6
    index = torch.from_numpy(index.reshape(cfg.update_epochs, cfg.num_minibatches, -1))  # (E, M, B)
    advantage = gae(rollout, cfg.gamma, cfg.gae_lambda)
    normalized = normalize(advantage.flatten()[index])  # (E, M, B)
    ret = advantage + rollout.value  # (T, N), detail 5
    batch = [x.flatten(0, 1) for x in (rollout.obs, rollout.action, rollout.logprob, rollout.value, ret)]  # (T * N)
    history = []
    for e in range(cfg.update_epochs):
        for m in range(cfg.num_minibatches):
            obs, action, old_logprob, old_value, old_ret = (x[index[e, m]] for x in batch)
            logprob, entropy = logprob_and_entropy(agent.actor(obs), action)
            loss, stats = ppo_loss(logprob, entropy, agent.value(obs), old_logprob, old_value, normalized[e, m],
                                   old_ret, cfg)
            adam.step(loss, learning_rate)
            history.append(stats)
    means = {name: float(torch.stack([stats[name] for stats in history]).mean()) for name in history[0]}
    explained_variance = float(1 - (ret - rollout.value).var() / ret.var())  # detail 12
    return {"learning_rate": float(learning_rate), **means, "explained_variance": explained_variance}


def train(agent: Agent, envs: Environments, cfg: Config) -> Iterator[dict[str, float]]:
    """Alternate rollouts and updates (algorithm 1). Yields numbers for the log after each iteration."""
    start, adam = time.perf_counter(), Adam(agent, cfg)
    for iteration in range(1, cfg.num_iterations + 1):
        stats = update(agent, adam, collect(agent, envs, cfg, iteration), cfg, iteration)
        steps = iteration * cfg.batch_size
        yield {"global_step": steps, "SPS": int(steps / (time.perf_counter() - start)),
               "episodic_return": float(np.mean(envs.last_returns)) if envs.last_returns else math.nan, **stats}


def parse_arguments() -> tuple[Config, str]:
    """Read the command line: one flag for each field of Config, and the path of the CSV file."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for field in fields(Config):
        parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default, help="value")
    parser.add_argument("--csv", default=os.devnull, help="file that gets one line of numbers for each iteration")
    arguments = vars(parser.parse_args())
    csv_path, cfg = arguments.pop("csv"), Config(**arguments)
    if cfg.batch_size % cfg.num_minibatches:
        parser.error(f"num_minibatches={cfg.num_minibatches} does not divide {cfg.batch_size} = num_envs * num_steps.")
    if not cfg.num_iterations:
        parser.error(f"total_timesteps={cfg.total_timesteps} is less than one rollout. Use at least {cfg.batch_size}.")
    return cfg, csv_path


def main() -> None:
    """Train, print the progress, and print the SHA-256 of the weights: equal sums mean equal weights."""
    cfg, csv_path = parse_arguments()
    torch.set_num_threads(1)  # more threads make networks this small slower
    envs = Environments(cfg)
    agent = Agent(envs.obs.shape[1], envs.num_actions, cfg)
    with open(csv_path, "w") as file:
        for iteration, numbers in enumerate(train(agent, envs, cfg), 1):
            if iteration == 1:
                print(*numbers, sep=",", file=file)
            print(*numbers.values(), sep=",", file=file, flush=True)
            if iteration % 10 == 0 or iteration == cfg.num_iterations:
                print("step {global_step}  return {episodic_return:.1f}  SPS {SPS}".format(**numbers), flush=True)
    print("SHA-256", hashlib.sha256(parameters_to_vector(agent.parameters()).detach().numpy().tobytes()).hexdigest())


if __name__ == "__main__":
    main()
