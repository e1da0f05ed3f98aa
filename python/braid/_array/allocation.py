# SPDX-License-Identifier: Apache-2.0
"""New arrays of the library, and on the device, of another array."""

import sys
from typing import Any


def empty_like(given: Any, shape: tuple[int, ...], what: str) -> Any:
    """Return a new array with a dtype and device as `given`. Its contents are undefined.

    Raises:
        TypeError: the library is unknown, and its arrays have no ``__array_namespace__``.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return torch.empty(shape, dtype=given.dtype, device=given.device)
    library = type(given).__module__.partition(".")[0]
    if library == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(given.device):
            return cupy.empty(shape, given.dtype)
    if library == "numba":
        from numba import cuda  # type: ignore[import-not-found, unused-ignore]

        return cuda.device_array(shape, given.dtype)
    if hasattr(given, "__array_namespace__"):
        return given.__array_namespace__().empty(shape, dtype=given.dtype, device=given.device)
    raise TypeError(f"{what}: braid cannot make a new array of {library}.{type(given).__name__}; give out")
