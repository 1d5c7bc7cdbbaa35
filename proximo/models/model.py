"""A trained agent with its observation normaliser and its recurrent state: `load(path).act(raw_obs)`."""

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.arrays.moments import Moments
from proximo.envs.arrays.obs_layout import float_view
from proximo.envs.normalize import normalize_obs
from proximo.errors import UsageError, warn, warn_once
from proximo.models.act_arguments import check_choices, check_switch, read_first, read_mask
from proximo.models.raw_obs import ObsReader, Rows, read_raw, space_reader
from proximo.models.save_folder import model_tree, replaceable
from proximo.models.spaces import action_for_env, action_from_env
from proximo.models.weights import check_numbers
from proximo.protocols import Spec
from proximo.runs.folder.checkpoint import save_tree
from proximo.runs.folder.files import given_path
from proximo.streams import stream_seed

SEEN = ("env_wrappers", "grayscale", "resize", "frame_stack")  # fields that change what is seen of an environment


class Model:
    """A trained agent. It normalises observations and keeps its recurrent state between calls of `act`.

    Args:
        actor: The network (on_torch/actor.py, on_jax/actor.py).
        spec: Shapes of its environment.
        cfg: The configuration that it was trained with.
        variant: The name of the variant.
        moments: Statistics that normalise observations, or None.
    """

    def __init__(self, actor: Any, spec: Spec, cfg: Config, variant: str, moments: Moments | None) -> None:
        self.actor, self.spec, self.cfg, self.variant, self.moments = actor, spec, cfg, variant, moments
        self._view = float_view(spec.observation_space, spec.obs_shape)
        self._reader: ObsReader | None = None
        self._told = False  # that another number of observations clears the recurrent state
        self.allow_import: tuple[str, ...] = ()  # modules and scripts that cfg may name (envs/custom/imports.py)
        self.custom_parts: Mapping[str, str] = {}  # of the run, that a program passed: names by argument
        self.return_moments: Moments | None = None  # statistics that normalised rewards
        self._seed, self._calls = 0, 0  # of the noise of sampled actions
        self.reset()

    def __repr__(self) -> str:
        return (f"Model(variant={self.variant!r}, env_id={self.cfg.env_id!r}, obs_shape={self.spec.obs_shape}, "
                f"obs_dtype={self.spec.obs_dtype}, action_space={self.spec.action_space})")

    def reset(self, seed: int | None = None) -> None:
        """Clear the recurrent state. With a seed, restart the noise of sampled actions too.

        Args:
            seed: The seed of that noise, from 0; the same seed and observations give the same actions. A model that was
                loaded has the seed 0. None: the noise continues.

        Raises:
            UsageError: The seed is no whole number, or below 0.
        """
        self._state: tuple[Any, ...] | None = None
        self._rows = 0
        if seed is not None:
            if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
                raise UsageError(f"reset: seed={seed!r:.60} is not allowed. Use a whole number from 0, or None.")
            self._seed, self._calls = int(seed), 0

    def act(self, raw_obs: Any, first: Any = None, mask: Any = None, deterministic: bool = False) -> Any:
        """Choose an action for one observation, or one action for each of N observations.

        Args:
            raw_obs: One observation as the environment returns it: an array, a number, a dict or a tuple. Or N of them:
                the same structure with a first axis of N in every array, or a list of N dicts or tuples. The key
                `cfg.critic_obs` may be missing.
            first: (N,) bool, True where an episode begins: the recurrent state is cleared there. By default only the
                first call begins an episode, and a call with another N.
            mask: (N, A) bool, the allowed actions (A choices in all), or one array (N, choices) per component of the
                action. None allows all, or those of the observation's own `action_mask`; an agent that was trained with
                masks warns once.
            deterministic: Take the most likely action instead of sampling one.

        Returns:
            An action as `env.step` of the environment takes it, or N of them.

        Raises:
            UsageError: The observation has another structure or shape, numbers that its dtype cannot hold (an image
                that was divided by 255), or NaN. Or its mask allows no action, or another argument cannot be read.
        """
        check_switch("deterministic", deterministic)
        rows, flags = self._read(raw_obs, first, mask, acts=True)
        action = action_for_env(self.choose(rows.obs, flags, rows.mask, deterministic), self.spec.action_space)
        return action[0] if rows.single else action

    def predict(self, raw_obs: Any, first: Any = None, mask: Any = None, deterministic: bool = True,
                **others: Any) -> Any:
        """Choose actions as `act` does, by default the most likely ones, under the name that Stable-Baselines3 has.

        Args:
            raw_obs: As in `act`.
            first: As in `act`.
            mask: As in `act`.
            deterministic: Whether the most likely action is taken instead of a sampled one.
            others: None; UsageError names what is given.

        Returns:
            What `act` returns.
        """
        if others:
            raise UsageError(f"predict has no argument {', '.join(others)}. The recurrent state is kept inside: begin "
                             "an episode with first=True or reset(), and pass masks as mask=... (docs/coming-from.md).")
        return self.act(raw_obs, first, mask, deterministic)

    def value(self, raw_obs: Any, first: Any = None) -> Any:
        """Return the value of one observation, or (N,) values. The recurrent state is not advanced.

        Args:
            raw_obs: As in `act`, but the key `cfg.critic_obs` is needed.
            first: As in `act`.

        Returns:
            A number or (N,) float32; with norm_reward, the values of normalised rewards.
        """
        return self._evaluate(raw_obs, first, None, None, acts=False)[0]

    def logprob(self, raw_obs: Any, action: Any, first: Any = None, mask: Any = None) -> Any:
        """Return the log-probability of an action, or (N,) of N. The recurrent state is not advanced.

        Args:
            raw_obs: As in `act`.
            action: What `act` returned. A continuous action is taken as given, even if it was clipped to its bounds.
            first: As in `act`.
            mask: As in `act`.

        Returns:
            A number or (N,) float32; log-densities of continuous actions.
        """
        return self._evaluate(raw_obs, first, mask, action, acts=True)[1]

    @property
    def module(self) -> Any:
        """The network: a torch.nn.Module, or a flax.nnx.Module for a custom JAX network."""
        return self.actor.module

    def save(self, folder: str | Path) -> None:
        """Write the model, with the weights that the network has now, to a folder that `proximo.load` reads.

        Args:
            folder: The folder; it may take the place of an earlier model.

        Raises:
            UsageError: It is a file, or contains something other than a model.
            FilesError: It cannot be written, or a weight is not finite.
        """
        tree = model_tree(self.variant, self.cfg, self.spec, {"obs": self.moments, "ret": self.return_moments},
                          self.actor.weights(), self.custom_parts)
        check_numbers(tree)
        place = replaceable(given_path(folder, "folder", "Name a folder for the model."))
        save_tree(place, tree, ", or choose another folder")

    def export(self, path: str | Path, to: str = "", also: str = "", mask: bool = True) -> None:
        """Write one file that acts without Proximo (docs/deploy.md), and check that it acts as the model does.

        Args:
            path: The file, such as agent.onnx or agent.pt2.
            to: "onnx" or "pt2"; empty: by the ending of `path`.
            also: An additional output: "logits" of discrete actions, or the "mean" of continuous ones; empty: none.
            mask: Whether there is an input for action masks, where actions can be masked.

        Raises:
            UsageError: An argument is unknown, a package is missing, or the network cannot be exported.
            FilesError: The file cannot be written.
        """
        from proximo.models.export.files import export_model

        check_switch("mask", mask)
        export_model(self, given_path(path, "path", "Name a file such as agent.onnx."), to, also, mask)

    def _read(self, raw_obs: Any, first: Any, mask: Any, acts: bool) -> tuple[Rows, np.ndarray | None]:
        """Return the rows of observations with their masks, and which of them begin an episode.

        `acts`: only the policy sees them, for which the key `cfg.critic_obs` may be missing.
        """
        space, shape = self.spec.observation_space, self.spec.obs_shape
        self._reader = self._reader or space_reader(space, shape, self.spec.obs_dtype)
        try:
            rows = read_raw(space, shape, raw_obs, self.cfg.critic_obs if acts else "", self._reader)
        except UsageError as error:
            made = [f"{name}={value}" for name in SEEN if (value := getattr(self.cfg, name)) != getattr(Config, name)]
            raise UsageError(f"{error}" + f" Observations are made with {', '.join(made)}." * bool(made)) from error
        count = len(rows.obs)
        flags = None if first is None else read_first(first, rows.single, count)
        rows = rows if mask is None else rows._replace(mask=read_mask(mask, self.spec.action_space, count))
        if acts and rows.mask is None and self.spec.masked:
            warn_once("The agent was trained with action masks. Without one, it also chooses actions that were never "
                      "allowed: pass mask=... (docs/python.md#use-a-trained-model).")
        check_choices(rows.mask if acts else None, self.spec.action_space)
        return rows, flags

    def _evaluate(self, raw_obs: Any, first: Any, mask: Any, action: Any, acts: bool) -> tuple[Any, Any]:
        rows, flags = self._read(raw_obs, first, mask, acts)
        flags, state = self._memory(len(rows.obs), flags)
        taken = action_from_env(action, self.spec.action_space, len(rows.obs)) if acts else None
        value, logprob = self.actor.evaluate(self._normalized(rows.obs), rows.mask, flags, state, taken)
        if rows.single:
            return float(value[0]), None if logprob is None else float(logprob[0])
        return value, logprob

    def choose(self, obs: np.ndarray, first: np.ndarray | None, mask: np.ndarray | None,
               deterministic: bool = False) -> np.ndarray:
        """Choose actions as `VecEnv.step` takes them: not clipped to bounds, and without `start`.

        Args:
            obs: (N, *obs_shape), not normalised.
            first: (N,) bool or None, as in `act`.
            mask: (N, A) bool or None, as in `act`.
            deterministic: Take the most likely actions instead of sampling them.

        Returns:
            (N, *action_shape).
        """
        first, state = self._memory(len(obs), first)
        self._calls += 1
        seed = None if deterministic else stream_seed(self._seed, "eval", self._calls)
        action, self._state = self.actor.act(self._normalized(obs), mask, first, state, seed)
        self._rows = len(obs)
        return action

    def _memory(self, count: int, first: np.ndarray | None) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Return which of `count` rows begin an episode, and the recurrent state before this step."""
        known = self._state if self._rows == count else None
        if known is None and self._state and not self._told and (first is None or not first.all()):
            self._told = True
            warn(f"The policy is recurrent, and had {self._rows} observations before these {count}: all of them begin "
                 "an episode. Use one model for each group of environments, or clear the state by reset() or "
                 "first=True.")
        first = np.full(count, known is None) if first is None else first
        return first, self.actor.initial_state(count) if known is None else known

    def _normalized(self, obs: np.ndarray) -> np.ndarray:
        if self.moments is None:
            return obs.astype(self.spec.obs_dtype, copy=False)
        return self._view.write(obs, normalize_obs(self.moments, self._view.read(obs), self.cfg.clip_obs))
