# SPDX-License-Identifier: Apache-2.0
"""What Codec and Bucket take: floats and messages, in the memory of NumPy arrays and of torch's CPU tensors.

Nothing is copied: what is not contiguous is refused, with what to do instead.
"""

import math
import operator
import sys
from typing import Any

import numpy as np

from braid._array.arrays import Array, view

_MOST_SEED = 2**32 - 1


def is_tensor(given: Any) -> bool:
    """Tell whether it is torch's, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.Tensor)


def _of_tensor(tensor: Any, what: str, dtypes: tuple[str, ...]) -> tuple[Array, str]:
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.device.type != "cpu":
        raise TypeError(f"{what} is on the device {tensor.device}; bring it to the CPU first: x.cpu()")
    if tensor.layout is not sys.modules["torch"].strided:
        raise TypeError(f"{what} is a sparse tensor; use x.to_dense()")
    _check_dtype(name, what, dtypes)
    if not tensor.is_contiguous():
        raise ValueError(f"{what} is not contiguous; use x.contiguous()")
    tensor = tensor.detach()
    if name == "bfloat16":  # which NumPy lacks
        tensor = tensor.view(sys.modules["torch"].int16)
    return tensor.numpy(), name


def _check_dtype(name: str, what: str, dtypes: tuple[str, ...]) -> None:
    if name not in dtypes:
        raise TypeError(f"{what} has dtype {name}, expected {' or '.join(dtypes)}")


def memory(given: Any, what: str, dtypes: tuple[str, ...]) -> tuple[Array, str]:
    """Return an array on the same C-contiguous memory, and its dtype's name; torch's bfloat16 looks like int16."""
    if is_tensor(given):
        return _of_tensor(given, what, dtypes)
    array = view(given, what)
    name = str(array.dtype)
    _check_dtype(name, what, dtypes)
    if not array.flags.c_contiguous:
        raise ValueError(f"{what} is not C-contiguous; use np.ascontiguousarray(x)")
    return array, name


def _writable(array: Array, what: str) -> None:
    if not array.flags.writeable:
        raise ValueError(f"{what} is read-only; give an array that may be written")


def floats(given: Any, what: str, *, elements: int | None = None, writable: bool = False) -> Array:
    """Return the float32 memory of what was given; of so many elements, if that is known."""
    array, _ = memory(given, what, ("float32",))
    if writable:
        _writable(array, what)
    if not array.flags.aligned:
        raise ValueError(f"{what} lies at an odd address; use x.copy()")
    if elements is not None and array.size != elements:
        raise ValueError(f"{what} has {array.size} elements, expected {elements}")
    return array


def message_bytes(given: Any, what: str) -> Array:
    """Return the bytes of a message to read."""
    return memory(given, what, ("uint8",))[0]


def fresh_message(given: Any, what: str, nbytes: int) -> tuple[Any, Array]:
    """Return what the user gets back, and its bytes to write: `given` or a new array."""
    if given is None:
        array: Array = np.empty(nbytes, np.uint8)
        return array, array
    array = message_bytes(given, what)
    _writable(array, what)
    if array.nbytes != nbytes:
        raise ValueError(f"{what} has {array.nbytes} bytes, but the message has {nbytes}")
    return given, array


def apart(call: str, **arrays: Array | None) -> None:
    """Raise ValueError where two of the arrays share memory."""
    present = [(name, array) for name, array in arrays.items() if array is not None]
    for i, (name, array) in enumerate(present):
        for other_name, other in present[:i]:
            if np.may_share_memory(array, other):  # exact, as both are contiguous
                raise ValueError(f"{call}: {other_name} and {name} share memory")


def scale_of(scale: float, call: str) -> float:
    """Return a factor that float32 can hold."""
    if not math.isfinite(scale) or abs(scale) > float(np.finfo(np.float32).max):
        raise ValueError(f"{call}: scale is {scale}, expected a finite number of float32")
    return float(scale)


def seed_of(seed: int, call: str) -> int:
    """Return a seed of 32 bits."""
    number = operator.index(seed)
    if not 0 <= number <= _MOST_SEED:
        raise ValueError(f"{call}: seed is {number}, expected one from 0 to {_MOST_SEED}")
    return number
