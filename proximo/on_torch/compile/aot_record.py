"""What a function of tensors computes, as text that names its library in the cache.

A trace by make_fx would say the same, but torch imports its compiler for it, which takes longer than the rest of a
start from the cache.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from proximo.on_torch.compile.aot_cache import describe_layout

LITERALS = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
REFUSED = {torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

READS = {Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__, Tensor.data_ptr}  # run no operator


class Unrecorded(Exception):
    """A function does something whose record would not say what it computes."""


class Recorder(TorchDispatchMode):
    """Digest every operator that runs, gradients included, with its arguments and results.

    A tensor is described by the memory that it looks at, and a memory by a number in the order of appearance. One that
    appears first as an argument of an operator is a constant, whose bytes become part of the digest.

    Args:
        arguments: The tensors that the function is called with.
    """

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        super().__init__()
        self._digest = hashlib.sha256()
        self._numbers: dict[StorageWeakRef, int] = {}  # while a reference exists, no other memory gets its address
        self._constants = set[StorageWeakRef]()
        self.add("arguments", arguments)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if REFUSED & {*func.tags}:
            raise Unrecorded(f"{func} draws numbers, or its result has no shape before it is computed")
        for tensor in _tensors((args, kwargs)):
            if (memory := StorageWeakRef(tensor.untyped_storage())) not in self._numbers:
                self._constants.add(memory)
                self._digest.update(_bytes(tensor))
        if any(StorageWeakRef(tensor.untyped_storage()) in self._constants for tensor in _written(func, args, kwargs)):
            raise Unrecorded(f"{func} changes a constant")
        self.add(str(func), args, sorted(kwargs.items()))
        result = func(*args, **kwargs)
        self.add("result", result)
        return result

    def add(self, *parts: Any) -> None:
        """Add texts, numbers and tensors to the digest."""
        self._digest.update(self._text(parts).encode())

    def hexdigest(self) -> str:
        """Return the digest of all that was added."""
        return self._digest.hexdigest()

    def _text(self, value: Any) -> str:
        if isinstance(value, Tensor):
            number = self._numbers.setdefault(StorageWeakRef(value.untyped_storage()), len(self._numbers))
            return f"{number}[{value.storage_offset()}] {describe_layout(value)}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self._text, value))}]"
        if isinstance(value, LITERALS):
            return repr(value)
        raise Unrecorded(f"an argument is a {type(value).__name__}")


class NoReads(TorchFunctionMode):
    """Refuse to read numbers past the operators: they would be those of the zeros."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            raise Unrecorded(f"{func} reads numbers")
        return func(*args, **(kwargs or {}))


def record_operations(function: Callable[..., Any], example: tuple[Tensor, ...]) -> str | None:
    """Run `function` on zeros with the layouts of `example`; return a digest of what it computes.

    Returns:
        A text that two functions share only if they compute the same; None if the function cannot be recorded, for
        example because it fails for zeros.
    """
    try:
        arguments = tuple(map(_zeros, example))
        with (recorder := Recorder(arguments)), NoReads():
            result = function(*arguments)
        recorder.add("end", tuple(result))
    except Exception:  # if the function is wrong, the trace by make_fx says why
        return None
    return recorder.hexdigest()


def _zeros(x: Tensor) -> Tensor:
    """Return zeros with the layout of x, in memory that the system provides when it is touched."""
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    memory = np.zeros((last + 1) * x.element_size(), np.uint8)
    return torch.from_numpy(memory).view(x.dtype).as_strided(x.shape, x.stride())


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested arguments.

    Raises:
        Unrecorded: One is of another kind than Tensor and Parameter, whose memory does not say what it is.
    """
    for value in tree_leaves(values):
        if isinstance(value, Tensor):
            if type(value) not in (Tensor, torch.nn.Parameter) or value.is_complex():
                raise Unrecorded(f"an argument is a {type(value).__name__} of {value.dtype}")
            yield value


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors that an operator changes."""
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(args[number] if number < len(args) else kwargs.get(argument.name))


def _bytes(tensor: Tensor) -> bytes:
    """Return everything in the memory that a tensor looks at."""
    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())  # type: ignore[call-overload]
    return bytes(memory.numpy().tobytes())

