"""The state of callbacks in a checkpoint: of those that have the methods state() and load(state)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proximo.callbacks import has_method
from proximo.envs.state.codes import OpaqueError, decode_value, encode_copy
from proximo.errors import UsageError, notify, reading_checkpoint, warn, with_place
from proximo.runs.folder.state_tensors import with_tensors, without_tensors
from proximo.runs.part_names import name_of

CALLBACK_STATES = "callbacks"  # of a checkpoint


def with_state(callbacks: Sequence[Callable[..., Any]]) -> list[Any]:
    """Return the callbacks that have a state."""
    return [one for one in callbacks if has_method(one, "state") and has_method(one, "load")]


def packed_states(callbacks: Sequence[Callable[..., Any]]) -> list[dict[str, Any]]:
    """Return copies of the states of callbacks, with their names, as a checkpoint contains them.

    Raises:
        UsageError: A state cannot be saved.
    """
    packed = []
    for callback in with_state(callbacks):
        try:
            state, places = without_tensors(callback.state())
            one = {"name": name_of(callback), "state": encode_copy(state)}
            packed.append(one | {"tensors": places} if places else one)
        except OpaqueError as error:
            raise UsageError(f"callbacks: state() of {name_of(callback)} returned something that cannot be saved: "
                             f"{error}. Return numbers, texts, True, False, None, arrays of numpy, tensors of torch, "
                             "and lists, tuples and dicts of these.") from error
    return packed


def load_states(callbacks: Sequence[Callable[..., Any]], checkpoint: Mapping[str, Any] | None) -> None:
    """Give callbacks their state in a checkpoint. Those with the same name are matched in order.

    A name that the checkpoint has another number of times is left out: it is not known which state belongs to which.

    Raises:
        UsageError: A callback does not accept its state.
    """
    for callback in callbacks:
        owner: Any = getattr(callback, "__self__", None)
        if with_state([owner]):
            warn(f"callbacks has {name_of(callback)}(), a method of a {type(owner).__name__}, whose state() and load() "
                 "are not used. For a resume that continues with its state, pass the object, with a method "
                 "__call__(self, it).")
    if checkpoint is None:
        return
    given, kept = with_state(callbacks), checkpoint.get(CALLBACK_STATES, [])
    now, before = Counter(map(name_of, given)), Counter(one["name"] for one in kept)
    for name in now:
        if now[name] == before[name]:
            states = [one for one in kept if one["name"] == name]
            for callback, state in zip((one for one in given if name_of(one) == name), states, strict=True):
                _load(callback, state)
    lost, new = [[name for name in one if now[name] != before[name]] for one in (before, now)]
    begins = f"{', '.join(new)} begin{'s' * (len(new) == 1)} without a state. " if new else ""
    if lost:
        warn(f"The checkpoint has the state of the callbacks {', '.join(before.elements())}, and this resume was given "
             f"{', '.join(now.elements()) or 'none of them'}. The state of {', '.join(lost)} is not used. {begins}"
             "To continue exactly, resume with callbacks=[...] as the run was started.")
    elif new:
        notify(f"The checkpoint has no state of the callbacks {', '.join(new)}. {begins}")


def _load(callback: Any, packed: dict[str, Any]) -> None:
    with reading_checkpoint():
        state = with_tensors(decode_value(packed["state"]), packed.get("tensors", ()))
    try:
        callback.load(state)
    except Exception as error:
        raise UsageError(f"callbacks: load() of {name_of(callback)} did not accept the state that the checkpoint has "
                         f"({with_place(error)}). Mend load(), or leave the callback out.") from error
