# SPDX-License-Identifier: Apache-2.0
"""The arguments of braid.cuda: GPU memory of torch's CUDA tensors or CuPy's arrays, and the library's stream."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Memory:
    """C-contiguous memory of one dtype on a GPU."""

    address: int
    elements: int
    dtype: str
    nbytes: int
    device: int
    library: str


def _of_torch(tensor: Any, what: str) -> Memory:
    if tensor.device.type != "cuda":
        raise TypeError(f"{what} is on the device {tensor.device}; bring it to a GPU first: x.cuda()")
    if tensor.layout is not sys.modules["torch"].strided:
        raise TypeError(f"{what} is a sparse tensor; use x.to_dense()")
    if not tensor.is_contiguous():
        raise ValueError(f"{what} is not contiguous; use x.contiguous()")
    name = str(tensor.dtype).removeprefix("torch.")
    nbytes = tensor.numel() * tensor.element_size()
    return Memory(tensor.data_ptr(), tensor.numel(), name, nbytes, tensor.device.index, "torch")


def _of_cupy(array: Any, what: str) -> Memory:
    if not array.flags.c_contiguous:
        raise ValueError(f"{what} is not C-contiguous; use cupy.ascontiguousarray(x)")
    return Memory(array.data.ptr, array.size, str(array.dtype), array.nbytes, array.device.id, "cupy")


def memory(given: Any, what: str) -> Memory:
    """Return the memory of an array. `what` names the array in errors.

    Raises:
        TypeError: it is neither a tensor of torch nor an array of CuPy, or not on a GPU, or sparse.
        ValueError: it is not contiguous.
    """
    library = type(given).__module__.partition(".")[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return _of_torch(given, what)
    if library == "cupy":
        return _of_cupy(given, what)
    raise TypeError(
        f"{what} is a {library}.{type(given).__name__}, not a CUDA tensor of torch nor an array of CuPy"
    )


def memories(given: Any, what: str) -> list[Memory]:
    """Return the memory of one array, or of each array in a sequence."""
    if isinstance(given, Sequence):
        return [memory(one, f"{what}[{i}]") for i, one in enumerate(given)]
    return [memory(given, what)]


def of_dtype(found: Memory, what: str, dtype: str, elements: int) -> Memory:
    """Return the memory if its dtype and number of elements are right. Otherwise raise TypeError or ValueError."""
    if found.dtype != dtype:
        raise TypeError(f"{what} has dtype {found.dtype}, expected {dtype}")
    if found.elements != elements:
        raise ValueError(f"{what} has {found.elements} elements, expected {elements}")
    return found


def together(call: str, found: list[Memory]) -> Memory:
    """Return the first memory. All must be of one library and on one GPU.

    Raises:
        ValueError: libraries or GPUs differ, or there is no memory.
    """
    if not found:
        raise ValueError(f"{call}: there are no tensors")
    first = found[0]
    for other in found:
        if other.library != first.library:
            raise ValueError(f"{call}: arrays of {first.library} and of {other.library}, whose streams differ")
        if other.device != first.device:
            raise ValueError(f"{call}: arrays on the GPUs {first.device} and {other.device}")
    return first


def apart(call: str, written: dict[str, Memory | None], read: list[Memory]) -> None:
    """Raise ValueError if a written array shares memory with a read array or with another written array."""
    spans = [(one, name) for name, one in written.items() if one is not None]
    spans += [(one, "") for one in read]
    spans = sorted((span for span in spans if span[0].nbytes), key=lambda span: span[0].address)
    # The largest end of all arrays so far ("") and of the written ones, with the array's name.
    reach = {"": (0, ""), "written": (0, "")}
    for one, name in spans:
        end, whose = reach["" if name else "written"]
        if one.address < end:
            raise ValueError(f"{call}: {whose or 'a tensor'} and {name or 'a tensor'} share memory")
        for of in ("", "written") if name else ("",):
            reach[of] = max(reach[of], (one.address + one.nbytes, name))


# ---- From the library: its current stream, and memory that is allocated for that stream.


def stream_of(like: Memory) -> int:
    """Return the library's current stream on that GPU."""
    if like.library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(like.device).cuda_stream)
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(like.device):
        return int(cupy.cuda.get_current_stream().ptr)


def fresh(elements: int, dtype: str, like: Memory) -> Any:
    """Return a new array. Its contents are undefined."""
    if like.library == "torch":
        torch = sys.modules["torch"]
        return torch.empty(elements, dtype=getattr(torch, dtype), device=f"cuda:{like.device}")
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(like.device):
        return cupy.empty(elements, dtype)


def uploaded(data: bytes, like: Memory) -> Any:
    """Return an array of uint8 with these bytes. The current stream copies them."""
    host = np.frombuffer(bytearray(data), np.uint8)
    if like.library == "torch":
        # This does not wait for the stream. Memory that is not pinned has been read when the call returns.
        return sys.modules["torch"].from_numpy(host).to(f"cuda:{like.device}", non_blocking=True)
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(like.device):
        return cupy.asarray(host)


def first_number(array: Any) -> int:
    """Wait until the stream has computed the array; return its first element."""
    return int(array[0])
