# SPDX-License-Identifier: Apache-2.0
"""NVRTC, CUDA's run-time compiler: C++ text in, machine code out. Packages of torch and CuPy contain it."""

import contextlib
import ctypes
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MAJORS = (13, 12)

# NVRTC has no standard headers. These stand for the ones that the kernels include.
_INTEGERS = {
    f"{sign}int{bits}_t": f"{'unsigned ' if sign else ''}{name}"
    for bits, name in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
    for sign in ("", "u")
}
_HEADERS = {
    "cstdint": "#pragma once\n"
    + "".join(f"using {name} = {of};\n" for name, of in _INTEGERS.items())
    + "using uintptr_t = unsigned long long;\n",
    "cstddef": "#pragma once\nusing size_t = decltype(sizeof(0));\n",
}


class NvrtcError(RuntimeError):
    """There is no NVRTC, or it does not compile the kernels."""


def _candidates() -> Iterator[str]:
    names = [f"libnvrtc.so.{major}" for major in _MAJORS]
    yield from names
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        for name in names:
            yield from (str(path) for path in sorted(Path(root).glob(f"*/lib/{name}")))


def library() -> ctypes.CDLL:
    """Return NVRTC's library: the system's, or the library from the packages that torch and CuPy require.

    Raises:
        NvrtcError: there is no such library.
    """
    for path in _candidates():
        with contextlib.suppress(OSError):
            found = ctypes.CDLL(path)
            found.nvrtcGetErrorString.restype = ctypes.c_char_p
            return found
    raise NvrtcError("there is no libnvrtc.so: pip install nvidia-cuda-nvrtc")


def _check(nvrtc: ctypes.CDLL, what: str, result: int) -> None:
    if result != 0:
        raise NvrtcError(f"{what}: {nvrtc.nvrtcGetErrorString(result).decode()}")


def version(nvrtc: ctypes.CDLL) -> tuple[int, int]:
    """Return NVRTC's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(nvrtc, "nvrtcVersion", nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def _text(nvrtc: ctypes.CDLL, of: str, program: ctypes.c_void_p) -> bytes:
    """Return the bytes that nvrtcGet<of> writes."""
    size = ctypes.c_size_t()
    _check(nvrtc, f"nvrtcGet{of}Size", getattr(nvrtc, f"nvrtcGet{of}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, f"nvrtcGet{of}", getattr(nvrtc, f"nvrtcGet{of}")(program, buffer))
    return buffer.raw


def _strings(texts: list[str]) -> Any:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def compile_text(nvrtc: ctypes.CDLL, text: str, name: str, options: list[str]) -> bytes:
    """Return the machine code of a program. `name` is its file name in the compiler's messages.

    Raises:
        NvrtcError: it does not compile; the message contains the compiler's log.
    """
    program = ctypes.c_void_p()
    headers = _strings(list(_HEADERS.values())), _strings(list(_HEADERS))
    _check(
        nvrtc,
        "nvrtcCreateProgram",
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), len(_HEADERS), *headers),
    )
    try:
        result = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
        if result != 0:
            log = _text(nvrtc, "ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            raise NvrtcError(f"{name} does not compile: {log}")
        return _text(nvrtc, "CUBIN", program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
