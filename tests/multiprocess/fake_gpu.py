# SPDX-License-Identifier: Apache-2.0
"""Arrays on the executing driver (tests/simulator/cuda_driver), which stands in for libcuda in a rank process.

A process that reads its device's memory ends. Its streams can be late, and memory that nobody has written yet
holds poison, so a missing wait shows.
"""

import ctypes
import functools
import hashlib
import math
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_SIMULATOR = Path(__file__).parents[1] / "simulator"
_PARTS = (_SIMULATOR / "core", _SIMULATOR / "cuda_driver")
LEGACY = 1


@functools.cache
def build() -> Path:
    """Compile the driver, unless a folder of this user has it. Returns the library."""
    digest = hashlib.sha256()
    for path in sorted(path for part in _PARTS for path in part.iterdir()):
        digest.update(path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"braid-executing-driver-{os.getuid()}-{digest.hexdigest()[:16]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / "libcuda.so.1"
    if not library.exists():
        own = folder / f"{os.getpid()}.so"
        sources = [str(path) for part in _PARTS for path in sorted(part.glob("*.cc"))]
        flags = [
            f"-I{_SIMULATOR}",
            "-std=c++20",
            "-O1",
            "-shared",
            "-fPIC",
            "-pthread",
            "-Wl,-soname,libcuda.so.1",
        ]
        subprocess.run([os.environ.get("CXX", "g++"), *flags, *sources, "-o", str(own)], check=True)
        own.rename(library)
    return library


class FakeGpu:
    """The driver, in this process. After it is made, braid finds this one: a library of its name is loaded."""

    def __init__(self, devices: int = 1) -> None:
        """Load the driver; the first device becomes the thread's."""
        os.environ["FAKE_CUDA_DEVICES"] = str(devices)
        self.library = ctypes.CDLL(str(build()), ctypes.RTLD_GLOBAL)
        for name in ("fake_device_bytes", "fake_pinned_bytes", "fake_bytes_down", "fake_bytes_up"):
            getattr(self.library, name).restype = ctypes.c_size_t
        self.library.fake_unpinned_copies.restype = ctypes.c_size_t
        self.use(0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call an entry point. Whole numbers are passed as 64 bits."""
        whole = [ctypes.c_uint64(one) if isinstance(one, int) else one for one in arguments]
        result = getattr(self.library, name)(*whole)
        assert result == 0, f"{name}: {result}"

    def use(self, device: int) -> None:
        """Make a device the thread's."""
        context = ctypes.c_void_p()
        self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        self.library.cuCtxSetCurrent(context)

    def delays(self, on_default: int = 0, on_made: int = 0, random: int = 0, seed: int = 0) -> None:
        """Set the microseconds before each copy and fill."""
        wide = ctypes.c_int64
        self.library.fake_set_delays(wide(on_default), wide(on_made), wide(random), ctypes.c_uint32(seed))

    def hold(self, *, on_default: bool = False, on_made: bool = False) -> None:
        """Stop the copies and fills of the default streams, or of all others, until it is called again."""
        self.library.fake_hold(int(on_default), int(on_made))

    def stream(self) -> int:
        """Return a new stream."""
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), 1)
        assert made.value is not None
        return made.value

    def synchronize(self) -> None:
        """Wait for all streams."""
        self.call("cuCtxSynchronize")


