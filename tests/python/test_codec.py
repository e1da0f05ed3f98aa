# SPDX-License-Identifier: Apache-2.0
"""braid.Codec: error feedback loses nothing, errors stay below their bounds, and what is wrong is refused."""

from __future__ import annotations

import copy
import doctest
import pickle
import threading
from typing import Any

import braid
import numpy as np
import numpy.typing as npt
import pytest
import torch
from braid import _bucket, _codec
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.unit

Floats = npt.NDArray[np.float32]

DENSE = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign")
SPARSE = ("top_k:0.05", "random_k:0.1")
ALL = DENSE + SPARSE
SIZES = (0, 1, 2, 255, 256, 257, 1024, 1025, 4095, 4096, 4097, 9001)


def decoded(codec: braid.Codec, message: Any, elements: int) -> Floats:
    return codec.decode(message, np.empty(elements, np.float32))


def same_bits(a: Floats, b: Floats) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def gradient(elements: int, seed: int) -> Floats:
    """Numbers of many magnitudes, some of them 0, as gradients have."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(elements) * 10.0 ** random.integers(-6, 3, elements)
    values[random.random(elements) < 0.1] = 0
    return values.astype(np.float32)


def in_blocks(values: Floats, codec: braid.Codec) -> Floats:
    """One block per row, the last filled up with zeros."""
    return np.pad(values, (0, -values.size % codec.block_elements)).reshape(-1, codec.block_elements)


# ---- what a codec does to numbers


@settings(max_examples=60, deadline=None)
@given(text=st.sampled_from(ALL), elements=st.sampled_from(SIZES), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_what_is_not_sent_now_is_sent_later(text: str, elements: int, seed: int, data: st.DataObject) -> None:
    codec, residual = braid.Codec(text), np.zeros(elements, np.float32)
    scale = data.draw(st.sampled_from((1.0, 0.25, 1 / 3)))
    given_sum, sent_sum, most = np.zeros(elements), np.zeros(elements), np.zeros(elements)
    for step in range(4):
        values = gradient(elements, seed + step)
        value = values * np.float32(scale) + residual
        sent = decoded(codec, codec.encode(values, residual=residual, scale=scale, seed=step), elements)
        assert same_bits(residual, value - sent)
        given_sum += values * np.float32(scale)
        sent_sum += sent
        most = np.maximum(most, np.maximum(abs(value), abs(sent)))
    # Every step rounds a sum and a difference to float32; beyond that nothing is lost.
    np.testing.assert_array_less(abs(sent_sum + residual - given_sum), 8 * most * 2.0**-24 + 1e-44)


@settings(max_examples=60, deadline=None)
@given(text=st.sampled_from(DENSE), elements=st.sampled_from(SIZES[1:]), seed=st.integers(0, 2**32 - 1))
def test_no_element_is_further_off_than_the_bound(text: str, elements: int, seed: int) -> None:
    codec, values = braid.Codec(text), gradient(elements, seed)
    values[abs(values) < 1e-4] = 0  # below is where float16 is subnormal
    error = abs(decoded(codec, codec.encode(values, seed=seed), elements) - values)
    if codec.block_elements == 1:
        assert (error <= abs(values) * codec.error_bound).all()
    else:
        largest = abs(in_blocks(values, codec)).max(axis=1, keepdims=True)
        assert (in_blocks(error, codec) <= largest * (codec.error_bound * (1 + 2**-20))).all()


@pytest.mark.parametrize("text", SPARSE)
def test_sparse_codecs_send_the_numbers_themselves(text: str) -> None:
    codec, values = braid.Codec(text), gradient(5000, 1)
    sent = decoded(codec, codec.encode(values, seed=3), 5000)
    chosen = sent != 0
    np.testing.assert_array_equal(sent[chosen], values[chosen])
    assert chosen.sum() <= 5000 * float(text.partition(":")[2])
    if codec.name == "top_k":
        assert abs(values[~chosen]).max() <= abs(values[chosen]).min()
        assert chosen.sum() == 250


@pytest.mark.parametrize("text", [text for text in ALL if braid.Codec(text).is_unbiased])
def test_unbiased_codecs_are_right_on_average(text: str) -> None:
    codec, values = braid.Codec(text), gradient(256, 5)
    rounds = 2000
    mean = sum(decoded(codec, codec.encode(values, seed=seed), 256).astype(np.float64) for seed in range(rounds))
    # A code is off by less than one, with a standard deviation of at most a half.
    step = abs(values).max() / 127
    np.testing.assert_allclose(mean / rounds, values, atol=5 * 0.5 * step / rounds**0.5, rtol=0)


@pytest.mark.parametrize("text", [text for text in ALL if braid.Codec(text).is_linear])
def test_linear_codecs_agree_on_the_elements(text: str) -> None:
    codec, a, b = braid.Codec(text), gradient(999, 1), gradient(999, 2)
    both = [decoded(codec, codec.encode(x, seed=7), 999) for x in (a, b)]
    np.testing.assert_array_equal(decoded(codec, codec.encode(a + b, seed=7), 999), both[0] + both[1])


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_arrives_so_and_leaves_nothing_behind(text: str, bad: float) -> None:
    codec, values = braid.Codec(text), np.ones(3000, np.float32)
    values[1100] = bad
    together = 10 if codec.name == "random_k" else codec.block_elements
    first = 1100 // together * together
    for seed in range(30):
        residual = np.ones(3000, np.float32)
        sent = decoded(codec, codec.encode(values, residual=residual, seed=seed), 3000)
        assert np.isfinite(residual).all()
        hit = ~np.isfinite(sent)
        assert hit.sum() == hit[first : first + together].sum() == codec.block_elements
        assert hit[1100] or codec.name == "random_k"


@pytest.mark.parametrize("text", ALL)
def test_no_residual_is_ever_infinite(text: str) -> None:
    codec, residual = braid.Codec(text), np.ones(5000, np.float32)
    values = gradient(5000, 1)
    values[::3], values[1::3], values[2::30] = np.inf, np.nan, -np.inf
    sent = decoded(codec, codec.encode(values, residual=residual, scale=0.5), 5000)
    assert not np.isfinite(sent).all()
    assert np.isfinite(residual).all()


@pytest.mark.parametrize("text", ALL)
def test_decode_add_adds_what_decode_writes(text: str) -> None:
    codec, into = braid.Codec(text), gradient(4500, 8)
    message = codec.encode(gradient(4500, 9))
    expected = into + decoded(codec, message, 4500)
    assert codec.decode_add(message, into) is into
    assert same_bits(into, expected)


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("elements", SIZES)
def test_messages_have_the_size_that_was_said(text: str, elements: int) -> None:
    codec = braid.Codec(text)
    assert codec.encode(gradient(elements, 1)).nbytes == codec.encoded_bytes(elements)


# ---- what it takes


def test_any_shape_and_torch_tensors_are_taken() -> None:
    codec, values = braid.Codec("int8"), gradient(600, 3)
    expected = codec.encode(values)
    np.testing.assert_array_equal(codec.encode(values.reshape(2, 3, 100)), expected)
    tensor = torch.nn.Parameter(torch.from_numpy(values.copy()).reshape(20, 30))
    message = torch.empty(expected.size, dtype=torch.uint8)
    residual = torch.zeros(600)
    assert codec.encode(tensor, residual=residual, out=message) is message
    np.testing.assert_array_equal(message.numpy(), expected)
    out = torch.empty(30, 20)
    assert codec.decode(message, out) is out
    np.testing.assert_array_equal(out.numpy().ravel(), decoded(codec, expected, 600))
    np.testing.assert_array_equal(residual.numpy(), values - out.numpy().ravel())
    np.testing.assert_array_equal(decoded(codec, expected.tobytes(), 600), out.numpy().ravel())


def test_the_traits_are_those_of_the_codec() -> None:
    top, int8 = braid.Codec("top_k:0.001"), braid.Codec("int8")
    assert (top.name, top.is_sparse, top.is_unbiased, top.is_linear, top.block_elements) == (
        "top_k",
        True,
        False,
        False,
        1,
    )
    assert (int8.name, int8.is_sparse, int8.block_elements, int8.error_bound) == ("int8", False, 256, 0.5 / 127)
    assert top.ratio == pytest.approx(0.002, rel=0.01)
    assert int8.ratio == pytest.approx(0.254, rel=0.01)


def test_codecs_are_values() -> None:
    codec = braid.Codec("top_k:0.001")
    assert repr(codec) == "braid.Codec('top_k:0.001')"
    assert str(braid.Codec("int8")) == "int8"
    assert codec == braid.Codec("top_k:1e-3") != braid.Codec("top_k:0.002")
    assert codec != "top_k:0.001"
    assert {codec: 1}[pickle.loads(pickle.dumps(codec))] == 1
    assert copy.deepcopy(codec) == codec


def test_examples_in_docstrings_hold() -> None:
    for module in (_codec, _bucket):
        results = doctest.testmod(module, extraglobs={"braid": braid, "np": np})
        assert results.attempted > 0
        assert results.failed == 0


def test_threads_work_at_the_same_time() -> None:
    codec, values = braid.Codec("qsgd"), gradient(50000, 1)
    expected, got = codec.encode(values, seed=1), [np.empty(0, np.uint8)] * 4

    def work(i: int) -> None:
        got[i] = codec.encode(values, seed=1)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for message in got:
        np.testing.assert_array_equal(message, expected)


# ---- what it refuses


@pytest.mark.parametrize(
    "text", ["", "int9", "int8:0.1", "top_k", "top_k:", "top_k:0.5", "top_k:nan", "top_k:0.1x"]
)
def test_there_is_no_such_codec(text: str) -> None:
    with pytest.raises(ValueError, match="codec"):
        braid.Codec(text)


def test_a_codec_is_made_from_text() -> None:
    with pytest.raises(TypeError, match="from its text"):
        braid.Codec(8)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ALL)
def test_malformed_messages_are_refused_and_write_nothing(text: str) -> None:
    codec, out = braid.Codec(text), np.full(1000, 7, np.float32)
    message = codec.encode(gradient(1000, 1))
    other = next(braid.Codec(name) for name in ALL if not name.startswith(codec.name))
    wrong = [message[:-1], np.append(message, np.uint8(0)), message[:0], other.encode(gradient(1000, 1))]
    for byte in range(12 if codec.name == "random_k" else 16):  # the header, but for the seed
        changed = message.copy()
        changed[byte] ^= 1
        wrong.append(changed)
    if codec.name == "top_k":
        for positions in ([1, 0], [0, 0], [0, 1000], [0, 2**32 - 1]):
            changed = message.copy()
            changed[16 : 16 + 4 * 50].view(np.uint32)[[0, -1]] = positions
            wrong.append(changed)
    for given_message in wrong:
        for call in (codec.decode, codec.decode_add):
            with pytest.raises(ValueError, match="message of 1000 elements"):
                call(given_message, out)
    assert (out == 7).all()


X = np.ones(4, np.float32)
MESSAGE = braid.Codec("fp16").encode(X)
READ_ONLY = np.ones(4, np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("values", "options", "error", "text"),
    [
        (X.astype("f8"), {}, TypeError, "encode: values has dtype float64, expected float32"),
        (X.astype(">f4"), {}, TypeError, "values has dtype >f4, expected float32"),
        ([1.0, 2.0], {}, TypeError, "values is a list, not a NumPy array"),
        (torch.ones(4, dtype=torch.bfloat16), {}, TypeError, "values has dtype bfloat16"),
        (torch.ones(4, device="meta"), {}, TypeError, "on the device meta; bring it to the CPU first"),
        (torch.ones(4).to_sparse(), {}, TypeError, "values is a sparse tensor"),
        (torch.ones(8)[::2], {}, ValueError, "values is not contiguous; use x.contiguous()"),
        (np.ones(8, np.float32)[::2], {}, ValueError, "values is not C-contiguous"),
        (np.zeros(17, np.uint8)[1:].view("f4"), {}, ValueError, "values lies at an odd address"),
        (X, {"residual": np.zeros(3, np.float32)}, ValueError, "residual has 3 elements, expected 4"),
        (X, {"residual": X}, ValueError, "encode: values and residual share memory"),
        (X, {"residual": READ_ONLY}, ValueError, "residual is read-only"),
        (X, {"out": np.empty(31, np.uint8)}, ValueError, "out has 31 bytes, but the message has 32"),
        (X, {"out": np.empty(32, np.int8)}, TypeError, "out has dtype int8, expected uint8"),
        (np.ones(8, np.float32)[:4], {"scale": np.nan}, ValueError, "scale is nan"),
        (X, {"scale": 1e39}, ValueError, "expected a finite number of float32"),
        (X, {"seed": -1}, ValueError, "seed is -1, expected one from 0 to 4294967295"),
        (X, {"seed": 2**32}, ValueError, "seed is 4294967296"),
        (X, {"seed": 0.5}, TypeError, "float"),
    ],
)
def test_encode_says_what_is_wrong(values: Any, options: dict[str, Any], error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        braid.Codec("fp16").encode(values, **options)


@pytest.mark.parametrize(
    ("message", "out", "error", "text"),
    [
        (MESSAGE, X.astype("f8"), TypeError, "decode: out has dtype float64"),
        (MESSAGE, READ_ONLY, ValueError, "out is read-only"),
        (MESSAGE.astype("i4"), X, TypeError, "message has dtype int32, expected uint8"),
        (MESSAGE.repeat(2)[::2], X, ValueError, "message is not C-contiguous"),
        (X.view(np.uint8), X, ValueError, "decode: message and out share memory"),
    ],
)
def test_decode_says_what_is_wrong(message: Any, out: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        braid.Codec("fp16").decode(message, out)


@pytest.mark.parametrize("elements", [-1, 2**31 + 1, 2**62])
def test_a_message_has_a_limit(elements: int) -> None:
    with pytest.raises(ValueError, match=str(elements)):
        braid.Codec("int8").encoded_bytes(elements)
