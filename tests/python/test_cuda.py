# SPDX-License-Identifier: Apache-2.0
"""braid.cuda without a GPU: what it says then, what it checks before, and the kernels' machine code."""

from __future__ import annotations

import re
import shutil
import subprocess
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import braid.cuda
import numpy as np
import pytest
import torch
from braid import _core
from braid._gpu import device_arrays, kernels, nvrtc
from braid._torch.adapter.toolchain import PackageFiles

CSRC = PackageFiles.installed().include
KERNELS = set(re.findall(r"^BRAID_KERNEL\((\w+),", (CSRC / "cuda" / "kernels.cu").read_text(), re.MULTILINE))

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@without_gpu
def test_without_a_driver_it_says_so() -> None:
    assert not braid.cuda.is_available()
    why = braid.cuda.why_unavailable()
    assert why is not None
    assert why.startswith("no CUDA driver: ")
    with pytest.raises(RuntimeError, match="no CUDA driver: "):
        braid.cuda.image()


@pytest.mark.parametrize("given", [torch.zeros(4), [torch.zeros(4)]])
def test_tensors_on_the_cpu_are_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"tensors.* is on the device cpu; bring it to a GPU first"):
        braid.cuda.pack(given)
    with pytest.raises(TypeError, match=r"residual is on the device cpu"):
        braid.cuda.encode("int8", given, residual=torch.zeros(4))


def test_other_arrays_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"tensors is a numpy.ndarray, not a CUDA tensor of torch nor an array of C"
    ):
        braid.cuda.pack(np.zeros(4, np.float32))


# ---- On memory of the host that looks like a GPU's


@dataclass
class FakeArray:
    """What braid.cuda sees of a CuPy array."""

    host: np.ndarray
    on: int = 0

    def __post_init__(self) -> None:
        self.flags = types.SimpleNamespace(c_contiguous=self.host.flags.c_contiguous)
        self.data = types.SimpleNamespace(ptr=self.host.ctypes.data)
        self.size, self.dtype, self.nbytes = self.host.size, self.host.dtype, self.host.nbytes
        self.device = types.SimpleNamespace(id=self.on)

    def __getitem__(self, index: int) -> Any:
        return self.host[index]


FakeArray.__module__ = "cupy"


