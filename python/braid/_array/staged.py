# SPDX-License-Identifier: Apache-2.0
"""Arrays of a GPU as arrays in page-locked memory of the host: copied down before, and up after."""

from typing import Any

import numpy as np
import numpy.typing as npt

from braid._array.protocols import Remote


class Staged(np.ndarray[Any, np.dtype[Any]]):
    """Memory of the host in the place of an array on a GPU. It holds the array's values after landed()."""

    remote: Remote | None
    has_landed: bool

    def __array_finalize__(self, made_from: Any) -> None:
        """Let views of it be plain arrays, as far as copies are concerned."""
        self.remote = None
        self.has_landed = True


def stage(remote: Remote) -> Staged:
    """Return memory of the host with shape and dtype of an array on a GPU. Its contents are undefined."""
    if remote.nbytes == 0:
        block: npt.NDArray[Any] = np.empty(0, np.uint8)
    else:
        block = remote.copies.pinned(remote.nbytes)
    staged = block[: remote.nbytes].view(remote.dtype).reshape(remote.shape).view(Staged)
    staged.remote = remote
    staged.has_landed = False
    return staged


def land(array: npt.NDArray[Any] | None) -> None:
    """Copy the values of an array on a GPU to the host, once. Nothing happens to other arrays."""
    if isinstance(array, Staged) and not array.has_landed and array.remote is not None:
        if array.nbytes:
            array.remote.copies.copy_down(_bytes_of(array), array.remote.address)
        array.has_landed = True


def bring_up(memory: npt.NDArray[Any], remote: Remote) -> None:
    """Copy the staged memory of an array to its GPU. Returns when the values are there, for every stream."""
    if memory.nbytes:
        remote.copies.copy_up(remote.address, _bytes_of(memory))


def _bytes_of(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.asarray(array).reshape(-1).view(np.uint8)
