# SPDX-License-Identifier: Apache-2.0
"""Every planner, executed with one thread per rank, against NumPy."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet
from braid import _core

ARITHMETIC = ("sum", "avg", "product", "min", "max")
BITWISE = ("band", "bor", "bxor")
FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
PARTS = {"complex64": "float32", "complex128": "float64"}  # a complex number is two of these
FLOAT8 = {"float8_e4m3fn": (3, 0x7E), "float8_e5m2": (2, 0x7B)}  # bits of the significand, the largest number
MALLOC_TRIM_THRESHOLD, MALLOC_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
# 2 is a power of two; 3 has odd parts and rests. C++ tests have all sizes.
LONG_SIZES = (4, 5, 6, 7, 8, 9)
PRIME = 1009
LARGE = 50_021
HUGE = 300_007
CHUNK_BYTES = 4096  # so that PRIME already makes several segments and HUGE hundreds


@pytest.fixture(autouse=True, scope="module")
def keep_freed_memory() -> None:
    """Otherwise a third of the time goes into pages that are given back and faulted in again."""
    libc = ctypes.CDLL(None)
    for parameter in (MALLOC_TRIM_THRESHOLD, MALLOC_MMAP_THRESHOLD):
        libc.mallopt(parameter, 1 << 30)


def storage(dtype: str) -> np.dtype:
    """What NumPy holds the numbers in, and their bits where it does not know the type."""
    if dtype in FLOAT8:
        return np.dtype("uint8")
    return np.dtype("uint16" if dtype == "bfloat16" else PARTS.get(dtype, dtype))


@cache
def float8_numbers(dtype: str) -> np.ndarray:
    """The numbers from zero to the largest, in the order of their bits."""
    significand, largest = FLOAT8[dtype]
    bits = np.arange(largest + 1)
    exponent, fraction = bits >> significand, bits % (1 << significand)
    lowest = 2 - (1 << (6 - significand))  # of the exponents of normal numbers
    hidden = np.where(exponent > 0, 1 << significand, 0)
    return np.ldexp(hidden + fraction, np.maximum(exponent - 1, 0) + lowest - significand)


def encode(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Round to nearest even, as the core does; NumPy does so by itself. What float8 cannot hold saturates."""
    if dtype == "bfloat16":
        bits = numbers.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    if dtype in FLOAT8:
        table = float8_numbers(dtype)
        middles = np.append((table[:-1] + table[1:]) / 2, np.inf)
        bits = np.searchsorted(middles[:-1], np.abs(numbers))  # the lower one, half way between two
        bits += (np.abs(numbers) == middles[bits]) & (bits % 2 == 1)
        return (bits | (numbers < 0) << 7).astype(np.uint8)
    return numbers.astype(storage(dtype))


def choices(dtype: str, op: str) -> tuple[int, ...]:
    """Numbers of which up to eight are reduced without rounding; nine may round, in whatever order."""
    unsigned = dtype.startswith("u")
    if dtype == "bool":
        return (0, 1)
    if op == "product":
        return (1, 2) if unsigned or dtype == "int8" else (1, -1, 2)
    if dtype in FLOAT8:
        return (-1, 0, 1)
    return tuple(range(0 if unsigned else -12, 13))


@cache
def pool(of: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).choice(of, HUGE + 101 * 100).astype(np.int16)


@cache
def encoded_pool(of: tuple[int, ...], dtype: str) -> np.ndarray:
    return encode(pool(of), dtype)


def place(dtype: str, count: int, seed: int) -> slice:
    """Every seed has its own part of the pool: drawing numbers anew takes longer than reducing them."""
    return slice(101 * seed, 101 * seed + count * (2 if dtype in PARTS else 1))


def operand(dtype: str, op: str, count: int, seed: int) -> np.ndarray:
    return encoded_pool(choices(dtype, op), PARTS.get(dtype, dtype))[place(dtype, count, seed)].copy()


