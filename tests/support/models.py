"""Models that were not trained: random weights and statistics, for tests of what a model does."""

import numpy as np
import torch

from proximo.catalog import config_class, parts_of
from proximo.envs.arrays.moments import Moments
from proximo.envs.arrays.obs_layout import float_view
from proximo.envs.arrays.spaces import read_space
from proximo.models.model import Model
from proximo.on_torch.actor import Actor
from proximo.on_torch.snapshot import named_weights
from proximo.protocols import Spec


def random_model(action_space, observation_space=None, variant="ppo", obs_shape=(), obs_dtype=np.float32, make_agent=None,
                 **fields):
    """A model of a variant over two spaces; without an observation space, over rows of a shape and dtype."""
    cfg = config_class(variant)(**{"hidden_sizes": (16, 16), "memory_size": 8} | fields)
    if observation_space is not None:
        reader = read_space(observation_space, "test")
        obs_shape, obs_dtype = reader.shape, reader.dtype
    view, rng = float_view(observation_space, obs_shape), np.random.default_rng(0)
    spec = Spec(obs_shape=obs_shape, action_space=action_space, observation_space=observation_space,
                obs_dtype=np.dtype(np.float32 if cfg.norm_obs and view.whole else obs_dtype))
    make_agent = make_agent or parts_of(variant, "torch").make_agent
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        agent = make_agent(spec, cfg)
    weights = {name: (x + rng.normal(size=x.shape) / np.sqrt(x[0].size if x.ndim > 1 else 4)).astype(x.dtype)
               for name, x in named_weights(agent).items()}
    moments = Moments(mean=rng.normal(size=view.shape), var=rng.uniform(0.5, 2, view.shape), count=np.float64(1000))
    return Model(Actor(make_agent, spec, cfg, weights), spec, cfg, variant, moments if cfg.norm_obs else None)


def run_eagerly(portable):
    """A function from named arrays to named arrays, as an exported file is, without a file."""
    def run(inputs):
        return {name: x.numpy() for name, x in portable({name: torch.from_numpy(x) for name, x in inputs.items()}).items()}

    return run
