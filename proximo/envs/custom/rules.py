"""The rules for the ends of episodes in steps of custom environments (docs/batched-environments.md)."""

from proximo.errors import UsageError
from proximo.protocols import Array, Step


def check_ends(step: Step, name: str, self_play: bool) -> None:
    """Refuse two ends at once, and a new episode without `first`, or without the last observation before it.

    Args:
        step: What environments returned for an action.
        name: Of the environments, for messages.
        self_play: A row may end while the game of the others goes on.

    Raises:
        UsageError: A rule is broken.
    """
    if bool((step.terminated & step.truncated).any()):
        raise UsageError(f"{name}: an episode is terminated and truncated in the same step. Return truncated = False "
                         "where terminated is True: what follows has the value 0 there.")
    if step.final_obs is None and bool((step.first & step.valid).any()):
        raise UsageError(f"{name}: an episode begins (first is True) in the step in which the one before ended, and "
                         "final_obs is None. Return the observation before the reset as final_obs: "
                         "docs/batched-environments.md says what to do if the simulator does not have it.")
    ended = (step.terminated | step.truncated) & step.valid
    if step.final_obs is not None and not self_play and bool((ended & ~step.first).any()):
        raise UsageError(f"{name}: an episode ends in a step with final_obs, and first is False. Reset the environment "
                         "in the same step and return first = True, or return final_obs = None.")


def check_fillers(step: Step, ended: Array, name: str) -> None:
    """Refuse a step without filler rows where episodes had ended: environments that reset without saying so.

    Args:
        step: What environments returned for an action, with `final_obs` None.
        ended: (N,) bool, rows whose episode ended in the step before.
        name: Of the environments, for messages.

    Raises:
        UsageError: Other rows than these are fillers.
    """
    if bool(((step.first != ended) | (step.valid == ended)).any()):
        raise UsageError(f"{name}: final_obs is None, and the filler rows of a step (first = True, valid = False) are "
                         "not those whose episode ended in the step before. If environments reset in the step in "
                         "which an episode ends, return the last observation as final_obs, and first = True. If they "
                         "reset one step later, that step is the filler, and no other.")
