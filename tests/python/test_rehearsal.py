# SPDX-License-Identifier: Apache-2.0
"""Every planner, executed with one thread per rank, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from braid import _core

REDUCTIONS = ("sum", "avg", "product", "min", "max")
FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")
PRIME = 1009
LARGE = 50_021
HUGE = 300_007
CHUNK_BYTES = 4096  # so that PRIME already makes several segments and HUGE hundreds


def storage(dtype: str) -> np.dtype:
    """NumPy has no bfloat16: its bits are held in uint16."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":  # exact for the small whole numbers used here
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(storage(dtype))


def decode(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def values(dtype: str, op: str, count: int, seed: int) -> np.ndarray:
    """Whole numbers whose reductions every dtype holds exactly, up to nine ranks."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, count)
    if op == "product":
        return random.choice([1, 2] if dtype.startswith("u") or dtype == "int8" else [1, -1, 2], count)
    low = 0 if dtype.startswith("u") else -12
    return random.integers(low, 13, count)


def reduced(per_rank: list[np.ndarray], dtype: str, op: str) -> np.ndarray:
    stack = np.stack([v.astype(np.int64) for v in per_rank])
    if dtype == "bool":
        return stack.any(0) if op in ("sum", "max", "avg") else stack.all(0)
    if op == "sum":
        out = stack.sum(0)
    elif op == "avg":
        total = stack.sum(0)
        out = total / len(per_rank) if dtype in FLOATS else np.trunc(total / len(per_rank))
    elif op == "product":
        out = stack.prod(0)
    else:
        out = stack.min(0) if op == "min" else stack.max(0)
    return out if dtype in FLOATS else out.astype(np.int64).astype(storage(dtype))


def assert_equal(got: np.ndarray, expected: np.ndarray, dtype: str, what: str) -> None:
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-6)
    if dtype in FLOATS:
        np.testing.assert_allclose(decode(got, dtype), expected, rtol=tolerance, atol=tolerance, err_msg=what)
    else:
        np.testing.assert_array_equal(decode(got, dtype).astype(expected.dtype), expected, err_msg=what)


@dataclass(frozen=True)
class Case:
    count: int
    dtype: str
    op: str
    single_copy: bool = False
    window: int = 3
    chunk_bytes: int = CHUNK_BYTES


def reduction_cases() -> Iterator[Case]:
    for dtype, op in product(DTYPES, REDUCTIONS):
        yield from (Case(count, dtype, op) for count in (0, 1, PRIME))
        yield Case(LARGE, dtype, op, chunk_bytes=16 * CHUNK_BYTES)
    yield Case(7, "float32", "sum")
    for single_copy in (False, True):
        yield Case(HUGE, "float32", "sum", single_copy)


def reduction_cases_in_place_and_not() -> Iterator[tuple[Case, bool]]:
    """Both for PRIME, which has every dtype and op; in turn for the other counts."""
    for number, case in enumerate(reduction_cases()):
        for in_place in (True, False) if case.count == PRIME else (number // 4 % 2 == 0,):
            yield case, in_place


def movement_cases() -> Iterator[Case]:
    for count in (0, 1, 7, PRIME):
        yield Case(count, "uint8", "sum")
    yield Case(PRIME, "float64", "sum", single_copy=True)
    yield Case(HUGE, "int32", "sum", window=1)


def poison(count: int, dtype: str) -> np.ndarray:
    return np.full(count, 0x5A, dtype=np.uint8).repeat(storage(dtype).itemsize).view(storage(dtype))


def run(text: str, inputs: list[list[np.ndarray]], outputs: list[list[np.ndarray]], case: Case) -> None:
    def raw(blocks: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        return [[b.view(np.uint8) for b in rank] for rank in blocks]

    _core.rehearse(
        text, raw(inputs), raw(outputs), case.dtype, case.op, case.chunk_bytes, case.window, case.single_copy
    )


def every(collective: str, ranks: range = range(1, 10)) -> list[tuple[str, int]]:
    return [(family, n) for family in _core.families(collective) for n in ranks]


@pytest.mark.parametrize(("family", "n"), every("all_reduce"))
def test_all_reduce(family: str, n: int) -> None:
    text = _core.plan("all_reduce", family, n)
    for case, in_place in reduction_cases_in_place_and_not():
        data = [values(case.dtype, case.op, case.count, 100 * n + r) for r in range(n)]
        expected = reduced(data, case.dtype, case.op)
        inputs = [[encode(v, case.dtype)] for v in data]
        outputs = inputs if in_place else [[poison(case.count, case.dtype)] for _ in data]
        run(text, inputs, outputs, case)
        for rank in range(n):
            what = f"{case} rank {rank} in_place={in_place}"
            assert_equal(outputs[rank][0], expected, case.dtype, what)
            assert outputs[rank][0].tobytes() == outputs[0][0].tobytes(), f"{what}: not bit-identical"
            if not in_place:
                assert_equal(inputs[rank][0], data[rank], case.dtype, f"{what}: input was changed")


@pytest.mark.parametrize("shares", [[1, 1, 1, 1], [5, 1, 0, 2], [0, 0, 0, 1]])
def test_all_reduce_with_unequal_shares(shares: list[int]) -> None:
    text = _core.plan("all_reduce", "direct", 4, shares=shares)
    for count in (0, 1, 3, PRIME):
        case = Case(count, "float32", "sum")
        data = [values("float32", "sum", count, r) for r in range(4)]
        arrays = [[encode(v, "float32")] for v in data]
        run(text, arrays, arrays, case)
        for rank in range(4):
            assert_equal(arrays[rank][0], reduced(data, "float32", "sum"), "float32", f"{shares} {count}")


@pytest.mark.parametrize(("family", "n"), every("reduce"))
def test_reduce(family: str, n: int) -> None:
    for root in {0, n // 2, n - 1}:
        text = _core.plan("reduce", family, n, root=root)
        for case in reduction_cases():
            data = [values(case.dtype, case.op, case.count, r) for r in range(n)]
            inputs = [[encode(v, case.dtype)] for v in data]
            output = poison(case.count, case.dtype)
            run(text, inputs, [[output] if r == root else [] for r in range(n)], case)
            assert_equal(output, reduced(data, case.dtype, case.op), case.dtype, f"{case} root {root}")
            for rank in range(n):
                assert_equal(inputs[rank][0], data[rank], case.dtype, f"{case}: input was changed")


@pytest.mark.parametrize(("family", "n"), every("reduce_scatter"))
def test_reduce_scatter(family: str, n: int) -> None:
    text = _core.plan("reduce_scatter", family, n)
    for case, in_place in reduction_cases_in_place_and_not():
        data = [[values(case.dtype, case.op, case.count, 10 * r + b) for b in range(n)] for r in range(n)]
        inputs = [[encode(block, case.dtype) for block in rank] for rank in data]
        outputs = [[inputs[r][r] if in_place else poison(case.count, case.dtype)] for r in range(n)]
        run(text, inputs, outputs, case)
        for rank in range(n):
            expected = reduced([data[r][rank] for r in range(n)], case.dtype, case.op)
            assert_equal(outputs[rank][0], expected, case.dtype, f"{case} rank {rank} in_place={in_place}")


@pytest.mark.parametrize(("family", "n"), every("all_gather"))
def test_all_gather(family: str, n: int) -> None:
    text = _core.plan("all_gather", family, n)
    for case in movement_cases():
        for uneven in (False, True):
            counts = [case.count + (7 * r if uneven else 0) for r in range(n)]
            data = [encode(values(case.dtype, "sum", counts[r], r), case.dtype) for r in range(n)]
            outputs = [[poison(c, case.dtype) for c in counts] for _ in range(n)]
            run(text, [[d.copy()] for d in data], outputs, case)
            for rank in range(n):
                for owner in range(n):
                    np.testing.assert_array_equal(outputs[rank][owner], data[owner], err_msg=str(case))


@pytest.mark.parametrize(("family", "n"), every("broadcast"))
def test_broadcast(family: str, n: int) -> None:
    for root in {0, n // 2, n - 1}:
        text = _core.plan("broadcast", family, n, root=root)
        for case in movement_cases():
            data = encode(values(case.dtype, "sum", case.count, 1), case.dtype)
            outputs = [[poison(case.count, case.dtype)] for _ in range(n)]
            run(text, [[data.copy()] if r == root else [] for r in range(n)], outputs, case)
            for rank in range(n):
                np.testing.assert_array_equal(outputs[rank][0], data, err_msg=f"{case} root {root}")


@pytest.mark.parametrize(("family", "n"), every("all_to_all"))
def test_all_to_all(family: str, n: int) -> None:
    text = _core.plan("all_to_all", family, n)
    for case in movement_cases():
        for uneven in (False, True):
            count = [[case.count + (5 * s + 3 * d if uneven else 0) for d in range(n)] for s in range(n)]
            data = [
                [encode(values(case.dtype, "sum", count[s][d], 9 * s + d), case.dtype) for d in range(n)]
                for s in range(n)
            ]
            outputs = [[poison(count[s][d], case.dtype) for s in range(n)] for d in range(n)]
            run(text, data, outputs, case)
            for d in range(n):
                for s in range(n):
                    np.testing.assert_array_equal(outputs[d][s], data[s][d], err_msg=f"{case} {s}->{d}")


@pytest.mark.parametrize("n", range(1, 10))
def test_gather_and_scatter(n: int) -> None:
    for root in {0, n // 2, n - 1}:
        for case in movement_cases():
            blocks = [encode(values(case.dtype, "sum", case.count, r), case.dtype) for r in range(n)]
            gathered = [poison(case.count, case.dtype) for _ in range(n)]
            run(
                _core.plan("gather", "direct", n, root=root),
                [[b] for b in blocks],
                [gathered if r == root else [] for r in range(n)],
                case,
            )
            scattered = [[poison(case.count, case.dtype)] for _ in range(n)]
            run(
                _core.plan("scatter", "direct", n, root=root),
                [gathered if r == root else [] for r in range(n)],
                scattered,
                case,
            )
            for rank in range(n):
                np.testing.assert_array_equal(gathered[rank], blocks[rank], err_msg=str(case))
                np.testing.assert_array_equal(scattered[rank][0], blocks[rank], err_msg=str(case))


def test_half_precision_averages_do_not_overflow() -> None:
    for family in ("direct", "gather_all"):
        arrays = [[np.full(100, 40000, np.float16)] for _ in range(4)]
        run(_core.plan("all_reduce", family, 4), arrays, arrays, Case(100, "float16", "avg"))
        for rank in range(4):
            np.testing.assert_array_equal(arrays[rank][0], np.full(100, 40000, np.float16))


def test_wrong_calls_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="no family"):
        _core.plan("all_reduce", "carousel", 4)
    with pytest.raises(ValueError, match="no collective"):
        _core.plan("all_reduse", "ring", 4)
    text = _core.plan("all_reduce", "ring", 2)
    with pytest.raises(ValueError, match="2 ranks"):
        _core.rehearse(text, [], [], "float32")
    with pytest.raises(ValueError, match="cannot exchange messages with itself"):
        _core.verify(text.replace("-> r1", "-> r0"))
