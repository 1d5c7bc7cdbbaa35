"""Training as pure functions, for environments that are pure functions of JAX: jit, vmap and shard them freely.

Example:
    Eight agents, one iteration each, then a hundred iterations in one call::

        training = make_training(cfg, make_envs, make_agent)
        states = jax.vmap(training.init)(jax.random.split(jax.random.key(1), 8))
        step = jax.vmap(training.step)
        states, metrics = jax.jit(step)(states)                                              # metrics: (8, ...)
        states, metrics = jax.lax.scan(lambda now, _: step(now), states, length=100)         # metrics: (100, 8, ...)
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.config import Config
from proximo.envs.custom.pure import state_difference
from proximo.envs.custom.suite import make_complete
from proximo.envs.pure import plain
from proximo.errors import USES, UsageError, first_line, names_text, one_line
from proximo.facts import Facts, facts, type_problems
from proximo.on_jax.checks import check_calls
from proximo.on_jax.learner import start_adam
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.parameters import Weights, initial_weights, make_bind, named_parameters
from proximo.on_jax.play_inside import InsidePlayer
from proximo.on_jax.setup import ChangeLearner, check_settings, make_inside_player, unchanged
from proximo.on_jax.train_step import Keys, Metrics, TrainState, key_data
from proximo.part_checks import kind_of, make_complete_agent
from proximo.problems import config_problems, given_config
from proximo.protocols import LossFn, MakeAgent, MakeEnvs
from proximo.streams import stream_generator, stream_seed


class StepWithValues(Protocol):
    """The function of one iteration."""

    def __call__(self, state: TrainState, /, **values: Array | float) -> tuple[TrainState, Metrics]:
        """Return the state after one more iteration, and its metrics.

        Args:
            state: Is not changed.
            values: Hyper-parameters, () each, instead of those of the configuration: the fields that proximo.sweep
                takes, such as learning_rate and gamma. They may be traced.

        Raises:
            UsageError: The state is not one of this training, a value is of another field, is not one number, or, where
                it is not traced, is not allowed, or a program has changed a setting of JAX that matters.
        """


class Training(NamedTuple):
    """Pure functions: `init` and `step` together are train() on one device."""

    init: Callable[[Array], TrainState]  # key -> state before the first iteration
    step: StepWithValues
    bind: Callable[[Weights], Any]  # state.adam.weights -> the agent that acts with them, an Agent


def make_training(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: LossFn = ppo_loss,
                  change_learner: ChangeLearner = unchanged) -> Training:
    """Make the pure functions of one training.

    All random numbers derive from the key that `init` gets; cfg.seed is not used. `init(jax.random.key(seed))` begins
    the run of train() with that seed, below 2**32, whose weights `jax.jit(step)` reproduces bit for bit.

    Parameters that are not drawn from the key, such as those of flax's own layers, begin with the values that
    make_agent gives them, for every key.

    TrainState and Metrics (train_step.py) give the shapes: with T steps and N environments, the metrics of an iteration
    are losses and charts, () each, episodes, (T, N) each, and the number of valid rows, (T,). The weights are
    `state.adam.weights`, by parameter name, in the layout of torch.

    Nothing stops `step` after cfg.num_iterations iterations. An annealed schedule is 0 in the next one. Afterwards a
    linear one is negative, and a cosine increases again. Nothing raises an error where a gradient is not finite: the
    weights stay as they were before it, and `state.adam.ok` is False from then on.

    Args:
        cfg: The hyper-parameters.
        make_envs: (cfg, seeds) -> environments with `play` "inside".
        make_agent: See train().
        loss_fn: See train().
        change_learner: Returns the Learner with other functions: another update (docs/add-a-loss.md).

    Raises:
        UsageError: The configuration cannot work, the environments are not pure functions of JAX, or the network does
            not fit their actions or raises an exception.
        EnvError: The environments return other arrays than they have to, or raise an exception.
    """
    cfg = given_config(cfg).resolved()
    wrong = [*config_problems(cfg), *([] if type_problems(cfg) else _without_effect(cfg))]
    if not callable(loss_fn):
        wrong.append(f"loss_fn={one_line(f'{loss_fn!r:.60}')} is not a function. {USES['loss_fn']}")
    if wrong:
        raise UsageError("\n".join(wrong))
    check_settings()  # before environments are checked, whose arrays would have other dtypes
    player = make_inside_player(cfg, partial(make_complete, make_envs), partial(make_complete_agent, make_agent),
                                loss_fn, change_learner=change_learner)
    check_calls(player.agent, player.begin(0, player.normalizer.start())[1])
    init = partial(init_state, player)
    like = _described(jax.eval_shape(init, jax.random.key(0)))
    shapes = {name: x.shape for name, x in like.adam.weights.items()}
    return Training(init=init, step=partial(step_with_values, cfg, player, like),
                    bind=partial(_bind, make_bind(player.agent), shapes))


def _without_effect(cfg: Config) -> list[str]:
    """Return one sentence for each setting that means something to a run of proximo.train, and nothing here."""
    wrong = []
    if cfg.framework != "jax":
        wrong.append(f"framework={cfg.framework} has no effect: make_training trains with JAX. Use framework=jax.")
    if cfg.num_seeds > 1:
        wrong.append(f"num_seeds={cfg.num_seeds} has no effect: make_training makes one training. Leave num_seeds out, "
                     "and map init and step over several keys with jax.vmap, or use proximo.train.")
    if cfg.init_from:
        wrong.append(f"init_from={cfg.init_from} has no effect: make_training reads no runs. Let make_agent return a "
                     "network with these weights (load_weights of proximo.on_jax.parameters), or use proximo.train.")
    return wrong


def step_with_values(cfg: Config, player: InsidePlayer, like: TrainState, state: TrainState, /,
                     **values: Array | float) -> tuple[TrainState, Metrics]:
    """Run one iteration with some hyper-parameters in the place of those of `cfg`; see StepWithValues.

    The state has to be described by `like`.
    """
    check_settings()
    if not isinstance(state, TrainState) or np.ndim(state.iteration):
        raise UsageError(f"step was given {_shown(state)}. Give it the state of one training, as init and step return "
                         "it, and map step over several with jax.vmap.")
    if wrong := [*_problems_of_state(like, state), *_problems_of_values(cfg, values)]:
        raise UsageError("\n".join(wrong))
    numbers: Any = {name: float(x) if isinstance(x, int) else x for name, x in values.items()}
    return player.step_of(replace(cfg, **numbers))(state)


def _described(state: TrainState) -> TrainState:
    """Return shapes and dtypes in the place of arrays, with the data of keys: a saved state has these."""
    shapes: TrainState = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype),  # without weak types
                                      jax.eval_shape(partial(jax.tree.map, plain), state))
    return shapes


def _problems_of_state(like: TrainState, state: TrainState) -> list[str]:
    """Return what is wrong with a state: JAX would broadcast some of the wrong shapes."""
    try:
        difference = state_difference(like, _described(state))
    except (TypeError, OverflowError) as error:  # a part is not an array
        difference = one_line(first_line(error))
    return [f"step was given another state than that of this training: {difference:.300}. Give it what init or step of "
            "this training has returned."] if difference else []


def _problems_of_values(cfg: Config, values: dict[str, Array | float]) -> list[str]:
    allowed = {name: fact for name, fact in facts(cfg).items() if fact.sweep}
    wrong = [f"step was given {name}, which is a constant of the compiled function. It takes {', '.join(allowed)}."
             for name in values if name not in allowed]
    for name, x in ((name, x) for name, x in values.items() if name in allowed):
        if not _is_number(x):
            given = f" of dtype {x.dtype}" if hasattr(x, "dtype") else f"={one_line(f'{x!r:.60}')}"
            wrong.append(f"step was given {name}{given}. Give it a real number.")
        elif shape := jnp.shape(x):
            wrong.append(f"step was given {name} of shape {shape}. Give it one number, and map step over several with "
                         "jax.vmap.")
        elif not isinstance(x, jax.core.Tracer) and (problem := _number_problem(x, allowed[name])):
            wrong.append(f"{name}={x!s:.60} {problem}.")
    return wrong


def _is_number(x: Any) -> bool:
    """Return whether x is a real number or an array of them, and not a truth value."""
    if isinstance(x, (np.number, np.ndarray, Array)):
        return any(jnp.issubdtype(x.dtype, kind) for kind in (jnp.integer, jnp.floating))
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def _bind(bind: Callable[[Weights], Any], shapes: dict[str, tuple[int, ...]], weights: Weights) -> Any:
    if not isinstance(weights, Mapping):
        raise UsageError(f"bind was given {_shown(weights)}. Give it the weights by name: state.adam.weights.")
    found = {name: getattr(x, "shape", type(x).__name__) for name, x in weights.items()}
    if wrong := [f"{name} is {found.get(name, 'missing')} instead of {shapes.get(name, 'missing')}"
                 for name in {**shapes, **found} if found.get(name) != shapes.get(name)]:
        raise UsageError(f"bind was given other weights than those of this training: {names_text(wrong, 3)}. Give it "
                         "state.adam.weights of one training, and map it over several with jax.vmap.")
    return bind(weights)


def _shown(given: Any) -> str:
    several = isinstance(given, TrainState) and jnp.shape(given.iteration)
    return f"states of shape {several}" if several else kind_of(given)


def _number_problem(x: Any, fact: Facts) -> str:
    try:
        value = float(x)
    except OverflowError:
        value = math.inf
    return fact.range_problem(value) if math.isfinite(value) else "must be finite"


def init_state(player: InsidePlayer, key: Array) -> TrainState:
    """Make the state before the first iteration, as a pure function of a key.

    numpy draws weights and keys in a callback, so that they are those of train().

    Raises:
        UsageError: It is not one key, or a program has changed a setting of JAX that matters.
    """
    check_settings()
    if not isinstance(key, (Array, np.ndarray)):
        raise UsageError(f"init was given {key!r:.60}. Give it a key: jax.random.key(SEED).")
    try:
        words = jax.random.key_data(key)
    except TypeError as error:
        raise UsageError(f"init was given an array {key.dtype} {key.shape}, which is not a key. Give it one: "
                         "jax.random.key(SEED).") from error
    if shape := words.shape[:-1]:
        raise UsageError(f"init was given keys of shape {shape}. Give it one key, and map init over several with "
                         "jax.vmap.")
    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in named_parameters(player.agent).items()}
    streams = (*Keys._fields, "env")
    numbers = jax.ShapeDtypeStruct((len(streams), 2), np.uint32)

    def draw(words: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        seed = int.from_bytes(np.asarray(words).astype(">u4").tobytes(), "big")
        weights = initial_weights(player.agent, stream_generator(seed, "init"))
        return weights, np.stack([key_data(stream_seed(seed, stream)) for stream in streams])

    weights, drawn = jax.pure_callback(draw, (shapes, numbers), words, vmap_method="sequential")
    *keys, env_key = (jax.random.wrap_key_data(words) for words in drawn)
    env_state, carry = player.begin_with(env_key, player.normalizer.start())
    return TrainState(adam=start_adam(weights), carry=carry, envs=env_state, keys=Keys(*keys), iteration=jnp.int32(0))
