"""User-defined environments: checks that they have, and return, everything that training reads."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np

from proximo.envs.arrays.joint_actions import action_shape
from proximo.envs.arrays.masks import mask_parts
from proximo.envs.calls import groups_of
from proximo.envs.custom.attributes import one_for_all, problems_of_envs
from proximo.envs.custom.pure import CheckedPure, naming_environment, state_difference
from proximo.envs.custom.rules import check_ends, check_fillers
from proximo.envs.custom.steps import (
    described,
    fields_of,
    first_not_finite,
    first_out_of_range,
    first_without_choice,
    problem_of_type,
    state_problem,
    stored_dtype,
    with_dtype,
)
from proximo.envs.gym_checks import place_for
from proximo.envs.time_limit import close_env
from proximo.envs.vector_env import GymVectorEnvs
from proximo.errors import EnvError, ProximoError, UsageError, call_part, is_out_of_memory, with_place
from proximo.protocols import Array, Step, VecEnv

MEMBERS = tuple(name for name in (*VecEnv.__annotations__, *vars(VecEnv)) if not name.startswith("_"))


def make_complete(make_envs: Callable[..., Any], cfg: Any, seeds: Sequence[int]) -> "CheckedEnvs":
    """Call make_envs(cfg, seeds).

    Raises:
        UsageError: The result lacks attributes or methods of VecEnv, has another number of environments, or an
            attribute of another kind.
        EnvError: Environments in JAX return other arrays than they have to, or raise an exception.
    """
    try:
        envs: VecEnv = call_part("make_envs", make_envs, cfg, seeds)
        if hasattr(envs, "single_observation_space") and not hasattr(envs, "obs_shape"):  # a VectorEnv of Gymnasium
            envs = GymVectorEnvs(envs, seeds[0], metrics=getattr(cfg, "info_metrics", ()))
    except (Exception, SystemExit) as error:
        if isinstance(error, ProximoError) or is_out_of_memory(error):
            raise
        raise EnvError(f"make_envs raised {with_place(error)}") from error
    missing = [name for name in MEMBERS if not (hasattr(type(envs), name) or hasattr(envs, name))]  # calls no property
    if missing:
        itself = " Pass this function as make_envs itself." * callable(envs)
        advice = place_for(envs) or one_for_all(envs) or itself or (
            " Add them: docs/batched-environments.md says what they are.")
        raise UsageError(f"make_envs returned {type(envs).__name__}, which lacks {', '.join(missing)} of VecEnv "
                         f"(proximo/protocols.py).{advice}")
    if problems := list(problems_of_envs(envs, len(seeds), cfg)):
        envs.close()
        raise UsageError("\n".join(problems))
    checked = CheckedEnvs(envs, stored_dtype(envs.obs_dtype, getattr(cfg, "framework", "torch")))
    if envs.play == "inside":
        checked.check_shapes()
    return checked


def copied(action: Any) -> Any:
    """Return a copy of actions: those of the rollout would change with what environments write into them."""
    return action.clone() if hasattr(action, "detach") else action.copy()


class CheckedEnvs:
    """A VecEnv whose steps are checked: arrays of another shape would be repeated to fill the rollout.

    Everything else is that of the environments.

    Args:
        envs: The custom environments.
        stored: The dtype of observations in the rollout.
    """

    def __init__(self, envs: Any, stored: np.dtype[Any]) -> None:
        self._envs, self._stored = envs, stored
        self._name = getattr(envs, "name", type(envs).__name__)
        self._types_checked = self._begun = False
        self._masked = False  # whether reset() returned a mask
        parts = mask_parts(envs.action_space)
        self._choices = None if parts is None else int(parts.sum())  # that a mask covers
        self._starts = np.cumsum([0] if parts is None else parts)[:-1]  # of the components of an action
        self._steps = 0  # since reset()
        self._ended: dict[int, Array] = {}  # rows that the next step only resets, by the number of rows before them
        if envs.play == "inside":
            self.pure = CheckedPure(envs.pure, self._starts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._envs, name)

    def check_shapes(self) -> None:
        """Check what pure functions of JAX return, without computing it: nothing checks their steps while they run."""
        import jax

        pure, rows, space = self._envs.pure, self._envs.num_envs, self._envs.action_space
        dtype = np.int32 if np.issubdtype(space.dtype, np.integer) else np.float32
        with naming_environment(pure, "reset"):
            state, step = jax.eval_shape(pure.reset, jax.random.key(0))
            self._checked(step, "reset", rows)
            if step.mask is not None:  # of a later reset, CheckedPure notices it
                self._check_choices(self._envs.reset(), None)
        with naming_environment(pure, "step"):
            after, step = jax.eval_shape(pure.step, state, jax.ShapeDtypeStruct((rows, *action_shape(space)), dtype))
            self._checked(step, "step", rows)
            if difference := state_difference(state, after):
                raise UsageError(f"{type(pure).__name__}.step() returned a state of another structure, shape or dtype "
                                 f"than it was given: {difference}. Keep it as reset() makes it.")

    def reset(self) -> Step:
        self._steps = 0
        with self._naming("reset"):
            step = self._envs.reset()
        self._check_numbers(self._checked(step, "reset", self._envs.num_envs))
        if not (self._envs.players or bool((step.first & step.valid).all())):  # agents of a game may join later
            raise UsageError(f"{self._name}.reset() returned first or valid with False. Every row begins an episode "
                             "there: return True for all.")
        self._ended, self._begun = {}, True
        return with_dtype(step, self._envs.obs_dtype)

    def step(self, action: Array) -> Step:
        with self._naming("step"):
            step = self._envs.step(copied(action))
        return self._played(step, "step", self._envs.num_envs)

    @property
    def keeps_state(self) -> bool:
        """See VecEnv.keeps_state. What state() returns is checked here, before the first checkpoint needs it."""
        with self._naming("keeps_state"):
            keeps = bool(self._envs.keeps_state)
        if keeps and self._begun:
            self.state()
        return keeps

    def state(self) -> dict[str, Any]:
        """See VecEnv.state. It is copied, because environments may return arrays that later steps change."""
        with self._naming("state"):
            state: dict[str, Any] = self._envs.state()
        if problem := state_problem(state, "state()"):
            raise UsageError(f"{self._name}.{problem}: a checkpoint keeps dicts with texts as keys, lists, numpy "
                             "arrays, numbers, texts, booleans and None. Convert it, or set keeps_state = False.")
        return deepcopy(state)

    def load(self, state: dict[str, Any]) -> None:
        with self._naming("load"):
            self._envs.load(state)
        self._ended = {}

    def close(self) -> None:
        """See VecEnv.close. A fault is a warning."""
        close_env(self._envs, self._name)

    @property
    def groups(self) -> int:
        """See GroupedVecEnv.groups."""
        return groups_of(self._envs)

    def send(self, group: int, action: Array) -> None:
        with self._naming("send"):
            self._envs.send(group, copied(action))

    def receive(self, group: int) -> Step:
        rows = self._envs.num_envs // self._envs.groups
        with self._naming("receive"):
            step = self._envs.receive(group)
        return self._played(step, "receive", rows, group * rows)

    @contextmanager
    def _naming(self, call: str) -> Iterator[None]:
        """Raise EnvError, which names the environments, for an exception of their own."""
        try:
            yield
        except Exception as error:
            if isinstance(error, ProximoError) or is_out_of_memory(error):
                raise
            at = "" if call == "reset" else f" after {self._steps} steps"
            raise EnvError(f"{self._name}.{call}(){at} raised {with_place(error)}") from error

    def _played(self, step: Step, call: str, rows: int, before: int = 0) -> Step:
        """Return what followed an action, checked; `before` is the number of environments in earlier groups."""
        self._checked(step, call, rows)
        check_ends(step, self._name, bool(self._envs.players))
        if step.final_obs is None and not self._envs.players:
            if before in self._ended:  # not after a reset, or in the first step after load()
                check_fillers(step, self._ended[before], self._name)
            self._ended[before] = step.terminated | step.truncated
        self._steps += before == 0
        self._check_numbers(step, before)
        return with_dtype(step, self._envs.obs_dtype)

    def _checked(self, step: Step, call: str, rows: int) -> Step:
        """Return the step; UsageError if it is none of `rows` rows. Types are checked until the first step passes."""
        said = f"{self._name}.{call}() returned"
        if not isinstance(step, Step):
            raise UsageError(f"{said} {type(step).__name__}. Return proximo.protocols.Step.")
        self._check_mask(step, said, call)
        for name, x, shape in fields_of(step, (rows, *self._envs.obs_shape), rows, self._choices):
            if getattr(x, "shape", None) != shape:
                raise UsageError(f"{said} {name} {described(x)}. Its shape has to be {shape}.")
            if not self._types_checked and (wrong := problem_of_type(x, name, self._envs.arrays,
                                                                        self._envs.obs_dtype)):
                raise UsageError(f"{said} {name} {described(x)}. {wrong}")
        if call != "reset":
            self._types_checked = True
            if set(step.metrics) != set(self._envs.metric_names):
                raise UsageError(f"{said} the metrics {sorted(step.metrics)}, but metric_names is "
                                 f"{sorted(self._envs.metric_names)}. Return the same names in every step.")
            for name, x in step.metrics.items():
                if getattr(x, "shape", ()) not in ((), (1,), (rows,)):
                    raise UsageError(f"{said} the metric {name} {described(x)}. Its shape has to be ({rows},) or ().")
        return step

    def _check_mask(self, step: Step, said: str, call: str) -> None:
        """Refuse masks where actions have none, and masks in some steps only: an old one would be read again."""
        given = step.mask is not None
        if given and self._choices is None:
            raise UsageError(f"{said} a mask, but the action space is {self._envs.action_space}. Only Discrete and "
                             "MultiDiscrete actions can be masked: return None.")
        if call == "reset":
            self._masked = given
        elif given != self._masked:
            raise UsageError(f"{said} {'a mask' if given else 'no mask'}, and reset() {'none' if given else 'one'}. "
                             "Return a mask from reset() and from every step(), or None from all of them.")

    def _check_choices(self, step: Step, over: Array | None, before: int = 0) -> None:
        if step.mask is not None and (row := first_without_choice(step.mask, self._starts, over)) is not None:
            raise EnvError(f"environment {before + row} ({self._name}), step {self._steps}: the mask allows no action. "
                           "Return True for at least one.")

    def _check_numbers(self, step: Step, before: int = 0) -> None:
        """Raise EnvError if a number that is learned from is not finite: statistics would spread it to all rows."""
        over = step.terminated | step.truncated if step.final_obs is None else None
        self._check_choices(step, over, before)
        for name, x, read in (("observation", step.obs, None), ("reward", step.reward, step.valid),
                              ("final_obs", step.final_obs, step.truncated)):
            if x is not None and (row := first_not_finite(x, read)) is not None:
                raise EnvError(f"environment {before + row} ({self._name}), step {self._steps}: {name} is not finite "
                               "(NaN or infinity). End the episode (terminated) and reset that environment where the "
                               "simulation is not stable.")
            if name != "reward" and x is not None and (row := first_out_of_range(x, self._stored)) is not None:
                raise EnvError(f"environment {before + row} ({self._name}), step {self._steps}: {name} has a number "
                               f"that does not fit into {self._stored.name}. Return smaller ones, or float32.")