UFUNCS = {
    **{"sum": np.add, "avg": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum},
    **{"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor},
}


def reduced(dtype: str, op: str, count: int, seeds: Iterable[int]) -> np.ndarray:
    """What the operands of these seeds must give, to the bit."""
    numbers = [pool(choices(dtype, op))[place(dtype, count, seed)] for seed in seeds]
    if dtype == "bool":
        op = {"sum": "bor", "avg": "bor", "max": "bor", "product": "band", "min": "band"}.get(op, op)
    out = numbers[0].copy()
    for other in numbers[1:]:
        UFUNCS[op](out, other, out=out)
    if op == "avg":
        accumulator = np.float64 if dtype in ("float64", "complex128") else np.float32
        average = out.astype(accumulator) / accumulator(len(numbers))
        return encode(np.trunc(average) if dtype in INTEGERS else average, dtype)
    return encode(out, dtype)


def assert_same(got: np.ndarray, expected: np.ndarray, what: str) -> None:
    if got.tobytes() != expected.tobytes():  # quicker than NumPy's own
        np.testing.assert_array_equal(got, expected, err_msg=what)
        raise AssertionError(f"{what}: the sign of a zero")


@dataclass(frozen=True)
class Case:
    count: int
    dtype: str
    op: str
    single_copy: bool = False
    window: int = 3
    chunk_bytes: int = CHUNK_BYTES


def reductions() -> Iterator[tuple[str, str]]:
    """All that are defined: those of the types and operators that come in every size first."""
    yield from product((*FLOATS, *INTEGERS, "bool"), ARITHMETIC)
    yield from product((*INTEGERS, "bool"), BITWISE)
    yield from product(FLOAT8, ARITHMETIC)
    yield from product(PARTS, ("sum", "avg"))


def in_every_size(dtype: str, op: str) -> bool:
    return op in ARITHMETIC and dtype not in FLOAT8 and dtype not in PARTS


def reduction_cases() -> Iterator[Case]:
    for dtype, op in reductions():
        for count in (0, 1, PRIME) if in_every_size(dtype, op) else (PRIME,):
            yield Case(count, dtype, op)
        if in_every_size(dtype, op):
            yield Case(LARGE, dtype, op, chunk_bytes=16 * CHUNK_BYTES)
    for dtype in ("float8_e4m3fn", "complex128"):  # the shortest element but the bytes', and the longest
        for count in (0, 1):
            yield Case(count, dtype, "sum")
        yield Case(LARGE, dtype, "sum", chunk_bytes=16 * CHUNK_BYTES)
    yield Case(7, "float32", "sum")
    for single_copy in (False, True):
        yield Case(HUGE, "float32", "sum", single_copy)


def reduction_cases_in_place_and_not() -> Iterator[tuple[Case, bool]]:
    """Both for PRIME where a type and operator come in every size; in turn for all else."""
    for number, case in enumerate(reduction_cases()):
        every_size = in_every_size(case.dtype, case.op)
        turn = number // 4 if every_size else number
        for in_place in (True, False) if every_size and case.count == PRIME else (turn % 2 == 0,):
            yield case, in_place


def movement_cases() -> Iterator[Case]:
    for count in (0, 1, 7, PRIME):
        yield Case(count, "uint8", "sum")
    yield Case(PRIME, "float64", "sum", single_copy=True)
    yield Case(HUGE, "int32", "sum", window=1)


def poison(count: int, dtype: str) -> np.ndarray:
    return np.full(count * (2 if dtype in PARTS else 1) * storage(dtype).itemsize, 0x5A, np.uint8).view(
        storage(dtype)
    )


def run(text: str, inputs: list[list[np.ndarray]], outputs: list[list[np.ndarray]], case: Case) -> None:
    def raw(blocks: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        return [[b.view(np.uint8) for b in rank] for rank in blocks]

    _core.rehearse(
        text, raw(inputs), raw(outputs), case.dtype, case.op, case.chunk_bytes, case.window, case.single_copy
    )


def sized(*arguments: object, prime: bool = False) -> ParameterSet:
    """Give a test these arguments, the last one the number of ranks; `prime`: five ones are not long."""
    ranks = arguments[-1]
    is_long = ranks in LONG_SIZES and not (prime and ranks == 5)
    return pytest.param(*arguments, marks=[pytest.mark.long] if is_long else [])


def every(collective: str, ranks: range = range(1, 10)) -> list[ParameterSet]:
    """Fewer sizes for what is made of other algorithms: C++ tests have them all. One on five ranks is quick."""
    return [
        sized(algorithm, n, prime=algorithm == "hierarchical_ring")
        for algorithm in _core.algorithms(collective)
        for few in [ranks[::4] if algorithm.startswith("hierarchical") else ()]
        for n in few or ranks
    ]


def hosts(n: int) -> list[int]:
    """Up to three hosts, in turn: alone, with as many ranks, and with more and fewer."""
    return [rank % 3 for rank in range(n)]


@pytest.mark.parametrize(("algorithm", "n"), every("all_reduce"))
def test_all_reduce(algorithm: str, n: int) -> None:
    text = _core.plan("all_reduce", algorithm, n, hosts=hosts(n))
    for case, in_place in reduction_cases_in_place_and_not():
        data = [operand(case.dtype, case.op, case.count, r) for r in range(n)]
        expected = reduced(case.dtype, case.op, case.count, range(n))
        inputs = [[d.copy()] for d in data]
        outputs = inputs if in_place else [[poison(case.count, case.dtype)] for _ in data]
        run(text, inputs, outputs, case)
        for rank in range(n):
            what = f"{case} rank {rank} in_place={in_place}"
            assert_same(outputs[rank][0], expected, what)
            if not in_place:
                assert_same(inputs[rank][0], data[rank], f"{what}: input was changed")


@pytest.mark.parametrize("shares", [[1, 1, 1, 1], [5, 1, 0, 2], [0, 0, 0, 1]])
@pytest.mark.parametrize("ranks_per_host", [1, 2])
def test_all_reduce_with_unequal_shares(shares: list[int], ranks_per_host: int) -> None:
    n = 4 * ranks_per_host
    algorithm = "direct" if ranks_per_host == 1 else "hierarchical_direct"
    text = _core.plan("all_reduce", algorithm, n, shares=shares, hosts=[r // ranks_per_host for r in range(n)])
    for count in (0, 1, 3, PRIME):
        case = Case(count, "float32", "sum")
        arrays = [[operand("float32", "sum", count, r)] for r in range(n)]
        run(text, arrays, arrays, case)
        for rank in range(n):
            assert_same(arrays[rank][0], reduced("float32", "sum", count, range(n)), f"{shares} {count}")


@pytest.mark.parametrize("shares", [[], [1, 2, 3, 4, 5, 6], [5, 1, 0, 2, 7, 0], [0, 0, 0, 0, 1, 1]])
@pytest.mark.parametrize("ranks_per_host", [1, 2])
def test_all_reduce_with_aggregators(shares: list[int], ranks_per_host: int) -> None:
    n = 4 * ranks_per_host
    algorithm = "direct" if ranks_per_host == 1 else "hierarchical_direct"
    hosts = [*(r // ranks_per_host for r in range(n)), 0, 9]  # one beside ranks, one alone
    text = _core.plan("all_reduce", algorithm, n, shares=shares, hosts=hosts, aggregators=2)
    assert f"ranks={n} aggregators=2 " in text
    for dtype, op in [("float32", "sum"), ("float16", "avg"), ("int32", "max"), ("uint8", "bxor")]:
        for count in (0, 1, 3, PRIME, LARGE):
            arrays = [[operand(dtype, op, count, r)] for r in range(n)]
            run(text, arrays, arrays, Case(count, dtype, op))
            for rank in range(n):
                assert_same(arrays[rank][0], reduced(dtype, op, count, range(n)), f"{shares} {count} {dtype}")


def test_aggregators_do_not_change_a_bit() -> None:
    values = [np.random.default_rng(r).standard_normal(PRIME).astype(np.float32) for r in range(5)]
    results = []
    for aggregators in range(4):
        arrays = [[v.copy()] for v in values]
        text = _core.plan("all_reduce", "direct", 5, aggregators=aggregators)
        run(text, arrays, arrays, Case(PRIME, "float32", "sum"))
        results += [a[0].tobytes() for a in arrays]
    assert len(set(results)) == 1


@pytest.mark.parametrize(("algorithm", "n"), every("reduce"))
def test_reduce(algorithm: str, n: int) -> None:
    for root in {0, n // 2, n - 1}:
        text = _core.plan("reduce", algorithm, n, root=root, hosts=hosts(n))
        for case in reduction_cases():
            data = [operand(case.dtype, case.op, case.count, r) for r in range(n)]
            inputs = [[d.copy()] for d in data]
            output = poison(case.count, case.dtype)
            run(text, inputs, [[output] if r == root else [] for r in range(n)], case)
            assert_same(output, reduced(case.dtype, case.op, case.count, range(n)), f"{case} root {root}")
            for rank in range(n):
                assert_same(inputs[rank][0], data[rank], f"{case}: input was changed")


@pytest.mark.parametrize(("algorithm", "n"), every("reduce_scatter"))
def test_reduce_scatter(algorithm: str, n: int) -> None:
    text = _core.plan("reduce_scatter", algorithm, n, hosts=hosts(n))
    for case, in_place in reduction_cases_in_place_and_not():
        inputs = [[operand(case.dtype, case.op, case.count, 10 * r + b) for b in range(n)] for r in range(n)]
        outputs = [[inputs[r][r] if in_place else poison(case.count, case.dtype)] for r in range(n)]
        run(text, inputs, outputs, case)
        for rank in range(n):
            expected = reduced(case.dtype, case.op, case.count, [10 * r + rank for r in range(n)])
            assert_same(outputs[rank][0], expected, f"{case} rank {rank} in_place={in_place}")


@pytest.mark.parametrize(("algorithm", "n"), every("all_gather"))
def test_all_gather(algorithm: str, n: int) -> None:
    text = _core.plan("all_gather", algorithm, n, hosts=hosts(n))
    for case in movement_cases():
        for uneven in (False, True):
            counts = [case.count + (7 * r if uneven else 0) for r in range(n)]
            data = [operand(case.dtype, "sum", counts[r], r) for r in range(n)]
            outputs = [[poison(c, case.dtype) for c in counts] for _ in range(n)]
            run(text, [[d.copy()] for d in data], outputs, case)
            for rank in range(n):
                for owner in range(n):
                    assert_same(outputs[rank][owner], data[owner], str(case))


@pytest.mark.parametrize(("algorithm", "n"), every("broadcast"))
def test_broadcast(algorithm: str, n: int) -> None:
    for root in {0, n // 2, n - 1}:
        text = _core.plan("broadcast", algorithm, n, root=root, hosts=hosts(n))
        for case in movement_cases():
            data = operand(case.dtype, "sum", case.count, 1)
            outputs = [[poison(case.count, case.dtype)] for _ in range(n)]
            run(text, [[data.copy()] if r == root else [] for r in range(n)], outputs, case)
            for rank in range(n):
                assert_same(outputs[rank][0], data, f"{case} root {root}")


@pytest.mark.parametrize(("algorithm", "n"), every("all_to_all"))
def test_all_to_all(algorithm: str, n: int) -> None:
    text = _core.plan("all_to_all", algorithm, n)
    for case in movement_cases():
        for uneven in (False, True):
            count = [[case.count + (5 * s + 3 * d if uneven else 0) for d in range(n)] for s in range(n)]
            data = [[operand(case.dtype, "sum", count[s][d], 9 * s + d) for d in range(n)] for s in range(n)]
            outputs = [[poison(count[s][d], case.dtype) for s in range(n)] for d in range(n)]
            run(text, data, outputs, case)
            for d in range(n):
                for s in range(n):
                    assert_same(outputs[d][s], data[s][d], f"{case} {s}->{d}")


@pytest.mark.parametrize("n", [sized(n) for n in range(1, 10)])
def test_gather_and_scatter(n: int) -> None:
    for root in {0, n // 2, n - 1}:
        for case in movement_cases():
            blocks = [operand(case.dtype, "sum", case.count, r) for r in range(n)]
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
                assert_same(gathered[rank], blocks[rank], str(case))
                assert_same(scattered[rank][0], blocks[rank], str(case))


def test_half_precision_averages_do_not_overflow() -> None:
    for algorithm in ("direct", "gather_all"):
        arrays = [[np.full(100, 40000, np.float16)] for _ in range(4)]
        run(_core.plan("all_reduce", algorithm, 4), arrays, arrays, Case(100, "float16", "avg"))
        for rank in range(4):
            np.testing.assert_array_equal(arrays[rank][0], np.full(100, 40000, np.float16))


def test_latency_counts_by_the_message_after_another() -> None:
    # The most that can be between two messages of one rank: a ring waits 2(n-1) times, doubling log2 n times.
    delay_s, ranks = 0.02, 4
    took = {}
    for algorithm in ("ring", "doubling"):
        arrays = [[np.full(8, rank, np.float32)] for rank in range(ranks)]
        begun = time.monotonic()
        text = _core.plan("all_reduce", algorithm, ranks)
        _core.rehearse(text, arrays, arrays, "float32", delay_s=delay_s)
        took[algorithm] = time.monotonic() - begun
        for rank in range(ranks):
            np.testing.assert_array_equal(arrays[rank][0], np.full(8, 6, np.float32))
    assert took["ring"] >= 6 * delay_s
    assert took["doubling"] >= 2 * delay_s


def test_wrong_calls_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="no algorithm"):
        _core.plan("all_reduce", "carousel", 4)
    with pytest.raises(ValueError, match="no collective"):
        _core.plan("all_reduse", "ring", 4)
    with pytest.raises(ValueError, match="3 hosts for 4 ranks"):
        _core.plan("all_reduce", "ring", 4, hosts=[0, 0, 1])
    with pytest.raises(ValueError, match="r1 has host -1"):
        _core.plan("all_reduce", "ring", 2, hosts=[0, -1])
    with pytest.raises(ValueError, match="no work for aggregators"):
        _core.plan("all_reduce", "ring", 2, aggregators=1)
    with pytest.raises(ValueError, match="2 shares for 2 ranks and 1 aggregator"):
        _core.plan("all_reduce", "direct", 2, shares=[1, 1], aggregators=1)
    text = _core.plan("all_reduce", "ring", 2)
    with pytest.raises(ValueError, match="2 ranks"):
        _core.rehearse(text, [], [], "float32")
    one, two = np.zeros(1, np.float32), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="rank 0: vector: 8 and 4 bytes, but they must be equal"):
        _core.rehearse(text, [[two], [two]], [[one], [one]], "float32")
    with pytest.raises(ValueError, match="bxor is not defined for float32, only sum"):
        _core.rehearse(text, [], [], "float32", "bxor")
    with pytest.raises(ValueError, match="delay_s must lie between 0 and 10"):
        _core.rehearse(text, [], [], "float32", delay_s=-1.0)
    with pytest.raises(ValueError, match="cannot exchange messages with itself"):
        _core.verify(text.replace("-> r1", "-> r0"))
