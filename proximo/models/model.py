"""A trained agent as a user meets it: load(path).act(raw_obs), normaliser and memory included."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from proximo.config import Config
from proximo.envs.normalize import Moments, normalize_obs
from proximo.errors import FilesError, UsageError, notify
from proximo.models.action_spaces import action_for_env, space_from_json, space_to_json
from proximo.protocols import VecEnv
from proximo.runs.checkpoint import checkpoints, load_tree, save_tree
from proximo.streams import stream_seed


class Spec(NamedTuple):
    """What a network needs to know of its environment."""

    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype
    action_space: gym.Space


class Model:
    """An agent with its observation normaliser. Memory, where there is one, is kept between calls of act()."""

    def __init__(self, actor: Any, spec: Spec, cfg: Config, variant: str, moments: Moments | None):
        self.actor, self.spec, self.cfg, self.variant, self.moments = actor, spec, cfg, variant, moments
        self.reset()

    def reset(self, seed: int = 0) -> None:
        """Forget what was seen; `seed` keys the noise of sampled actions."""
        self._state: tuple | None = None
        self._seed, self._calls, self._rows = seed, 0, 0

    def act(self, raw_obs: np.ndarray, first: Any = None, mask: Any = None, deterministic: bool = False) -> Any:
        """An action for an observation (*obs_shape,), or N for (N, *obs_shape), as env.step takes them.

        `first` (N,) bool says where an episode begins (default: at the first call only; memory forgets there); `mask`
        (N, A) bool says which actions are allowed. UsageError for an observation of another shape."""
        obs = np.asarray(raw_obs)
        shape = tuple(self.spec.obs_shape)
        if obs.shape[-len(shape):] != shape or obs.ndim - len(shape) not in (0, 1):
            raise UsageError(f"the observation has shape {obs.shape}; this model takes {shape} or (N, {str(shape)[1:]}")
        single = obs.ndim == len(shape)
        rows = obs[None] if single else obs
        flags = None if first is None else np.broadcast_to(np.asarray(first, bool), len(rows)).copy()
        masks = None if mask is None else np.asarray(mask, bool).reshape(len(rows), -1)
        action = action_for_env(self.choose(rows, flags, masks, deterministic), self.spec.action_space)
        return action[0] if single else action

    def choose(self, obs: np.ndarray, first: np.ndarray | None, mask: np.ndarray | None,
               deterministic: bool = False) -> np.ndarray:
        """(N, *obs_shape) raw -> actions (N, ...) as a Proximo suite's step() takes them."""
        if self._state is None or self._rows != len(obs):
            self._state, self._rows = self.actor.initial_state(len(obs)), len(obs)
            first = np.ones(len(obs), bool) if first is None else first
        first = np.zeros(len(obs), bool) if first is None else first
        seen = obs.astype(self.spec.obs_dtype, copy=False) if self.moments is None else normalize_obs(
            self.moments, obs, self.cfg.clip_obs)
        self._calls += 1
        seed = None if deterministic else stream_seed(self._seed, "eval", self._calls)
        action, self._state = self.actor.act(seen, mask, first, self._state, seed)
        return action


def save_model(folder: Path, variant: str, cfg: Config, envs: VecEnv, weights: dict[str, np.ndarray]) -> None:
    """One model, one folder: weights and normaliser in safetensors, the rest in JSON. Raises FilesError."""
    tree = {"variant": variant, "config": asdict(cfg), "obs_shape": list(envs.obs_shape),
            "obs_dtype": str(np.dtype(envs.obs_dtype)), "action_space": space_to_json(envs.action_space),
            "weights": weights}
    if envs.statistics is not None and cfg.norm_obs:
        tree["obs_moments"] = {name: np.asarray(x) for name, x in envs.statistics.obs._asdict().items()}
    save_tree(folder, tree)


def read_model(path: Path) -> dict:
    """The content of a model folder, or of the model of a run; FilesError where there is none."""
    for folder in (path, path / "model"):
        if (folder / "manifest.json").is_file():
            tree = load_tree(folder)
            if "action_space" not in tree:
                break
            return tree
    raise FilesError(f"{path} holds no model; give a run that has saved one, or the folder of a model")


def models_over_time(run: Path) -> list[tuple[int, dict]]:
    """(steps, model) for each whole checkpoint of a run, oldest first; FilesError where there is no model."""
    newest, found = read_model(run), []
    for folder in checkpoints(run):
        try:
            state = load_tree(folder)["state"]
        except FilesError as error:
            notify(f"{error}; left out")
            continue
        weights = checkpoint_weights(state["adam"], newest["weights"])
        statistics = state.get("statistics", {})  # outside a compiled function obs_mean, inside .obs.mean
        moments = {field: statistics[name] for field in Moments._fields
                   for name in (f"obs_{field}", f".obs.{field}") if name in statistics}
        found.append((state["steps"], newest | {"weights": weights} | (
            {"obs_moments": moments} if "obs_moments" in newest else {})))
    return found


def checkpoint_weights(adam: dict, like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights by name, shaped as those of `like`: torch keeps one vector of all, JAX an array for each name."""
    if "weights" not in adam:
        return {name: adam[f".weights['{name}']"] for name in like}
    parts = np.split(adam["weights"], np.cumsum([x.size for x in like.values()])[:-1])
    return {name: part.reshape(x.shape) for (name, x), part in zip(like.items(), parts, strict=True)}


def model_from(tree: dict, cfg: Config, make_actor: Callable) -> Model:
    """`make_actor(spec, cfg, weights)` rebuilds the network; what read_model returned says the rest."""
    spec = Spec(tuple(tree["obs_shape"]), np.dtype(tree["obs_dtype"]), space_from_json(tree["action_space"]))
    moments = Moments(**tree["obs_moments"]) if "obs_moments" in tree else None
    return Model(make_actor(spec, cfg, tree["weights"]), spec, cfg, tree["variant"], moments)

