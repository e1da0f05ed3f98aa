# SPDX-License-Identifier: Apache-2.0
"""Reads arrays of other libraries: DLPack, and the CUDA array interface.

An array in memory of the host becomes a NumPy view. An array on a GPU becomes a Remote, without a wait.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braid import _core

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_KINDS = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_OF_ML_DTYPES = {4: "bfloat16", 10: "float8_e4m3fn", 12: "float8_e5m2"}
_BOOL = 6
_IMMUTABLE = ("jax", "jaxlib")
# From this version on the interface names the stream that the array's contents are queued on.
_WITH_STREAM = 3


@dataclass(slots=True)
class Remote:
    """C-contiguous memory on a GPU. `owner` keeps it alive."""

    given: Any
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read_only: bool
    device: int
    copies: "_core.CudaCopies"
    owner: Any

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def is_foreign(given: Any) -> bool:
    """Return whether an object that is no NumPy array offers one of the protocols."""
    kind = type(given)
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__")


def read(given: Any, what: str, *, up: bool) -> npt.NDArray[Any] | Remote:
    """Return a view of an array on the host, or the memory of an array on a GPU. `what` names it in errors.

    Later copies of the GPU wait for what the array's library has queued: copies to the device if `up`, copies to
    the host otherwise.

    Raises:
        TypeError: the dtype or the device is none that braid reaches, or the library refuses.
        ValueError: it is not C-contiguous on a GPU, or its stream makes no sense.
        RuntimeError: there is no CUDA driver, or the driver refuses.
    """
    kind = type(given)
    on_device = None
    if hasattr(kind, "__dlpack_device__") and hasattr(kind, "__dlpack__"):
        on_device = tuple(int(number) for number in _asked(given.__dlpack_device__, what))
        if on_device[0] in (_CPU, _CUDA_HOST):
            return _of_host(given, what)
    # torch's tensors have an older version of the interface. It is an error to ask for it on other devices.
    if hasattr(kind, "__cuda_array_interface__") and (on_device is None or not _is_torch(given)):
        interface = _asked(lambda: given.__cuda_array_interface__, what)
        if on_device is None or interface.get("version", 0) >= _WITH_STREAM:
            return _of_interface(given, interface, what, up)
    if on_device is None:
        raise TypeError(f"{what} is a {kind.__name__} that does not say on which device it is")
    if on_device[0] not in (_CUDA, _CUDA_MANAGED):
        raise TypeError(
            f"{what} is on a device of DLPack's type {on_device[0]}, which braid.Communicator does not reach; "
            "copy it to the host first"
        )
    return _of_device(given, on_device[1], what, up)


def _is_torch(given: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.Tensor)


def _asked(question: Any, what: str) -> Any:
    try:
        return question()
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{what} cannot be shared: {str(error).splitlines()[0]}") from None


def _exported(given: Any, what: str, **arguments: Any) -> "_core.DlpackTensor":
    def export() -> Any:
        try:
            return given.__dlpack__(max_version=(1, 0), **arguments)
        except TypeError:  # older libraries do not know the argument
            return given.__dlpack__(**arguments)

    return _core.DlpackTensor(_asked(export, what))


def _read_only(given: Any, tensor: "_core.DlpackTensor") -> bool:
    return tensor.read_only or type(given).__module__.partition(".")[0] in _IMMUTABLE


def _of_host(given: Any, what: str) -> npt.NDArray[Any]:
    tensor = _exported(given, what)
    array = tensor.array(_dtype(tensor.dtype, what))
    if _read_only(given, tensor):
        array.flags.writeable = False
    return array


def _of_device(given: Any, device: int, what: str, up: bool) -> Remote:
    copies = _copies(device, what)
    tensor = _exported(given, what, stream=copies.stream(up))
    shape, dtype = tuple(tensor.shape), _dtype(tensor.dtype, what)
    steps = None if tensor.strides is None else tuple(step * dtype.itemsize for step in tensor.strides)
    _contiguous(shape, steps, dtype, what)
    return Remote(given, tensor.address, shape, dtype, _read_only(given, tensor), device, copies, tensor)


def _of_interface(given: Any, interface: Any, what: str, up: bool) -> Remote:
    try:
        shape, (address, read_only) = tuple(interface["shape"]), interface["data"]
        dtype = _dtype_named(interface["typestr"], given)
    except (KeyError, TypeError, ValueError) as error:
        why = f"has no {error}" if isinstance(error, KeyError) else str(error)
        raise TypeError(f"{what} is on a GPU, but its __cuda_array_interface__ cannot be used: {why}") from None
    if interface.get("mask") is not None:
        raise TypeError(f"{what} has a mask, which would be lost; fill the masked elements first")
    _contiguous(shape, interface.get("strides"), dtype, what)
    stream = interface.get("stream")
    _check_stream(stream, what)
    remote = Remote(given, int(address or 0), shape, dtype, bool(read_only), 0, None, given)  # type: ignore[arg-type]
    if remote.nbytes == 0:  # its address means nothing
        return remote
    try:
        remote.device = _core.cuda_device_of(remote.address)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    except RuntimeError as error:
        raise RuntimeError(_no_driver(what, error)) from None
    remote.copies = _copies(remote.device, what)
    try:
        if interface.get("version", 0) < _WITH_STREAM:
            remote.copies.finish_all()
        elif stream is not None:
            remote.copies.follow(up, stream)
    except RuntimeError as error:
        raise RuntimeError(f"{what}, on stream {stream}: {error}") from None
    return remote


def _dtype_named(typestr: Any, given: Any) -> np.dtype[Any]:
    """Return the array's own dtype where it goes by this name: NumPy reads ml_dtypes' names as plain bytes."""
    own = getattr(given, "dtype", None)
    has_name = isinstance(own, np.dtype) and own.str.lstrip("<|") == str(typestr).lstrip("<|")
    return np.dtype(own if has_name else typestr)


def _check_stream(stream: Any, what: str) -> None:
    if stream is None:
        return
    if isinstance(stream, bool) or not isinstance(stream, int):
        raise TypeError(f"{what} names its stream by a {type(stream).__name__}; the interface asks for an integer")
    if stream <= 0:
        raise ValueError(
            f"{what} names the stream {stream}; the interface asks for 1 (the legacy default stream), 2 (the "
            "thread's own) or the address of a stream"
        )


def _copies(device: int, what: str) -> "_core.CudaCopies":
    try:
        return _core.CudaCopies(device)
    except RuntimeError as error:
        raise RuntimeError(_no_driver(what, error)) from None


def _no_driver(what: str, error: RuntimeError) -> str:
    return f"{what} is on a GPU, which cannot be reached from here: {error}"


def _contiguous(shape: tuple[int, ...], steps: Any, dtype: np.dtype[Any], what: str) -> None:
    """Raise ValueError unless elements lie in C order without gaps. `steps` are in bytes."""
    if steps is None or 0 in shape:
        return
    expected = dtype.itemsize
    for length, step in zip(reversed(shape), reversed(tuple(steps)), strict=True):
        if length != 1 and step != expected:
            raise ValueError(f"{what} is on a GPU and not C-contiguous; give a contiguous copy of it")
        expected *= length


def _dtype(given: tuple[int, int, int], what: str) -> np.dtype[Any]:
    code, bits, lanes = given
    if lanes == 1 and code == _BOOL and bits == 8:
        return np.dtype(np.bool_)
    if lanes == 1 and code in _KINDS:
        try:
            return np.dtype(f"{_KINDS[code]}{bits}")
        except TypeError:
            pass
    if lanes == 1 and code in _OF_ML_DTYPES:
        name = _OF_ML_DTYPES[code]
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(
                f"{what} has dtype {name}, which NumPy knows with a package only: pip install ml_dtypes"
            ) from None
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    raise TypeError(
        f"{what} has a dtype that braid does not carry (DLPack's code {code}, {bits} bits, {lanes} lanes); there "
        f"are {', '.join(_core.dtypes())}"
    )
