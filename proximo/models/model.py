"""A trained agent with its observation normaliser and its recurrent state: `load(path).act(raw_obs)`."""

from collections.abc import Callable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.memory_needs import network_memory
from proximo.envs.moments import Moments
from proximo.envs.normalize import normalize_obs
from proximo.envs.obs_layout import float_view
from proximo.errors import FilesError, UsageError, reading, warn
from proximo.models.from_checkpoint import is_checkpoint, load_model_tree, model_of_checkpoint, without_model
from proximo.models.raw_obs import ObsReader, Rows, check_choices, read_mask, read_raw, space_reader
from proximo.models.save_folder import model_tree, moments_of, replaceable
from proximo.models.spaces import action_for_env, action_from_env, spec_from
from proximo.models.weights import check_numbers
from proximo.protocols import Spec
from proximo.runs.checkpoint import MANIFEST, save_tree
from proximo.runs.files import given_path
from proximo.runs.run import BEST, check_folder, parts_of_run
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
        self.allow_import: tuple[str, ...] = ()  # modules and scripts that cfg may name (envs/imports.py)
        self.own_parts: Mapping[str, str] = {}  # of the run, that a program passed: names by argument
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
                action. None allows all, or those of the observation's own `action_mask`.
            deterministic: Take the most likely action instead of sampling one.

        Returns:
            An action as `env.step` of the environment takes it, or N of them.

        Raises:
            UsageError: The observation has another structure or shape, numbers that its dtype cannot hold (an image
                that was divided by 255), or NaN. Or its mask allows no action.
        """
        rows, flags = self._read(raw_obs, first, mask, acts=True)
        action = action_for_env(self.choose(rows.obs, flags, rows.mask, deterministic), self.spec.action_space)
        return action[0] if rows.single else action

    def predict(self, raw_obs: Any, first: Any = None, mask: Any = None, deterministic: bool = True,
                **others: Any) -> Any:
        """Choose actions as `act` does, by default the most likely ones. Other arguments raise UsageError."""
        if others:
            raise UsageError(f"predict has no argument {', '.join(others)}. The recurrent state is kept inside: begin "
                             "an episode with first=True or reset(), and pass masks as mask=... (docs/coming-from.md).")
        return self.act(raw_obs, first, mask, deterministic)

    def value(self, raw_obs: Any, first: Any = None) -> Any:
        """Return the value of one observation, or (N,) values, with norm_reward those of normalised rewards. Arguments
        are as in `act`, but the key `cfg.critic_obs` is needed. The recurrent state is not advanced."""
        return self._evaluate(raw_obs, first, None, None, acts=False)[0]

    def logprob(self, raw_obs: Any, action: Any, first: Any = None, mask: Any = None) -> Any:
        """Return the log-probability of an action that `act` returned, or (N,). The recurrent state is not advanced.

        A continuous action is taken as given, even if it was clipped to its bounds. Otherwise as in `act`."""
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
                          self.actor.weights(), self.own_parts)
        check_numbers(tree)
        place = replaceable(given_path(folder, "folder", "Name a folder for the model."))
        save_tree(place, tree, "")

    def export(self, path: str | Path, to: str = "", also: str = "", mask: bool = True) -> None:
        """Write one file that acts without Proximo; `export_model` in export/files.py has the arguments and errors."""
        from proximo.models.export.files import export_model

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
        flags = None if first is None else np.asarray(first, bool)
        if flags is not None and flags.shape not in ((), (1,) if rows.single else (count,)):
            raise UsageError(f"first has shape {flags.shape}. {count} observations need {(count,)}, or one value.")
        rows = rows if mask is None else rows._replace(mask=read_mask(mask, self.spec.action_space, count))
        check_choices(rows.mask if acts else None, self.spec.action_space)
        return rows, None if flags is None else np.broadcast_to(flags, count).copy()

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
        if known is None and self._state and first is None and not self._told:
            self._told = True
            warn(f"The policy is recurrent, and had {self._rows} observations before these {count}: all of them begin "
                 "an episode. Use one model for each group of environments, or pass `first`.")
        first = np.full(count, known is None) if first is None else first
        return first, self.actor.initial_state(count) if known is None else known

    def _normalized(self, obs: np.ndarray) -> np.ndarray:
        if self.moments is None:
            return obs.astype(self.spec.obs_dtype, copy=False)
        return self._view.write(obs, normalize_obs(self.moments, self._view.read(obs), self.cfg.clip_obs))


def read_model(path: Path) -> dict[str, Any]:
    """Read the folder of a model, of a run that has saved one, or of a checkpoint of a run.

    A model of an earlier version has no `own_parts`: those of the run in whose folder it lies are added.

    Raises:
        UsageError: There is no such folder.
        FilesError: There is no model in it, or it is damaged.
    """
    check_folder(path)
    if is_checkpoint(path):
        return model_of_checkpoint(path, read_model(path.parent.parent))[1]
    for folder in (path, path / "model"):
        if (folder / MANIFEST).exists():
            tree = load_model_tree(folder)
            if "own_parts" not in tree:
                tree["own_parts"] = parts_of_run(folder.parent) if folder.name in ("model", BEST) else {}
            return tree
    raise without_model(path)


def model_from(tree: dict[str, Any], cfg: Config, make_actor: Callable[..., Any]) -> Model:
    """Build a model from what `read_model` returned.

    Args:
        tree: The content of a model folder.
        cfg: Its configuration.
        make_actor: `make_actor(spec, cfg, weights)` rebuilds the network.

    Raises:
        FilesError: The weights belong to another network, a number is not finite, a space is impossible, or
            the network does not fit into the memory.
    """
    check_numbers(tree)
    moments, spec = moments_of(tree), spec_from(tree)
    if wrong := network_memory(cfg, spec):
        raise FilesError("\n".join(f"the model has {sentence}" for sentence in wrong))
    own = [f"{name}=..." for name in ("make_agent", "config") if name in tree["own_parts"]]
    advice = f"Pass {' and '.join(own)} of its program." if own else "Use the folder that Proximo wrote."
    with reading("The network of the model cannot be made", advice):
        model = Model(make_actor(spec, cfg, tree["weights"]), spec, cfg, tree["variant"], moments.get("obs"))
    model.own_parts, model.return_moments = tree["own_parts"], moments.get("ret")
    return model
