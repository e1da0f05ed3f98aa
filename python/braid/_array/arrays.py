# SPDX-License-Identifier: Apache-2.0
"""Turns a user's arrays into memory for the core: C-contiguous, of a known dtype."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braid import _core

Array = npt.NDArray[Any]

_names: dict[np.dtype[Any], str] = {}


def dtype_name(dtype: np.dtype[Any], what: str) -> str:
    """Return the core's name of a dtype. TypeError if there is none; it says what to do instead."""
    name = _names.get(dtype)
    if name is None:
        name = _names[dtype] = _checked_name(dtype, what)
    return name


def _checked_name(dtype: np.dtype[Any], what: str) -> str:
    name = str(dtype)
    if name in _core.dtypes():
        return name
    if not dtype.isnative:
        advice = "its bytes are swapped: use x.astype(x.dtype.newbyteorder('='))"
    elif dtype.hasobject:
        advice = "Python objects cannot be sent as memory: put pickle.dumps(...) into an array of uint8"
    elif dtype.kind in "mM":
        advice = "use x.view(np.int64)"
    elif dtype.kind in "SUV":
        advice = "use x.view(np.uint8)"
    elif dtype.kind == "f":
        advice = "use x.astype(np.float64)"
    else:
        advice = f"there are {', '.join(_core.dtypes())}"
    raise TypeError(f"{what} has dtype {name}, which braid does not carry; {advice}")


def view(given: Any, what: str) -> Array:
    """Return the user's object as an ndarray on the same memory."""
    if type(given) is np.ndarray:
        return given
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array, whose mask would be lost; use x.filled(...)")
    if isinstance(given, np.ndarray):
        return np.asarray(given)
    if hasattr(given, "__cuda_array_interface__"):
        raise TypeError(f"{what} is in the memory of a GPU; copy it to a NumPy array first")
    try:
        return np.asarray(memoryview(given))
    except TypeError:
        raise TypeError(
            f"{what} is a {type(given).__name__}, not a NumPy array nor another object with the buffer protocol"
        ) from None


@dataclass(slots=True)
class Output:
    """The result for the user, the memory that the core fills, and the array to copy that memory to, if any."""

    result: Any
    memory: Array
    home: Array | None = None

    def bring_home(self) -> Any:
        """Return the result after the operation has ended. It is copied once: then the array is the user's."""
        if self.home is not None:
            self.home[...] = self.memory
            self.home = None
        return self.result


def source(given: Any, what: str) -> Array:
    """Return memory to read: the array's own, or a copy if the array is not C-contiguous."""
    array = view(given, what)
    return array if array.flags.c_contiguous else array.copy(order="C")


def target(given: Any, what: str, *, filled: bool = False) -> Output:
    """Return memory to write. If `filled`, it holds the array's values already."""
    array = view(given, what)
    if not array.flags.writeable:
        raise ValueError(f"{what} is read-only; give an array that may be written")
    if array.flags.c_contiguous:
        return Output(given, array)
    return Output(given, array.copy(order="C") if filled else np.empty(array.shape, array.dtype), array)


def fresh(shape: tuple[int, ...] | int, dtype: np.dtype[Any]) -> Output:
    """Return a new array to write."""
    array = np.empty(shape, dtype)
    return Output(array, array)
