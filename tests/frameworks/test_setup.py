"""What both frameworks make before the first step."""

from importlib import import_module

import pytest

from proximo.config import Config
from proximo.streams import stream_seed


class MadeError(Exception):
    """Holds the seeds of the environments that would have been made."""


def test_the_first_environments_have_the_seeds_of_iteration_0(framework):
    """As streams.py defines them, so that a run does not depend on the framework."""
    def make_envs(cfg, seeds):
        raise MadeError(list(seeds))

    cfg = Config(framework=framework.name, num_envs=3, num_steps=8, num_minibatches=1, total_timesteps=24, seed=7)
    with pytest.raises(MadeError) as made:
        import_module(f"proximo.on_{framework.name}.setup").set_up(cfg, make_envs, None, None, None)
    assert made.value.args[0] == [(stream_seed(7, "env", 0, 0) + i) % 2**31 for i in range(3)]
