# SPDX-License-Identifier: Apache-2.0
"""Encodes and packs many tensors on a GPU. The bytes are those of braid.Codec, and stay on the device.

Tensors are torch's CUDA tensors or CuPy's arrays: contiguous, of float32, float16 or bfloat16, all of one library
and on one GPU. Several tensors count as one run of elements. The functions put all work on the library's current
stream, and return at once. docs/cuda.md says how the kernels are built and which of them have been verified.
"""

from collections.abc import Iterable
from typing import Any

from braid import _core
from braid._floats import scale_of, seed_of
from braid._gpu import device_arrays as arrays
from braid._gpu import kernels as kernels
from braid._gpu.device_arrays import Memory

__all__ = [
    "decode",
    "decode_add",
    "encode",
    "image",
    "is_available",
    "pack",
    "unpack",
    "why_unavailable",
]


def why_unavailable() -> str | None:
    """Return why no GPU can be used, or None if one can."""
    try:
        _core.cuda_devices()
    except RuntimeError as error:
        return str(error)
    return None


def is_available() -> bool:
    """Return true if there are a CUDA driver and a device. image() shows whether the kernels load there."""
    return why_unavailable() is None


def image(device: int = 0) -> str:
    """Load the kernels for a device, and return their file: nvcc's fat binary, or a file made by NVRTC.

    Raises:
        RuntimeError: the kernels cannot be loaded; the message says why, and what to do.
    """
    return str(kernels.loaded(device).image)


class _Call:
    """The objects of one call: a table of tensors on a GPU, the GPU's kernels, the stream."""

    def __init__(self, name: str, tensors: Any, others: dict[str, Memory | None], *, tensors_are: str) -> None:
        self.name = name
        if isinstance(tensors, Iterable) and not hasattr(tensors, "dtype"):  # arrays, too, are iterable
            self.tensors = tensors = tuple(tensors)  # tensors of a generator must live until the launch
        found = arrays.memories(tensors, f"{name}: tensors")
        present = [other for other in others.values() if other is not None]
        self.like = arrays.together(name, [*found, *present])
        if tensors_are == "written":
            arrays.apart(name, {f"tensors[{i}]": one for i, one in enumerate(found)}, present)
        else:
            arrays.apart(name, others, found)
        self.gpu = kernels.loaded(self.like.device).gpu
        self.stream = arrays.stream_of(self.like)
        self.table = _core.CudaTable([(one.address, one.elements, one.dtype) for one in found])
        if self.table.is_long:
            # The memory may be freed right after the launch: its next use, on this stream, is after the kernels.
            self.rows = arrays.uploaded(self.table.rows(), self.like)
            self.table.set_far_rows(arrays.memory(self.rows, "rows").address)

    def fresh(self, elements: int, dtype: str) -> tuple[Any, Memory]:
        """Return a new array on the same GPU, and its memory."""
        array = arrays.fresh(elements, dtype, self.like)
        return array, arrays.memory(array, self.name)


def _given(array: Any, what: str) -> Memory | None:
    return None if array is None else arrays.memory(array, what)


def pack(tensors: Any, *, scale: float = 1.0, out: Any = None) -> Any:
    """Return the elements of all tensors times `scale`, as float32: `out`, or a new one-dimensional array.

    Raises:
        TypeError: an array is not on a GPU, or has a wrong dtype.
        ValueError: an array is not contiguous, sizes are wrong, arrays share memory, or they are of two GPUs or
            libraries.
        RuntimeError: the kernels cannot be loaded or launched.
    """
    target = _given(out, "pack: out")
    call = _Call("pack", tensors, {"out": target}, tensors_are="read")
    if target is None:
        out, target = call.fresh(call.table.elements, "float32")
    arrays.of_dtype(target, "pack: out", "float32", call.table.elements)
    call.gpu.pack(call.table, scale_of(scale, "pack"), target.address, call.stream)
    return out


