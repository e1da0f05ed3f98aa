# SPDX-License-Identifier: Apache-2.0
"""braid.Bucket: the same as one vector that was put together by hand."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import braid
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.unit

TORCH_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
CODECS = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign", "top_k:0.05", "random_k:0.1")


def flat_of(tensors: list[torch.Tensor]) -> npt.NDArray[np.float32]:
    return torch.cat([t.detach().float().reshape(-1) for t in tensors] or [torch.empty(0)]).numpy()


def noise(elements: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(elements).astype(np.float32)


@st.composite
def tensor_lists(draw: st.DrawFn) -> list[torch.Tensor]:
    lengths = draw(st.lists(st.sampled_from((0, 1, 2, 63, 256, 1000, 4096, 5001)), max_size=8))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    dtypes = st.sampled_from(TORCH_DTYPES)
    return [torch.randn(n, generator=generator).to(draw(dtypes)) for n in lengths]


@st.composite
def ranges(draw: st.DrawFn, elements: int) -> tuple[int, int]:
    ends = sorted(draw(st.tuples(st.integers(0, elements), st.integers(0, elements))))
    return ends[0], ends[1]


@settings(max_examples=80, deadline=None)
@given(tensors=tensor_lists(), text=st.sampled_from(CODECS), scale=st.sampled_from((1.0, 0.3)), data=st.data())
def test_it_is_the_tensors_one_after_another(
    tensors: list[torch.Tensor], text: str, scale: float, data: st.DataObject
) -> None:
    bucket, codec, flat = braid.Bucket(tensors), braid.Codec(text), flat_of(tensors)
    begin, end = data.draw(ranges(flat.size))
    assert (len(bucket), bucket.elements) == (len(tensors), flat.size)
    part = flat[begin:end]
    assert bucket.pack(scale=scale, begin=begin, end=end).tobytes() == (part * np.float32(scale)).tobytes()

    residual = noise(part.size)
    left = residual.copy()
    message = bucket.encode(codec, left, scale, seed=5, begin=begin, end=end)
    assert message.tobytes() == codec.encode(part, residual=residual, scale=scale, seed=5).tobytes()
    assert left.tobytes() == residual.tobytes()

    sent = codec.decode(message, np.empty(part.size, np.float32))
    expected = torch.from_numpy(np.concatenate([flat[:begin], sent * np.float32(scale), flat[end:]]))
    wanted = [
        piece.to(t.dtype) for piece, t in zip(expected.split([t.numel() for t in tensors]), tensors, strict=True)
    ]
    copies = [t.clone() for t in tensors]
    bucket.decode(codec, message, scale, begin, end)
    braid.Bucket(copies).unpack(sent, scale, begin=begin, end=end)
    for ours, also_ours, want in zip(tensors, copies, wanted, strict=True):
        assert torch.equal(ours, want)
        assert torch.equal(also_ours, want)


def test_steps_lose_nothing() -> None:
    codec, residual = braid.Codec("top_k:0.1"), np.zeros(130, np.float32)
    given_sum, sent_sum = np.zeros(130), np.zeros(130)
    for step in range(20):
        tensors = [
            torch.randint(-99, 99, (n,)).to(dtype) for n, dtype in ((100, torch.bfloat16), (30, torch.float32))
        ]
        message = braid.Bucket(tensors).encode(codec, residual, seed=step)
        given_sum += flat_of(tensors)
        sent_sum += codec.decode(message, np.empty(130, np.float32))
    np.testing.assert_array_equal(sent_sum + residual, given_sum)  # whole numbers: every sum is exact


def test_numpy_arrays_and_parameters_are_taken() -> None:
    arrays = [
        np.ones((2, 3), np.float32),
        torch.nn.Parameter(torch.full((2,), 2.0)),
        np.array(3, np.float16),
        np.full(2, 4, ml_dtypes.bfloat16),
        np.zeros(9, np.uint8)[1:].view(np.float64),
        memoryview(np.full(1, 5, np.float32)),
        torch.full((4, 4), 6.0)[1:2],
    ]
    bucket = braid.Bucket(iter(arrays))
    expected = [1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 4, 0, 5, 6, 6, 6, 6]
    np.testing.assert_array_equal(bucket.pack(), np.array(expected, np.float32))
    out = torch.empty(17)
    assert bucket.pack(out, 2) is out
    bucket.unpack(out)
    np.testing.assert_array_equal(bucket.pack(), 2 * np.array(expected, np.float32))
    assert repr(bucket) == "<braid.Bucket of 7 tensors, 17 elements>"


def test_it_rounds_as_torch_does() -> None:
    values = torch.tensor([65519.0, 65520.0, -70000.0, 1.00048828125, 6e-8, 2.9e-8, float("nan"), 3.4e38, -0.0])
    for dtype in TORCH_DTYPES:
        tensor = torch.empty(values.numel(), dtype=dtype)
        braid.Bucket([tensor]).unpack(values)
        torch.testing.assert_close(tensor, values.to(dtype), rtol=0, atol=0, equal_nan=True)


def test_it_keeps_the_memory_and_lets_it_go() -> None:
    array = np.ones(5, np.float32)
    gone = weakref.ref(array)
    bucket = braid.Bucket([array])
    del array
    assert bucket.pack().sum() == 5
    del bucket
    gc.collect()
    assert gone() is None


ONE = np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("tensors", "error", "text"),
    [
        (ONE, TypeError, "expected a list of tensors, not one"),
        (torch.ones(3), TypeError, "expected a list of tensors, not one"),
        (
            [ONE, torch.ones(2, dtype=torch.int64)],
            TypeError,
            "Bucket: tensor 1 has dtype int64, expected float64 or",
        ),
        ([torch.ones(4, 4).t()], ValueError, "tensor 0 is not contiguous; use x.contiguous"),
        ([torch.ones(2, device="meta")], TypeError, "tensor 0 is on the device meta"),
        ([torch.eye(2).to_sparse()], TypeError, "tensor 0 is a sparse tensor"),
        ([np.ones((3, 3), np.float32)[:, 1]], ValueError, "tensor 0 is not C-contiguous"),
        ([None], TypeError, "tensor 0 is a NoneType"),
        ([ONE, np.ones(2, np.float32), ONE[3:]], ValueError, "tensors 0 and 2 overlap in memory"),
    ],
)
def test_what_is_no_bucket(tensors: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        braid.Bucket(tensors)


def test_calls_say_what_is_wrong() -> None:
    tensor, fp16 = np.ones(10, np.float32), braid.Codec("fp16")
    bucket = braid.Bucket([np.ones(20, np.float16), tensor])
    message = fp16.encode(noise(30))
    cases: list[tuple[Any, Any, str]] = [
        (lambda: bucket.pack(begin=-1), ValueError, "pack: the range -1 to 30 is not within 30 elements"),
        (lambda: bucket.pack(end=31), ValueError, "the range 0 to 31"),
        (lambda: bucket.unpack(noise(0), begin=4, end=3), ValueError, "unpack: the range 4 to 3"),
        (lambda: bucket.pack(np.empty(29, np.float32)), ValueError, "out has 29 elements, expected 30"),
        (lambda: bucket.pack(np.empty(30)), TypeError, "out has dtype float64"),
        (lambda: bucket.pack(tensor, begin=20), ValueError, "pack: out shares memory with tensor 1"),
        (lambda: bucket.unpack(tensor, begin=20), ValueError, "shares memory with tensor 1"),
        (lambda: bucket.unpack(noise(29)), ValueError, "flat has 29 elements, expected 30"),
        (lambda: bucket.pack(scale=np.inf), ValueError, "scale is inf"),
        (lambda: bucket.encode("fp16"), TypeError, "codec is 'fp16', expected a braid.Codec"),  # type: ignore[arg-type]
        (lambda: bucket.encode(fp16, noise(29)), ValueError, "residual has 29 elements, expected 30"),
        (lambda: bucket.encode(fp16, tensor, begin=20), ValueError, "residual shares memory with tensor 1"),
        (lambda: bucket.encode(fp16, out=message[1:]), ValueError, "out has 79 bytes, but the message has 80"),
        (lambda: bucket.encode(fp16, seed=-1), ValueError, "seed is -1"),
        (lambda: bucket.decode(fp16, message[1:]), ValueError, "a message of 79 bytes, but fp16 takes 80 for 30"),
        (lambda: bucket.decode(fp16, message, begin=1), ValueError, "message of"),
        (lambda: bucket.decode(braid.Codec("bf16"), message), ValueError, "header is another's"),
    ]
    for call, error, text in cases:
        with pytest.raises(error, match=text):
            call()
    np.testing.assert_array_equal(bucket.pack(), np.ones(30, np.float32))


def test_read_only_tensors_can_be_read() -> None:
    frozen = np.ones(3, np.float32)
    frozen.flags.writeable = False
    bucket = braid.Bucket([np.zeros(1, np.float32), frozen])
    np.testing.assert_array_equal(bucket.pack(), [0, 1, 1, 1])
    for call in (
        lambda: bucket.unpack(noise(4)),
        lambda: bucket.decode(braid.Codec("fp16"), np.empty(32, np.uint8)),
    ):
        with pytest.raises(ValueError, match="tensor 1 is read-only"):
            call()
