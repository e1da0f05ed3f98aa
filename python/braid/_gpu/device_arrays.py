# SPDX-License-Identifier: Apache-2.0
"""What braid.cuda takes: memory on a GPU, of torch's CUDA tensors or CuPy's arrays, and that library's stream."""

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
    """Return where an array is.

    Raises:
        TypeError: it is neither torch's nor CuPy's, or not on a GPU.
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
    """Return where one array, or each of several, is."""
    if isinstance(given, Sequence):
        return [memory(one, f"{what}[{i}]") for i, one in enumerate(given)]
    return [memory(given, what)]


def of_dtype(found: Memory, what: str, dtype: str, elements: int) -> Memory:
    """Return the memory, if it is of that dtype and as many elements."""
    if found.dtype != dtype:
        raise TypeError(f"{what} has dtype {found.dtype}, expected {dtype}")
    if found.elements != elements:
        raise ValueError(f"{what} has {found.elements} elements, expected {elements}")
    return found


def together(call: str, found: list[Memory]) -> Memory:
    """Return the first; all must be of one library, on one GPU.

    Raises:
        ValueError: they are not, or there are none.
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
    """Raise ValueError where what is written shares memory with what is read, or with another that is written."""
    spans = [(one, name) for name, one in written.items() if one is not None]
    spans += [(one, "") for one in read]
    spans = sorted((span for span in spans if span[0].nbytes), key=lambda span: span[0].address)
    reach = {"": (0, ""), "written": (0, "")}  # of all before, and of the written ones: the end, and whose it is
    for one, name in spans:
        end, whose = reach["" if name else "written"]
        if one.address < end:
            raise ValueError(f"{call}: {whose or 'a tensor'} and {name or 'a tensor'} share memory")
        for of in ("", "written") if name else ("",):
            reach[of] = max(reach[of], (one.address + one.nbytes, name))


# ---- What the library gives: its stream, and memory that is its stream's own.


def stream_of(like: Memory) -> int:
    """Return the library's current stream on that GPU."""
    if like.library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(like.device).cuda_stream)
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(like.device):
        return int(cupy.cuda.get_current_stream().ptr)


def fresh(elements: int, dtype: str, like: Memory) -> Any:
    """Return a new array; what is in it is anything."""
    if like.library == "torch":
        torch = sys.modules["torch"]
        return torch.empty(elements, dtype=getattr(torch, dtype), device=f"cuda:{like.device}")
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(like.device):
        return cupy.empty(elements, dtype)


def uploaded(data: bytes, like: Memory) -> Any:
    """Return an array of uint8 with these bytes, copied by the current stream."""
    host = np.frombuffer(bytearray(data), np.uint8)
    if like.library == "torch":
        # Without waiting for the stream: what is not pinned has been read when this returns.
        return sys.modules["torch"].from_numpy(host).to(f"cuda:{like.device}", non_blocking=True)
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(like.device):
        return cupy.asarray(host)


def first_number(array: Any) -> int:
    """Return the first element, when the stream has come to it."""
    return int(array[0])