class FakeArray:
    """An array on the device, in the manner of CuPy and Numba: work on it is queued on its stream."""

    def __init__(
        self, gpu: FakeGpu, values: npt.NDArray[Any], *, stream: int | None = LEGACY, version: int = 3
    ) -> None:
        """Queue a copy of the values. Its memory holds poison until the stream has come there."""
        self.gpu, self.stream, self.version = gpu, stream, version
        self.shape, self.dtype, self.nbytes = values.shape, values.dtype, values.nbytes
        self.strides: tuple[int, ...] | None = None
        self.read_only, self.mask, self.device = False, None, "fake"
        self.address = 0
        if self.nbytes:
            made = ctypes.c_uint64()
            gpu.call("cuMemAlloc_v2", ctypes.byref(made), self.nbytes)
            self.address = made.value
            data = np.ascontiguousarray(values)
            queue = LEGACY if stream is None else stream
            gpu.call("cuMemcpyHtoDAsync_v2", self.address, ctypes.c_void_p(data.ctypes.data), self.nbytes, queue)
            if stream is None:  # nothing to wait for
                gpu.call("cuStreamSynchronize", LEGACY)

    def __del__(self) -> None:
        """Free the memory after all work of the device."""
        if self.address:
            self.gpu.use(0)
            self.gpu.call("cuMemFree_v2", self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describe the memory."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, self.read_only),
            "strides": self.strides,
            "mask": self.mask,
            "stream": self.stream,
            "version": self.version,
        }

    def get(self) -> npt.NDArray[Any]:
        """Return the values that the device has now, on a stream that waits for nobody."""
        host = np.empty(self.shape, self.dtype)
        if self.nbytes:
            own = self.gpu.stream()
            self.gpu.call(
                "cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host.ctypes.data), self.address, self.nbytes, own
            )
            self.gpu.call("cuStreamSynchronize", own)
        return host

    def fill_later(self, values: npt.NDArray[Any]) -> None:
        """Queue other values on the array's stream."""
        data = np.ascontiguousarray(values)
        assert data.nbytes == self.nbytes
        if self.nbytes:
            pointer = ctypes.c_void_p(data.ctypes.data)
            self.gpu.call("cuMemcpyHtoDAsync_v2", self.address, pointer, self.nbytes, self.stream)

    def __array_namespace__(self, api_version: str | None = None) -> "Namespace":
        """Return where new arrays come from."""
        return Namespace(self.gpu, self.stream)


class Namespace:
    """The functions of the array API that braid uses."""

    def __init__(self, gpu: FakeGpu, stream: int | None) -> None:
        """Make arrays on this stream."""
        self.gpu, self.stream = gpu, stream

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: str) -> FakeArray:
        """Return an array whose contents are undefined: poison that is queued."""
        assert device == "fake"
        noise = np.full(math.prod(shape) * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)
        return FakeArray(self.gpu, noise, stream=self.stream)


class FakeTensor:
    """An array on the device that is shared by DLPack alone, with the old interface's absence of streams."""

    def __init__(
        self, array: FakeArray, *, device: int = 2, read_only: bool = False, versioned: bool = True
    ) -> None:
        """Share an array. `device` is DLPack's type."""
        self.array, self.kind, self.read_only, self.versioned = array, device, read_only, versioned
        self.asked: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where it is."""
        return self.kind, 0

    def __dlpack__(self, *, stream: int | None = None, **arguments: Any) -> Any:
        """Make the given stream wait for the array's, and return a capsule."""
        if arguments and not self.versioned:
            raise TypeError("an old library knows no max_version")
        self.asked.append(stream)
        gpu = self.array.gpu
        event = ctypes.c_void_p()
        gpu.call("cuEventCreate", ctypes.byref(event), 2)
        gpu.call("cuEventRecord", event, self.array.stream)
        assert stream is not None
        gpu.call("cuStreamWaitEvent", stream, event, 0)
        return capsule_of(self.array, self.kind, self.read_only, versioned=self.versioned)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("owner", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_NARROW = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
_kept: list[Any] = []


def capsule_of(array: FakeArray, kind: int, read_only: bool, *, versioned: bool) -> Any:
    """Return a capsule of an array. Its structures live as long as the process."""
    shape = (ctypes.c_int64 * len(array.shape))(*array.shape)
    tensor = _Tensor(
        *(array.address, kind, 0, len(array.shape)),
        *(_NARROW.get(str(array.dtype)) or _CODES[array.dtype.kind], 8 * array.dtype.itemsize, 1),
        *(ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), None, 0),
    )
    held: Any = _Versioned(1, 0, None, None, int(read_only), tensor) if versioned else tensor
    name = b"dltensor_versioned" if versioned else b"dltensor"
    _kept.append((array, shape, held, name))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.addressof(held), name, None)
