"""Programs of users, as the pages of docs/ have them, with annotations: tests/test_typing.py checks their types, nothing runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, assert_type

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from gymnasium import spaces
from gymnasium.experimental.functional import FuncEnv
from jax import Array
from torch import Tensor, nn

import proximo
from proximo.catalog import parts_of
from proximo.cli.commands import run_program
from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout
from proximo.envs.func_env import from_func_env
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.pure import PureVec
from proximo.envs.vector_env import GymVectorEnvs
from proximo.models.evaluate import Evaluation
from proximo.models.model import Model
from proximo.on_jax import agent as jax_agents
from proximo.on_jax import assemble as jax_assemble
from proximo.on_jax.encoders import Encoder as JaxEncoder
from proximo.on_jax.learner import Learner as JaxLearner
from proximo.on_jax.loss import ppo_loss as jax_loss
from proximo.on_jax.networks import Linear
from proximo.on_jax.parameters import layer_init as jax_layer_init
from proximo.on_jax.player import Player
from proximo.on_jax.pure_training import make_training
from proximo.on_jax.setup import set_up as jax_set_up
from proximo.on_jax.train_step import TrainState
from proximo.on_torch.agent import SeparateAgent, SharedAgent
from proximo.on_torch.assemble import assemble, make_head
from proximo.on_torch.box_heads import PolicyNetwork, make_box_head
from proximo.on_torch.distributions import ActionHead, Gaussian
from proximo.on_torch.encoders import Encoder
from proximo.on_torch.learner import apply_gradient, make_gradient, make_step
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.networks import RecurrentLayer, layer_init
from proximo.on_torch.rollout import Collected
from proximo.on_torch.setup import Setup, set_up
from proximo.on_torch.train import train
from proximo.protocols import (
    Acted,
    Agent,
    Distribution,
    Episode,
    EvaluatingAgent,
    FrameStack,
    Head,
    LossFn,
    MakeAgent,
    MakeEnvs,
    Play,
    Spec,
    Step,
    VecEnv,
)
from proximo.types import Batch, Coefficients, Iteration, LossInputs, Minibatches, Rollout

# docs/python.md: configurations, callbacks, trained models, the loop


@dataclass(frozen=True)
class Wide(proximo.Config):
    hidden_sizes: tuple[int, ...] = (128, 128)
    curriculum: int = 3

    def learning_rate_at(self, iteration: int) -> float:
        return self.learning_rate * (0.1 if iteration > self.num_iterations // 2 else 1.0)


def watch(it: Iteration) -> dict[str, float]:
    assert_type(it.model(), Model)
    assert_type(it.stats["losses/entropy"], float)
    if it.steps > 15_000:
        raise proximo.StopTraining("enough")
    lengths = it.call_envs("get_wrapper_attr", "length")
    evaluated = proximo.evaluate(it.model(), episodes=2, env=lambda: gymnasium.make("CartPole-v1")).returns
    return {"episodes": len(it.finished.ret), "length": sum(lengths), "short": float(np.mean(evaluated))}


def log_nothing(it: Iteration) -> None:
    print(it.steps, it.finished.ret.tolist())


class Curriculum:
    def __init__(self) -> None:
        self.level, self.successes = 0, 0

    def __call__(self, it: Iteration) -> dict[str, int]:
        self.successes += int((it.finished.ret > 50).sum())
        return {"level": self.level}

    def state(self) -> dict[str, int]:
        return {"level": self.level, "successes": self.successes}

    def load(self, state: dict[str, int]) -> None:
        self.level, self.successes = state["level"], state["successes"]


def train_and_play(mode: str) -> None:
    run = proximo.train("ppo", env_id="CartPole-v1", total_timesteps=20_000, run_dir="runs/first", resume="auto",
                        callbacks=[watch, log_nothing, Curriculum(), proximo.callbacks.stop_at(475), lambda it: {"steps": it.steps}])
    assert_type(run, Path)
    proximo.train(proximo.preset("CartPole-v1", total_timesteps=20_480), seed=1)
    proximo.train(Wide(curriculum=4), total_timesteps=1e6, run_dir=Path("runs/wide"), anneal_lr=False, norm_adv="batch")
    proximo.resume(run, config=Wide, total_timesteps=40_960, allow_import=["my_package"])
    settings: dict[str, Any] = {"seed": 3, "curriculum": 4}
    proximo.train(Wide, callbacks=[watch], **settings)
    proximo.train("ppo_atari", env_id="PongNoFrameskip-v4", sticky=0.25, env_kwargs={"mode": 1}, hidden_sizes=[64], resize=None)
    assert_type(replace(Wide(), seed=3), Wide)
    proximo.sweep("ppo", env_id="CartPole-v1", learning_rate=np.logspace(-4, -3, 4), gamma=0.98, seed=range(3))
    model = proximo.load(run, allow_import=[Path("my_env.py")])
    assert_type(model, Model)
    action = model.act([0.0, 0.1, 0.0, 0.1], deterministic=True)
    print(model.predict([0.0, 0.1, 0.0, 0.1]), model.value([0.0, 0.1]), model.logprob([0.0, 0.1], action), model.cfg.gamma)
    model.export("agent.onnx")
    model.save(run / "copy")
    found = proximo.evaluate(model, episodes=4, env_kwargs={"level": 3}, allow_import="my_env.py")
    assert_type(found, Evaluation)
    assert_type(found.returns, list[float])
    assert_type(proximo.watch(run, "car.mp4", make_agent=make_shared), Path)
    try:
        proximo.train("ppo")
    except proximo.UsageError as error:
        print(error)


def loop() -> None:
    for it in proximo.iterations("ppo", env_id="CartPole-v1"):
        assert_type(it, Iteration)
        snapshot = it.snapshot()
        if it.statistics is not None:
            print(it.statistics.obs.mean, it.spec.action_space.n, it.weights()["critic.0.weight"].shape)
        proximo.iterations("ppo", state=snapshot)


def program() -> None:
    run_program(Config, train, make_gym, parts_of("ppo", "torch").make_agent, callbacks=[watch])


# docs/add-an-environment.md


class MyEnv(gymnasium.Env[np.ndarray[Any, np.dtype[np.float32]], np.int64]):
    def __init__(self, size: int = 5) -> None:
        self.size = size


def my_envs() -> None:
    proximo.train(env=MyEnv, total_timesteps=1000)
    proximo.train(env=lambda: MyEnv(7), env_kwargs={"size": 4})
    proximo.train(env=MyEnv())
    for finding in proximo.check_env(MyEnv, env_kwargs={"size": 4}):
        assert_type(finding.ok, bool | None)
        print(finding.what)


# docs/batched-environments.md


class Batched:
    arrays = "torch"
    play: Play = "host"
    keeps_state = False
    frames: FrameStack | None = None
    observation_space = render_fps = None
    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ("reward_position", "reward_alive")
    obs_shape: tuple[int, ...] = (2,)
    obs_dtype = np.dtype(np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self) -> Step:
        ret, length = torch.zeros(self.num_envs), torch.zeros(self.num_envs, dtype=torch.int32)
        none, obs = torch.zeros_like(ret, dtype=torch.bool), torch.zeros(self.num_envs, 2)
        return Step(obs=obs, first=~none, mask=None, reward=ret, terminated=none, truncated=none, final_obs=obs, valid=~none,
                    episode=Episode(none, ret, length), metrics=dict.fromkeys(self.metric_names, ret))

    def step(self, actions: Tensor) -> Step:  # another name than that of VecEnv
        return self.reset()

    def state(self) -> None:
        return None

    def load(self, state: dict[str, Any]) -> None:
        """Never called."""

    def render(self) -> None:
        return None

    def close(self) -> None:
        """Nothing is open."""


class Curious:
    def __init__(self, envs: VecEnv) -> None:
        self.envs = envs
        self.metric_names = (*envs.metric_names, "intrinsic")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.envs, name)

    def step(self, action: np.ndarray[Any, np.dtype[Any]]) -> Step:
        step = self.envs.step(action)
        ended = (step.terminated | step.truncated).astype(np.float32)  # pyright takes `|` of an alias of Any for a union
        return step._replace(reward=step.reward + 0.1 * ended)


def make_batched(cfg: Config, seeds: Sequence[int]) -> VecEnv:
    return Batched(len(seeds))


def make_curious(cfg: Config, seeds: list[int]) -> Curious:
    return Curious(make_gym(cfg, seeds))


def make_own_gym(cfg: Config, seeds: list[int]) -> VecEnv:
    return GymEnvs(MyEnv, seeds, cfg.env_id)


def make_vector(cfg: Config, seeds: Sequence[int]) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    return gymnasium.make_vec("CartPole-v1", num_envs=len(seeds))


def make_cars(cfg: Config, seeds: Sequence[int]) -> VecEnv:
    return GymVectorEnvs(make_vector(cfg, seeds), seeds[0], metrics=["is_success"])


def batched_envs() -> None:
    for make_envs in (make_batched, make_own_gym, make_cars):
        proximo.train("ppo_continuous_action", make_envs=make_envs)
        for it in train(Config(), make_envs, make_shared):
            assert_type(it, Iteration)
    proximo.train("ppo", make_envs=make_vector)
    run = proximo.train("ppo", make_envs=make_curious)
    proximo.evaluate(run, make_envs=make_curious)


State = dict[str, Array]


class Reach(FuncEnv[State, Any, Any, Any, Any, Any, Any]):
    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def initial(self, rng: Any, params: Any = None) -> State:
        return {"position": jax.random.uniform(rng, (2,))}

    def transition(self, state: State, action: Any, rng: Any, params: Any = None) -> State:
        return state | {"position": state["position"] + 0.3 * action}

    def observation(self, state: State, rng: Any, params: Any = None) -> Array:
        return state["position"]

    def reward(self, state: State, action: Any, next_state: State, rng: Any, params: Any = None) -> Array:
        return -jnp.square(next_state["position"]).sum()

    def terminal(self, state: State, rng: Any, params: Any = None) -> Array:
        return jnp.square(state["position"]).sum() < 0.1


def functional() -> VecEnv:
    make_reach = from_func_env(Reach(), max_episode_steps=50)
    proximo.train("ppo_continuous_action", make_envs=make_reach, framework="jax")
    training = make_training(Config(framework="jax"), make_reach, make_in_jax)
    state, _ = training.step(training.init(jax.random.key(1)))
    state, _ = jax.vmap(training.step)(state, learning_rate=jnp.ones(3), gamma=0.9)
    changed = make_training(Config(framework="jax"), make_reach, make_in_jax, change_learner=with_returns_in_jax)
    changed.bind(state.adam.weights)
    print(state.adam.weights)
    envs = make_reach(Config(), [1, 2])
    assert_type(envs, PureVec)
    return envs


# docs/add-a-network.md


class Residual(nn.Module):
    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(inputs, units), nn.Linear(units, units)

    def forward(self, obs: Tensor) -> Tensor:
        x = self.inner(obs).relu()
        return x + self.outer(x).relu()


class Attention(nn.Module):
    def __init__(self, space: spaces.Dict, width: int = 32) -> None:
        super().__init__()
        parts = {str(part.path[0]): part for part in obs_layout(space).parts}
        self.one, self.many = Encoder([parts["hero"]], None), Encoder([parts["objects"]])
        self.in_jax = JaxEncoder([parts["hero"]], None)
        self.query = nn.Linear(self.one.features, width)


class MyHead(ActionHead):
    def forward(self, features: Tensor, mask: Tensor | None) -> Gaussian:
        return Gaussian(self.network(features), torch.zeros(1))

    def perturbed(self, dist: Gaussian, noise: Tensor) -> Gaussian:
        return Gaussian(dist.mean + noise, dist.logstd)


class MyAgent:
    """An Agent that does not evaluate later, with names of its own."""

    recurrent = False
    evaluates_later = False

    def __init__(self, head: Head) -> None:
        self.head = head

    def initial_state(self, rows: int, device: torch.device | str = "cpu") -> tuple[Tensor, ...]:
        return ()

    def __call__(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: tuple[Tensor, ...]
                 ) -> tuple[Distribution, Tensor, tuple[Tensor, ...]]:
        return self.head(obs, mask), obs[:, 0], state

    def act(self, x: Tensor, mask: Tensor | None, first: Tensor, state: tuple[Tensor, ...], noise: Tensor) -> Acted:
        dist, value, state = self(x, mask, first, state)
        action = dist.sample(noise)
        return Acted(action=action, state=state, logprob=dist.logprob(action), value=value)

    def value(self, obs: Tensor, first: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        return obs[:, 0]


class MyJaxAgent:
    """An Agent of JAX, whose initial_state takes no device."""

    recurrent = False
    evaluates_later = True
    head: Any = None

    def initial_state(self, num_envs: int) -> tuple[Array, ...]:
        return ()

    def __call__(self, obs: Array, mask: Array | None, first: Array, state: tuple[Array, ...]) -> Any:
        return self.head(obs, mask), obs[:, 0], state

    def act(self, obs: Array, mask: Array | None, first: Array, state: tuple[Array, ...], noise: Array) -> Acted:
        return Acted(action=self.head(obs, mask).sample(noise), state=state, logprob=None, value=None)

    def value(self, obs: Array, first: Array, state: tuple[Array, ...]) -> Array:
        return obs[:, 0]

    def evaluate(self, obs: Array, mask: Array | None, action: Array) -> tuple[Array, Array]:
        return obs[:-1, :, 0], obs[:, :, 0]


def make_shared(spec: Spec, cfg: Config) -> SharedAgent:
    trunk = Residual(spec.obs_shape[0], 64)
    head = make_head(lambda size: layer_init(nn.Linear(64, size), 0.01), spec.action_space)
    return SharedAgent(trunk, layer_init(nn.Linear(64, 1), 1.0), head, RecurrentLayer("lstm", 64, 64))


def make_with_flags(spec: Spec, cfg: Config) -> SeparateAgent:
    def linear(size: int) -> nn.Linear:
        return layer_init(nn.Linear(cfg.hidden_sizes[-1], size), 0.01)

    def parts(size: int) -> tuple[nn.Module, nn.Linear]:
        return nn.Identity(), linear(size)

    network = PolicyNetwork(whole=linear, parts=parts)
    return SeparateAgent(linear(1), make_head(linear, spec.action_space, lambda space: make_box_head(network, space, cfg)))


class JaxResidual(nnx.Module):
    def __init__(self, inputs: int, units: int) -> None:
        self.inner = jax_layer_init(Linear(inputs, units))

    def __call__(self, obs: Array) -> Array:
        return jnp.tanh(self.inner(obs))


def make_in_jax(spec: Spec, cfg: Config) -> jax_agents.SharedAgent:
    head = jax_assemble.make_head(lambda size: jax_layer_init(Linear(64, size), 0.01), spec.action_space)
    return jax_agents.SharedAgent(JaxResidual(spec.obs_shape[0], 64), jax_layer_init(Linear(64, 1), 1.0), head)


def agents(spec: Spec, cfg: Config) -> list[Agent]:
    """All of them are an Agent, and those that evaluate later are an EvaluatingAgent."""
    evaluating: list[EvaluatingAgent] = [make_with_flags(spec, cfg), MyJaxAgent(), jax_agents.SeparateAgent(nnx.Module(), nnx.Module())]
    return [*evaluating, make_shared(spec, cfg), make_in_jax(spec, cfg), MyAgent(MyHead(nn.Identity(), (1,), np.float32))]


def networks() -> None:
    run = proximo.train("ppo", make_agent=make_shared)
    proximo.load(run, make_agent=make_shared)
    proximo.train("ppo", make_agent=make_with_flags)
    proximo.train("ppo", make_agent=assemble)
    proximo.train("ppo", make_agent=make_in_jax, loss_fn=loss_in_jax, framework="jax")


# docs/add-a-loss.md


def loss(batch: LossInputs, cfg: Config) -> tuple[Tensor, dict[str, Tensor]]:
    value, stats = ppo_loss(batch, cfg)
    change = torch.where(batch.valid, (batch.logprob - batch.old_logprob).square(), 0.0).sum() / batch.count
    mirrored = batch.agent.head(-batch.rows.obs, None).logits.flip(-1)
    return value + 0.1 * change + mirrored.sum() + batch.dist.logits.sum(), stats | {"change": change.detach()}


def loss_in_jax(batch: LossInputs, cfg: Wide) -> tuple[Array, dict[str, Array]]:
    value, stats = jax_loss(batch, cfg)
    return cfg.curriculum * value, stats


def monte_carlo(rollout: Rollout, cfg: Config) -> Tensor:
    over: Tensor = (rollout.done | ~rollout.valid).flatten()
    return rollout.reward - rollout.value * over


def set_up_with_returns(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: LossFn, state: dict[str, Any] | None) -> Setup:
    return set_up(cfg, make_envs, make_agent, loss_fn, state)._replace(estimate=monte_carlo)


def set_up_with_prediction(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: LossFn, state: dict[str, Any] | None
                           ) -> Setup:
    setup = set_up(cfg, make_envs, make_agent, loss_fn, state)
    gradient, latest = make_gradient(setup.agent, loss_fn, cfg), list[Tensor]()

    def collect(*arguments: Any) -> Collected:
        played = setup.collect(*arguments)
        latest.append((played.rollout.done | ~played.rollout.valid).flatten())
        return played._replace(rollout=played.rollout._replace(reward=2 * played.rollout.reward))

    def with_prediction(batch: Batch, minibatch: Minibatches, coefficients: Coefficients) -> tuple[Tensor, Tensor]:
        flat, stats = gradient(batch, minibatch, coefficients)
        return flat, torch.cat([stats, batch.obs[minibatch.index].mean()[None]])

    def apply(flat: Tensor, learning_rate: Tensor) -> Tensor:
        return apply_gradient(setup.adam, flat, learning_rate, cfg.adam_eps, cfg.max_grad_norm)

    step = make_step(with_prediction, apply, setup.learner.all_reduce_sum)
    return setup._replace(collect=collect, learner=setup.learner._replace(step=step, names=[*setup.learner.names, "prediction"]))


def returns_in_jax(rollout: Rollout, cfg: Config) -> Array:
    advantage: Array = jnp.cumsum(rollout.reward, 0) * cfg.gamma - rollout.value
    return advantage


def with_returns_in_jax(learner: JaxLearner) -> JaxLearner:
    return learner._replace(estimate=returns_in_jax)


def set_up_in_jax(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: LossFn, state: dict[str, Any] | None
                  ) -> tuple[Player, TrainState]:
    return jax_set_up(cfg, make_envs, make_agent, loss_fn, state, change_learner=with_returns_in_jax)


def losses() -> None:
    proximo.train("ppo", loss_fn=loss)
    proximo.train(Wide, loss_fn=loss_in_jax)
    for it in train(Config(), make_gym, make_shared, loss, set_up=set_up_with_returns):
        print(it.stats)
    run = proximo.train("ppo", set_up=set_up_with_returns, seed=2)
    proximo.resume(run, set_up=set_up_with_prediction, total_timesteps=1e5)
    proximo.train("ppo", framework="jax", set_up=set_up_in_jax)
    for it in proximo.iterations("ppo", set_up=set_up_with_returns):
        print(it.steps)
    run_program(Wide, train, make_gym, assemble, loss, set_up=lambda *arguments: set_up(*arguments))
