"""Random numbers of torch on the CPU: a generator that depends on all 64 bits of its seed, and seeded networks."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from proximo.config import Config
from proximo.protocols import Spec
from proximo.streams import stream_seed

STATE_WORDS = slice(3, 627)  # of get_state() in 64-bit integers: a header, then the 624 words of the Mersenne Twister
GLOBAL_GENERATOR = threading.RLock()  # held where torch's global generator is changed: several threads may train


def seeded_generator(seed: int) -> torch.Generator:
    """Make a generator from a seed of 64 bits. `manual_seed` uses the low 32 bits only.

    numpy draws the state from the seed. The numbers are then those of the Mersenne Twister MT19937 that begins with
    this state (ATen/CPUGeneratorImpl.cpp, CPUGeneratorImplStateLegacy). It takes about 15 microseconds.
    """
    generator = torch.Generator()
    state = generator.get_state()
    state.numpy().view(np.int64)[STATE_WORDS] = np.random.PCG64(seed).random_raw(312).astype("<u8").view("<u4")
    return generator.set_state(state)


def seeded_agent(make_agent: Callable[..., Any], spec: Spec, cfg: Config) -> Any:
    """Make the agent with weights drawn from stream "init". torch's own generators are left as they were."""
    with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(cfg.seed, "init"))  # of the CPU; it uses the low 32 bits
        return make_agent(spec, cfg)
