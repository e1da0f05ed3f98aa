# SPDX-License-Identifier: Apache-2.0
"""Turns a user's arrays into memory for the core: C-contiguous, of a known dtype."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braid import _core
from braid._array.allocation import empty_like
from braid._array.protocols import Remote, is_foreign, read
from braid._array.staged import Staged, bring_up, stage

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


def view(given: Any, what: str, *, up: bool = False) -> Array:
    """Return the user's object as an ndarray on the same memory; an array on a GPU as memory of the host, staged.

    `up`: the array is only written. Then copies to the device, not those to the host, wait for its stream.
    """
    if type(given) is np.ndarray:
        return given
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array, whose mask would be lost; use x.filled(...)")
    if isinstance(given, np.ndarray):
        return np.asarray(given)
    if is_foreign(given):
        found = read(given, what, up=up)
        return stage(found) if isinstance(found, Remote) else found
    try:
        return np.asarray(memoryview(given))
    except TypeError:
        raise TypeError(
            f"{what} is a {type(given).__name__}, not a NumPy array nor another object with the buffer protocol, "
            "DLPack or the CUDA array interface"
        ) from None


def is_writable(array: Array) -> bool:
    """Return whether the user's array, which view() has returned, may be written."""
    if isinstance(array, Staged) and array.remote is not None:
        return not array.remote.read_only
    return array.flags.writeable


@dataclass(slots=True)
class Output:
    """The result for the user, the memory that the core fills, and the array to copy that memory to, if any."""

    result: Any
    memory: Array
    home: Array | Remote | None = None

    def bring_home(self) -> Any:
        """Return the result after the operation has ended. It is copied once: then the array is the user's."""
        home, self.home = self.home, None
        if isinstance(home, Remote):
            bring_up(self.memory, home)
        elif home is not None:
            home[...] = self.memory
        return self.result


def source(given: Any, what: str) -> Array:
    """Return memory to read: the array's own, or a copy if the array is not C-contiguous."""
    array = view(given, what)
    return array if array.flags.c_contiguous else array.copy(order="C")


def target(given: Any, what: str, *, filled: bool = False) -> Output:
    """Return memory to write. If `filled`, it holds the array's values already, or lands them."""
    array = view(given, what, up=not filled)
    if not is_writable(array):
        raise ValueError(f"{what} is read-only; give an array that may be written")
    if isinstance(array, Staged):
        return Output(given, array, array.remote)
    if array.flags.c_contiguous:
        return Output(given, array)
    return Output(given, array.copy(order="C") if filled else np.empty(array.shape, array.dtype), array)


def fresh(shape: tuple[int, ...] | int, like: Any, memory: Array, what: str) -> Output:
    """Return a new array to write, of the library of `like`, whose view is `memory`."""
    if isinstance(like, np.ndarray) or not is_foreign(like):
        array = np.empty(shape, memory.dtype)
        return Output(array, array)
    return target(empty_like(like, (shape,) if isinstance(shape, int) else shape, what), f"{what}: the new array")
