"""VectorEnvs of Gymnasium for tests: its own SyncVectorEnv, and the same with torch tensors."""

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

import tests.support.probes  # noqa: F401  registers the environments
from proximo.envs.vector_env import GymVectorEnvs


class Tensors(VectorWrapper):
    """Takes and returns tensors, as simulators on a GPU do; last observations are those of all environments."""

    def reset(self, *, seed=None, options=None):
        if options is not None and "reset_mask" in options:
            options = {"reset_mask": options["reset_mask"].numpy()}
        obs, info = self.env.reset(seed=seed, options=options)
        return as_tensors(obs), as_tensors(info)

    def step(self, actions):
        obs, *rest, info = self.env.step(actions.numpy())
        if "final_obs" in info:
            rows = [now if last is None else last for now, last in zip(
                gymnasium.vector.utils.iterate(self.observation_space, obs), info["final_obs"], strict=True)]
            empty = gymnasium.vector.utils.create_empty_array(self.single_observation_space, self.num_envs)
            info["final_obs"] = gymnasium.vector.utils.concatenate(self.single_observation_space, rows, empty)
        return as_tensors(obs), *map(torch.as_tensor, rest), as_tensors(info)


def as_tensors(value):
    """Return arrays in dicts as tensors; other values are left out."""
    if isinstance(value, dict):
        return {name: as_tensors(part) for name, part in value.items() if isinstance(part, (dict, tuple, np.ndarray))}
    if isinstance(value, tuple):
        return tuple(as_tensors(part) for part in value)
    return torch.as_tensor(value)


def sync_envs(env_id, num_envs, mode="NextStep", tensors=False):
    """Return a SyncVectorEnv of an id."""
    envs = SyncVectorEnv([lambda: gymnasium.make(env_id)] * num_envs, autoreset_mode=AutoresetMode(mode))
    return Tensors(envs) if tensors else envs


def vector_suite(mode, tensors=False, **options):
    """Return a maker for the contract of suites."""
    return lambda cfg, seeds: GymVectorEnvs(sync_envs(cfg.env_id, len(seeds), mode, tensors), seeds[0], **options)
