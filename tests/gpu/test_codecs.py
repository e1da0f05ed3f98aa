# SPDX-License-Identifier: Apache-2.0
"""The kernels on a GPU against the codecs on the host: the same bytes, the same residual bits."""

from __future__ import annotations

import math
from typing import Any

import braid.cuda
import numpy as np
import pytest
import torch

CODECS = ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign", "top_k:0.01", "random_k:0.01"]
SIZES = [0, 1, 2, 255, 256, 257, 511, 512, 513, 1023, 1025, 4096, 65537, 1_000_003]
ODD_ONES = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    -1e-45,
    3e38,
    65520.0,
    6e-8,
    2.0**-100,
    448.0,
    -57344.0,
]


def values(elements: int, seed: int, kind: str = "normal") -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    drawn = torch.randn(elements, generator=random)
    if kind == "odd":
        places = torch.randint(0, max(elements, 1), (elements // 300 + 1,), generator=random)
        for i, place in enumerate(places[: elements and len(places)]):
            drawn[place] = ODD_ONES[i % len(ODD_ONES)]
    elif kind == "ties":
        drawn = (drawn * 2).round()
    elif kind == "zeros":
        drawn.zero_()
    return drawn


def mixed(elements: int, seed: int, kind: str = "normal") -> list[torch.Tensor]:
    """Return tensors of mixed dtypes and lengths, some at odd addresses, of so many elements in all."""
    random = np.random.default_rng(seed)
    flat, tensors, done = values(elements, seed, kind), [], 0
    while done < elements:
        length = min(elements - done, int(random.integers(1, 40 if random.random() < 0.3 else 60_000)))
        dtype = [torch.float32, torch.float16, torch.bfloat16][int(random.integers(3))]
        shift = int(random.integers(4))
        memory = torch.empty(length + shift, dtype=dtype, device="cuda")
        memory[shift:].copy_(flat[done : done + length])
        tensors.append(memory[shift:])
        done += length
    return tensors or [torch.empty(0, device="cuda")]


def as_floats(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.cpu().float() for tensor in tensors])


def bits(tensor: torch.Tensor) -> np.ndarray:
    """Return the bits, with all NaNs as one: what is decoded may have any."""
    array = tensor.cpu().contiguous()
    array = torch.where(array.isnan(), torch.full_like(array, math.nan), array)
    return array.view({2: torch.int16, 4: torch.int32}[array.element_size()]).numpy()


def poisoned(nbytes: int) -> torch.Tensor:
    return torch.full((nbytes,), 0xA5, dtype=torch.uint8, device="cuda")


def compare(text: str, tensors: list[torch.Tensor], *, residual: bool, scale: float = 1.0, seed: int = 5) -> None:
    codec, flat = braid.Codec(text), as_floats(tensors)
    host_left = values(flat.numel(), seed + 1) / 8 if residual else None
    left = host_left.cuda() if host_left is not None else None
    expected = codec.encode(
        flat,
        residual=host_left,
        scale=scale,
        seed=seed,
        out=torch.zeros(codec.encoded_bytes(flat.numel()), dtype=torch.uint8),
    )
    message = poisoned(expected.numel())
    assert braid.cuda.encode(codec, tensors, residual=left, scale=scale, seed=seed, out=message) is message
    wrong = (message.cpu() != expected).nonzero()
    assert wrong.numel() == 0, f"{wrong.numel()} bytes differ, the first at {wrong[0].item()}"
    if host_left is not None and left is not None:
        assert torch.equal(left.cpu().view(torch.int32), host_left.view(torch.int32))

    decoded = codec.decode(expected, torch.empty(flat.numel()))
    out = torch.full((flat.numel(),), 7.0, device="cuda")
    braid.cuda.decode(codec, message, out)
    assert np.array_equal(bits(out), bits(decoded))
    for add in (False, True):
        into = [tensor.clone() for tensor in mixed(flat.numel(), seed + 2)]
        before = [tensor.cpu().float() for tensor in into]
        (braid.cuda.decode_add if add else braid.cuda.decode)(codec, message, into, scale=0.5)
        begin = 0
        for tensor, old in zip(into, before, strict=True):
            part = decoded[begin : begin + tensor.numel()] * 0.5
            begin += tensor.numel()
            assert np.array_equal(bits(tensor), bits((old + part if add else part).to(tensor.dtype)))


@pytest.mark.parametrize("text", CODECS)
@pytest.mark.parametrize("elements", SIZES)
def test_mixed_tensors_give_the_hosts_bytes(text: str, elements: int) -> None:
    compare(text, mixed(elements, elements), residual=False)
    compare(text, mixed(elements, elements + 1, "odd"), residual=True, scale=1 / 3, seed=elements)


@pytest.mark.parametrize("text", CODECS)
@pytest.mark.parametrize("kind", ["normal", "odd", "ties", "zeros"])
def test_one_large_tensor_gives_the_hosts_bytes(text: str, kind: str) -> None:
    flat = values(5_000_003, 3, kind).cuda()
    compare(text, [flat], residual=kind != "ties")
    compare(text, [flat[1:]], residual=False, scale=0.25)


@pytest.mark.parametrize("text", ["top_k:0.25", "top_k:0.000001", "random_k:0.25", "random_k:0.000001"])
def test_sparse_codecs_of_all_parts_give_the_hosts_bytes(text: str) -> None:
    compare(text, [values(3_000_001, 4).cuda()], residual=True)


@pytest.mark.parametrize("text", CODECS)
def test_the_same_again_gives_the_same(text: str) -> None:
    """A race would show as a difference."""
    flat = values(5_000_000, 6, "ties").cuda()
    first = braid.cuda.encode(text, flat, seed=1)
    for _ in range(20):
        assert torch.equal(braid.cuda.encode(text, flat, seed=1), first)


@pytest.mark.parametrize("text", CODECS)
def test_another_codecs_message_changes_nothing(text: str) -> None:
    out = torch.ones(1000, device="cuda")
    message = torch.zeros(braid.Codec(text).encoded_bytes(1000), dtype=torch.uint8, device="cuda")
    with pytest.raises(ValueError, match="the message is not one of"):
        braid.cuda.decode(text, message, out)
    assert torch.equal(out, torch.ones_like(out))


def test_top_k_positions_out_of_order_change_nothing() -> None:
    out = torch.ones(1000, device="cuda")
    message = braid.cuda.encode("top_k:0.1", torch.randn(1000, device="cuda"))
    for wrong in (0, 999, 2**31 - 1):
        other = message.clone()
        other[16:].view(torch.int32)[50] = wrong
        with pytest.raises(ValueError, match="the message is not one of"):
            braid.cuda.decode_add("top_k:0.1", other, out)
    assert torch.equal(out, torch.ones_like(out))


@pytest.mark.parametrize("elements", SIZES)
@pytest.mark.parametrize("count", ["few", "many"])
def test_pack_and_unpack(elements: int, count: str) -> None:
    tensors = mixed(elements, 9)
    if count == "many":
        tensors = [part for tensor in tensors for part in tensor.split(max(1, elements // 500))]
    flat = as_floats(tensors)
    packed = braid.cuda.pack(tensors, scale=1 / 3, out=torch.empty(elements + 1, device="cuda")[1:])
    expected = flat * torch.tensor(1 / 3, dtype=torch.float32)
    assert torch.equal(packed.cpu(), expected)
    for add in (False, True):
        into = [torch.ones_like(tensor) for tensor in tensors]
        braid.cuda.unpack(packed, into, scale=0.5, add=add)
        begin = 0
        for tensor in into:
            part = expected[begin : begin + tensor.numel()] * 0.5
            begin += tensor.numel()
            assert torch.equal(tensor.cpu(), (part + 1 if add else part).to(tensor.dtype))


def test_work_is_on_the_current_stream() -> None:
    """On a stream still busy with what the kernel reads: the result is right only if the kernel waits for it."""
    source, stream = torch.zeros(1 << 24, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        source.fill_(2.0)
        packed = braid.cuda.pack(source)
    stream.synchronize()
    assert bool((packed == 2).all())


def test_cuda_graphs_can_hold_it() -> None:
    source, out = torch.randn(100_000, device="cuda"), torch.empty(100_000, device="cuda")
    message = torch.empty(braid.Codec("top_k:0.01").encoded_bytes(100_000), dtype=torch.uint8, device="cuda")
    braid.cuda.encode("top_k:0.01", source, out=message)  # loads the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        braid.cuda.encode("top_k:0.01", source, out=message)
        braid.cuda.decode("top_k:0.01", message, out, check=False)
    source.copy_(torch.randn(100_000))
    graph.replay()
    expected = braid.Codec("top_k:0.01").encode(source.cpu())
    assert np.array_equal(message.cpu().numpy(), np.asarray(expected))


def test_cupy_arrays_are_taken() -> None:
    cupy: Any = pytest.importorskip("cupy")
    host = values(10_000, 1).numpy()
    tensors = [cupy.asarray(host[:6000]), cupy.asarray(host[6000:].astype(np.float16))]
    flat = np.concatenate([host[:6000], host[6000:].astype(np.float16).astype(np.float32)])
    cupy.cuda.Device().synchronize()  # the next stream does not wait for this one
    with cupy.cuda.Stream(non_blocking=True):
        message = braid.cuda.encode("int8", tensors)
        out = cupy.empty(10_000, np.float32)
        braid.cuda.decode("int8", message, out)
    expected = np.asarray(braid.Codec("int8").encode(flat))
    assert np.array_equal(cupy.asnumpy(message), expected)
    assert np.array_equal(cupy.asnumpy(out), braid.Codec("int8").decode(expected, np.empty(10_000, np.float32)))


def test_nvrtc_makes_kernels_that_give_the_hosts_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from braid import _core
    from braid._gpu import kernels
    from braid._torch.adapter.sealed import content_of

    capability = _core.cuda_capability(0)
    image = kernels.compiled(capability, folder=tmp_path)
    made = kernels.Loaded(_core.Gpu(0, content_of(image)), image)
    monkeypatch.setattr(kernels, "loaded", lambda device: made)
    for text in CODECS:
        compare(text, mixed(100_003, 8, "odd"), residual=True)