@dataclass
class FakeGpu:
    """Writes down what it is asked."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    monkeypatch.setattr(kernels, "loaded", lambda device: types.SimpleNamespace(gpu=fake))
    monkeypatch.setattr(device_arrays, "stream_of", lambda like: 77)
    monkeypatch.setattr(
        device_arrays, "fresh", lambda elements, dtype, like: FakeArray(np.zeros(elements, dtype), like.device)
    )
    monkeypatch.setattr(
        device_arrays, "uploaded", lambda data, like: FakeArray(np.frombuffer(data, np.uint8).copy())
    )
    return fake


def floats(elements: int = 8, on: int = 0) -> FakeArray:
    return FakeArray(np.zeros(elements, np.float32), on)


def test_calls_reach_the_gpu_on_the_stream(gpu: FakeGpu) -> None:
    tensors, residual = [floats(100), FakeArray(np.zeros(20, np.float16))], floats(120)
    message = braid.cuda.encode(braid.Codec("top_k:0.25"), tensors, residual=residual, scale=0.5, seed=3)
    assert message.size == braid.Codec("top_k:0.25").encoded_bytes(120)
    name, codec, table, scale, seed, left, target, nbytes, scratch, stream = gpu.calls.pop()
    assert (name, str(codec), table.elements, scale, seed) == ("encode", "top_k:0.25", 120, 0.5, 3)
    assert (left, target, nbytes, stream) == (residual.data.ptr, message.data.ptr, message.size, 77)
    assert scratch != 0

    braid.cuda.decode_add("int8", FakeArray(np.zeros(288, np.uint8)), floats(9), scale=2)
    name, codec, _, nbytes, table, scale, add, _, stream = gpu.calls.pop()
    assert (name, str(codec), nbytes, table.elements, scale, add, stream) == (
        "decode",
        "int8",
        288,
        9,
        2,
        True,
        77,
    )

    braid.cuda.pack(floats(9), scale=2, out=floats(9))
    braid.cuda.unpack(floats(9), floats(9), scale=3, add=True)
    assert [call[0] for call in gpu.calls] == ["pack", "unpack"]
    assert gpu.calls[1][3:] == (3, True, 77)


def test_a_wrong_message_is_told_unless_nobody_asks(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_arrays, "first_number", lambda flag: 1)
    message = FakeArray(np.zeros(288, np.uint8))
    with pytest.raises(ValueError, match="decode: the message is not one of int8 and 9 elements"):
        braid.cuda.decode("int8", message, floats(9))
    braid.cuda.decode("int8", message, floats(9), check=False)
    assert len(gpu.calls) == 2


def test_a_long_table_is_brought_to_the_gpu(gpu: FakeGpu) -> None:
    tensors = [floats(1) for _ in range(500)]
    assert braid.cuda.pack(tensors).size == 500
    assert gpu.calls[0][1].is_long


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: braid.cuda.pack([]), "pack: there are no tensors"),
        (lambda: braid.cuda.pack([floats(), floats(on=1)]), "pack: arrays on the GPUs 0 and 1"),
        (lambda: braid.cuda.pack(floats(), out=floats(7)), "pack: out has 7 elements, expected 8"),
        (lambda: braid.cuda.pack(FakeArray(np.zeros(4, np.int32))), "tensor 0 is of int32"),
        (lambda: braid.cuda.pack(FakeArray(np.zeros((4, 4), np.float32)[:, 1])), "not C-contiguous"),
        (lambda: braid.cuda.encode("int9", floats()), "there is none of that name"),
        (lambda: braid.cuda.encode("int8", floats(), residual=floats(7)), "residual has 7 elements, expected 8"),
        (lambda: braid.cuda.encode("int8", floats(), scale=float("nan")), "scale is nan"),
        (
            lambda: braid.cuda.decode("int8", FakeArray(np.zeros(3, np.uint8)), floats()),
            "has 3 elements, expected",
        ),
    ],
)
def test_wrong_arguments_reach_no_gpu(gpu: FakeGpu, call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        call()
    assert gpu.calls == []


def test_shared_memory_is_refused(gpu: FakeGpu) -> None:
    whole = np.zeros(16, np.float32)
    one, other = FakeArray(whole[:9]), FakeArray(whole[8:])
    with pytest.raises(ValueError, match="encode: a tensor and residual share memory"):
        braid.cuda.encode("int8", one, residual=FakeArray(whole[7:]))
    with pytest.raises(ValueError, match=r"unpack: tensors\[0\] and tensors\[1\] share memory"):
        braid.cuda.unpack(floats(17), [one, other])
    assert braid.cuda.pack([one, other]).size == 17  # reading twice does no harm
    assert len(gpu.calls) == 1


# ---- The kernels' machine code


def test_the_flags_that_make_the_hosts_bytes_are_the_same_everywhere() -> None:
    path = Path(__file__).parents[2] / "cmake" / "BraidCuda.cmake"
    flags = re.search(r"set\(BRAID_CUDA_FLAGS (.*)\)", path.read_text())
    assert flags is not None
    assert set(kernels.EXACT) <= set(flags[1].split())


def test_the_kernels_that_are_launched_are_in_the_source() -> None:
    launched = set(re.findall(r'launch\(\("?(\w+)|launch\("(\w+)"', _launchers()))
    names = {name for pair in launched for name in pair if name} - {"encode_", "decode_"}
    dense = {f"{way}_{codec}" for way in ("encode", "decode") for codec in _dense_codecs()}
    assert names | dense == KERNELS


def _launchers() -> str:
    return (Path(__file__).parents[2] / "csrc" / "cuda" / "launch.cc").read_text()


def _dense_codecs() -> list[str]:
    names = ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign"]
    assert not any(_core.Codec(name).is_sparse for name in names)
    return names


def test_the_fat_binary_has_every_kernel_for_every_architecture(tmp_path: Path) -> None:
    path = kernels.fat_binary()
    if path is None:
        pytest.skip("braid was built without nvcc")
    tool = shutil.which("cuobjdump")
    if tool is None:
        assert path.read_bytes()[:4] == bytes.fromhex("50ed55ba")  # what every fat binary begins with
        pytest.skip("there is no cuobjdump to look into the fat binary; it is one, more is not checked")
    listed = subprocess.run([tool, "--list-elf", path], capture_output=True, text=True, check=True).stdout
    assert {"sm_80", "sm_90"} <= set(re.findall(r"sm_\d+", listed))
    subprocess.run([tool, "--extract-elf", "all", path], cwd=tmp_path, check=True, capture_output=True)
    for image in tmp_path.glob("*.cubin"):
        assert kernels_in(image.read_bytes()) == KERNELS, image.name


def kernels_in(image: bytes) -> set[str]:
    return {name.decode() for name in re.findall(rb"\.text\.braid_(\w+)\0", image)}


def test_nvrtc_compiles_every_kernel_once(tmp_path: Path) -> None:
    try:
        nvrtc.library()
    except nvrtc.NvrtcError as error:
        pytest.skip(str(error))
    path = kernels.compiled((9, 0), folder=tmp_path)
    assert kernels_in(path.read_bytes()) == KERNELS
    written = path.stat().st_mtime_ns
    assert kernels.compiled((9, 0), folder=tmp_path) == path
    assert path.stat().st_mtime_ns == written
    assert list(tmp_path.iterdir()) == [path]


def test_nvrtc_says_what_does_not_compile() -> None:
    try:
        compiler = nvrtc.library()
    except nvrtc.NvrtcError as error:
        pytest.skip(str(error))
    with pytest.raises(nvrtc.NvrtcError, match=r"wrong.cu does not compile: (.|\n)*undefined_thing"):
        nvrtc.compile_text(compiler, "int x = undefined_thing;", "wrong.cu", [])
