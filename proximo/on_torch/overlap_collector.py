"""The thread that plays one rollout while the loop learns from the one before (overlap.py)."""

from collections.abc import Callable
from queue import Queue
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proximo.config import Config
from proximo.errors import UsageError, reading_checkpoint
from proximo.on_torch.device import check_defaults
from proximo.on_torch.learner import flat_adam
from proximo.on_torch.precision import use_bf16
from proximo.on_torch.rollout import Collected
from proximo.on_torch.setup import (
    Setup,
    make_collect,
    make_storage,
    rebuild,
    seeded_agent,
    torch_generator,
)
from proximo.on_torch.snapshot import saved_buffers
from proximo.protocols import MakeEnvs, VecEnv
from proximo.types import Carry

CLOSING_SECONDS = 5.0  # how long the end of training waits for a rollout in flight


class ActingCopy(NamedTuple):
    """A second network, which acts while the first one learns."""

    collect: Callable[..., Collected]  # that of Setup, with this network
    weights: Tensor  # (P,); the parameters of the network are views of it


class RolloutStart(NamedTuple):
    """What a rollout starts from."""

    carry: Carry
    weights: np.ndarray  # (P,) with which it is collected
    envs: dict[str, Any] | None  # state() of the environments, None if it cannot be saved


def make_acting_copy(setup: Setup, make_agent: Callable[..., Any], cfg: Config,
                     state: dict[str, Any] | None) -> ActingCopy:
    """Make the network that acts, with the weights of a snapshot or the initial ones.

    Raises:
        UsageError: The network is recurrent or has buffers, or make_agent does not make a new one.
    """
    if setup.agent.recurrent:
        raise UsageError("overlap=True does not support a recurrent network: the one that learns has not seen what the "
                         "other one played. Leave --overlap out.")
    if names := list(saved_buffers(setup.agent)):
        raise UsageError(f"overlap=True does not support buffers of the network ({', '.join(names)}). Use a layer "
                         "without running statistics such as LayerNorm, or leave --overlap out.")
    actor = seeded_agent(make_agent, setup.normalizer.spec, cfg)
    if {id(x) for x in actor.parameters()} & {id(x) for x in setup.agent.parameters()}:
        raise UsageError("make_agent returned the same network, or parts of it, at its second call. With --overlap one "
                         "network acts while another one learns. Make a new one at every call.")
    actor = actor.to(setup.device).eval()
    if cfg.precision == "bf16":
        use_bf16(actor, setup.device)
    weights = flat_adam(actor).weights
    with reading_checkpoint():
        weights.copy_(setup.adam.weights if state is None else torch.as_tensor(state["acting"]))
    return ActingCopy(make_collect(actor, weights, setup.storage, setup.carry, cfg, setup.compiler), weights)


class Collector:
    """Plays rollouts in a thread, one after the other: begin(), then finish().

    Args:
        setup: The objects of training.
        cfg: The configuration.
        make_envs: Makes the environments again, where their state cannot be saved.
        acting: The network that acts.
    """

    def __init__(self, setup: Setup, cfg: Config, make_envs: MakeEnvs, acting: ActingCopy) -> None:
        self._setup, self._cfg, self._make_envs, self._acting = setup, cfg, make_envs, acting
        self._envs: VecEnv = setup.envs
        second = make_storage(cfg, setup.envs, setup.normalizer.spec.obs_dtype, setup.agent, setup.carry,
                              setup.device)
        self._storages = (setup.storage, second)  # one is learned from while the other is written
        self._requests: Queue[tuple[int, Carry] | None] = Queue(1)
        self._results: Queue[Collected | BaseException] = Queue(1)
        self._thread = Thread(target=self._run, name="overlap", daemon=True)
        self._thread.start()
        self.before = RolloutStart(setup.carry, np.empty(0), None)

    def begin(self, iteration: int, carry: Carry, first: bool = False) -> None:
        """Begin the rollout of an iteration from `carry`; `first`: it is the first one of this process.

        Environments whose state cannot be saved are made again where train() makes them again. After the last
        iteration nothing is played.
        """
        setup, remake = self._setup, (iteration - 1) % self._cfg.checkpoint_every == 0 or first
        self.before = RolloutStart(carry=carry, weights=self._acting.weights.cpu().numpy().copy(),
                                   envs=self._envs.state() if setup.keeps_state else None)
        if iteration > self._cfg.num_iterations:
            return
        if remake and iteration > 1 and not setup.keeps_state:
            self._envs.close()
            self._envs, carry = rebuild(setup, carry.statistics, self._cfg, self._make_envs, iteration)
        self._requests.put((iteration, carry))

    def finish(self) -> tuple[RolloutStart, Collected]:
        """Wait for the rollout in flight. Return what it started from, and its result.

        Raises:
            EnvError: An environment failed.
        """
        result = self._results.get()
        if isinstance(result, BaseException):
            raise result
        return self.before, result

    def copy_weights(self, weights: Tensor) -> None:
        """Use these weights for the next rollout. No rollout may be in flight."""
        self._acting.weights.copy_(weights)

    def _run(self) -> None:
        """Run in the thread: play what is requested."""
        while (request := self._requests.get()) is not None:
            try:
                self._results.put(self._play(*request))
            except BaseException as error:  # finish() raises it in the thread of the loop
                self._results.put(error)

    def _play(self, iteration: int, carry: Carry) -> Collected:
        check_defaults()  # autocast and the default device are those of a thread
        setup, cfg = self._setup, self._cfg
        with torch.no_grad():
            noise = setup.agent.head.noise(torch_generator(cfg, "action", iteration, setup.world), cfg.num_steps,
                                           self._envs.num_envs).to(setup.device)
            return self._acting.collect(self._envs, setup.normalizer, carry, self._storages[iteration % 2], noise)

    def close(self) -> None:
        """End the thread, then close the environments, which cannot be closed while they step.

        A rollout in flight that takes longer than CLOSING_SECONDS is not waited for: another thread closes the
        environments when it has ended.
        """
        self._requests.put(None)
        self._thread.join(CLOSING_SECONDS)
        if self._thread.is_alive():
            Thread(target=self._close_at_end, name="overlap-close", daemon=True).start()
        else:
            self._envs.close()

    def _close_at_end(self) -> None:
        self._thread.join()
        self._envs.close()


def start_collector(setup: Setup, cfg: Config, make_envs: MakeEnvs, make_agent: Callable[..., Any],
                 state: dict[str, Any] | None) -> Collector:
    """Make the network that acts, and the thread; see train() for the arguments.

    Raises:
        UsageError: The network has buffers besides its weights.
    """
    try:
        return Collector(setup, cfg, make_envs, make_acting_copy(setup, make_agent, cfg, state))
    except BaseException:
        setup.envs.close()
        raise
