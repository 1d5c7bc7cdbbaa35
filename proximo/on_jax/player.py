"""What the loop may assume about how environments are played: inside JAX, through a pool, or from the host."""

from collections.abc import Callable
from typing import Any, Protocol

from proximo.envs.arrays.moments import Statistics
from proximo.envs.normalize import Normalizer
from proximo.on_jax.train_step import Metrics, TrainState
from proximo.protocols import VecEnv
from proximo.types import Carry

SeededEnvs = Callable[[int], VecEnv]  # iteration -> this process's environments, with the seeds of that iteration


class Player(Protocol):
    """One kind of environments with the functions compiled for them. VecEnv.play chooses the kind (setup.py)."""

    envs: VecEnv
    normalizer: Normalizer
    agent: Any  # describes the network; its own weights are not used
    keeps_state: bool  # the environments are part of a snapshot; otherwise they are rebuilt at every checkpoint
    charts_latest: bool  # charts the means over the latest episode of every environment

    def begin(self, iteration: int, statistics: Statistics | None) -> tuple[Any, Carry]:
        """Reset the environments with the seeds of an iteration. The recurrent state is zero (detail 33).

        Args:
            iteration: 0, or the iteration before which environments are rebuilt.
            statistics: What normalisation continues with: normalizer.start() at the start.

        Returns:
            The environments' part of TrainState and the first carry, in which every row begins an episode.
        """
        ...

    def place(self, state: TrainState) -> TrainState:
        """Put a state on the devices on which iterate() expects it."""
        ...

    def iterate(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Run one iteration. `state` must not be used afterwards: its memory may be reused."""
        ...

    def rebuild(self, state: TrainState, iteration: int) -> TrainState:
        """Replace the environments by new ones with the seeds of an iteration and the same statistics."""
        ...

    def statistics(self, state: TrainState) -> Statistics | None:
        """Return the statistics of normalisation, equal on all ranks but for `running`, that of this process's rows."""
        ...

    def pack(self, state: TrainState) -> dict[str, Any]:
        """Return the environments' part of a snapshot, without statistics; called only if `keeps_state` is True."""
        ...

    def unpack(self, kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
        """Restore statistics and the environments' part of a snapshot; `whole` False restores only the statistics."""
        ...
