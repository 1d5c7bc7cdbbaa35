"""What a program returns from `set_up`, with checks of what its functions return during training."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from proximo.config import Config
from proximo.errors import USES, UsageError, call_part
from proximo.on_torch.learner import Adam, Learner
from proximo.on_torch.setup import Setup
from proximo.part_checks import check_estimate, check_statistic_names, kind_of
from proximo.types import Rollout


def changed_setup(setup: Any) -> Setup:
    """Return the Setup that a program made.

    Raises:
        UsageError: It is not a Setup, or has statistics that cannot be logged. When its functions are called: they
            return something else than docs/add-a-loss.md says.
    """
    if not isinstance(setup, Setup):
        raise UsageError(f"set_up returned {kind_of(setup)}. {USES['set_up']}")
    check_statistic_names(setup.learner.names)
    learner = setup.learner._replace(step=_checked_step(setup.learner, setup.adam))
    return setup._replace(estimate=_checked_estimate(setup.estimate), learner=learner)


def _checked_estimate(estimate: Callable[..., Any]) -> Callable[[Rollout, Config], Tensor]:
    def estimate_rows(rollout: Rollout, cfg: Config) -> Tensor:
        advantage: Tensor = call_part("estimate", estimate, rollout, cfg)
        check_estimate(advantage, rollout.value.shape)
        return advantage

    return estimate_rows


def _checked_step(learner: Learner, adam: Adam) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the step of a program. Nothing changes from the first result on that is not finite."""
    def step(*arguments: Any) -> tuple[Tensor, Tensor]:
        before = [x.clone() for x in adam[:4]]
        stats, norm = learner.step(*arguments)
        if len(stats) != len(learner.names):
            raise UsageError(f"The step of set_up returns {len(stats)} statistics, and learner.names has "
                             f"{len(learner.names)}: {', '.join(learner.names)}. Add a name for each.")
        if not (isinstance(norm, Tensor) and norm.ndim == 0):
            raise UsageError(f"The step of set_up returns {kind_of(norm)} as the norm of the gradient. Let `apply` "
                             "return a tensor of shape ().")
        adam.ok.logical_and_(norm.isfinite() & adam.weights.isfinite().all())
        if not bool(adam.ok):
            for x, old in zip(adam, before):
                x.copy_(old)
        return stats, norm

    return step