def unpack(flat: Any, tensors: Any, *, scale: float = 1.0, add: bool = False) -> None:
    """Write `flat`, float32, times `scale` into the tensors, rounded to their dtypes. With `add`, add it instead.

    Raises: as pack().
    """
    source = arrays.memory(flat, "unpack: flat")
    call = _Call("unpack", tensors, {"flat": source}, tensors_are="written")
    arrays.of_dtype(source, "unpack: flat", "float32", call.table.elements)
    call.gpu.unpack(source.address, call.table, scale_of(scale, "unpack"), add, call.stream)


def _codec(codec: Any) -> _core.Codec:
    return _core.Codec(str(codec))


def encode(
    codec: Any, tensors: Any, *, residual: Any = None, scale: float = 1.0, seed: int = 0, out: Any = None
) -> Any:
    """Encode ``tensors * scale + residual``, and store the error of the message in `residual`.

    The bytes and the residual are those of braid.Codec(codec).encode() on the same elements.

    Args:
        codec: a braid.Codec or its text.
        tensors: one tensor or several.
        residual: float32, as many elements as all tensors together; changed in place.
        scale: a factor.
        seed: for the random choices of qsgd and random_k.
        out: uint8, as many elements as the message has bytes, at an address divisible by 16.

    Returns:
        `out`, or a new one-dimensional array of uint8.

    Raises: as pack(); ValueError also for an unknown codec.
    """
    kind = _codec(codec)
    left, target = _given(residual, "encode: residual"), _given(out, "encode: out")
    call = _Call("encode", tensors, {"residual": left, "out": target}, tensors_are="read")
    elements = call.table.elements
    nbytes = kind.encoded_bytes(elements)
    if left is not None:
        arrays.of_dtype(left, "encode: residual", "float32", elements)
    if target is None:
        out, target = call.fresh(nbytes, "uint8")
    arrays.of_dtype(target, "encode: out", "uint8", nbytes)
    # The scratch memory is freed when this returns. The stream reuses it only after the kernels.
    _, scratch = call.fresh(_core.cuda_scratch_bytes(kind, elements, left is not None), "uint8")
    call.gpu.encode(
        kind,
        call.table,
        scale_of(scale, "encode"),
        seed_of(seed, "encode"),
        left.address if left is not None else 0,
        target.address,
        nbytes,
        scratch.address,
        call.stream,
    )
    return out


def decode(codec: Any, message: Any, tensors: Any, *, scale: float = 1.0, check: bool = True) -> None:
    """Write a message's values times `scale` into the tensors, rounded to their dtypes.

    A message must be of this codec and this number of elements. A wrong message never changes the tensors.

    Args:
        codec: a braid.Codec or its text.
        message: uint8, at an address divisible by 16.
        tensors: one tensor or several.
        scale: a factor.
        check: wait for the stream, and raise ValueError for a wrong message. Without the check a wrong message
            raises nothing.

    Raises: as pack().
    """
    _decode("decode", codec, message, tensors, scale, check, add=False)


def decode_add(codec: Any, message: Any, tensors: Any, *, scale: float = 1.0, check: bool = True) -> None:
    """Add a message's values times `scale` to the tensors. Arguments and errors are those of decode()."""
    _decode("decode_add", codec, message, tensors, scale, check, add=True)


def _decode(name: str, codec: Any, message: Any, tensors: Any, scale: float, check: bool, *, add: bool) -> None:
    kind = _codec(codec)
    source = arrays.memory(message, f"{name}: message")
    call = _Call(name, tensors, {"message": source}, tensors_are="written")
    arrays.of_dtype(source, f"{name}: message", "uint8", kind.encoded_bytes(call.table.elements))
    flag, flag_memory = call.fresh(1, "int32")
    call.gpu.decode(
        kind,
        source.address,
        source.nbytes,
        call.table,
        scale_of(scale, name),
        add,
        flag_memory.address,
        call.stream,
    )
    if check and arrays.first_number(flag) != 0:
        raise ValueError(f"{name}: the message is not one of {codec} and {call.table.elements} elements")
