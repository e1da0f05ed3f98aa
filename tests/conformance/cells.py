# SPDX-License-Identifier: Apache-2.0
"""The operations, dtypes and reductions of docs/conformance.md, and what is right for each of them."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _make_nccl_premul_sum

RANKS = 3
COUNT = 8  # elements of a rank's part
FACTOR = 2.0  # of PREMUL_SUM

# The heading in the page -> the dtype.
DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "bool": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
REDUCTIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
# SUM stays a bool, as in NCCL, and so does its average, as braid documents it (csrc/reduce/reduce.h).
_ON_BOOL = {
    "SUM": any, "AVG": any, "PRODUCT": all, "MIN": all, "MAX": any,
    "BAND": all, "BOR": any, "BXOR": lambda bits: sum(bits) % 2 == 1,
}  # fmt: skip


class WrongError(AssertionError):
    """An operation that reported success gave something else than it should."""


def part_of(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return what a rank contributes: small numbers that every dtype can hold, no two ranks alike."""
    values = [(3 * rank + 2 * i) % 5 + 1 for i in range(count)]
    if dtype == torch.bool:
        return torch.tensor([value % 2 == 1 for value in values])
    if dtype.is_complex:
        return torch.tensor([complex(value, 2 - value) for value in values], dtype=dtype)
    # Sums, halves and signs where there are any.
    scale = 0.5 if dtype.is_floating_point else 1.0
    sign = -1.0 if (dtype.is_signed and rank == 1) else 1.0
    return torch.tensor([sign * scale * value for value in values], dtype=torch.float64).to(dtype)


def reference(reduction: str, parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the exact result, in float64, complex128, int64 or bool; None where the reduction means nothing."""
    dtype = parts[0].dtype
    if dtype == torch.bool:
        function = _ON_BOOL.get(reduction)
        columns = zip(*(part.tolist() for part in parts), strict=True)
        return None if function is None else torch.tensor([bool(function(column)) for column in columns])
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    stack = torch.stack([part.to(wide) for part in parts])
    if reduction in ("BAND", "BOR", "BXOR"):
        bitwise = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[reduction]
        return reduce(bitwise, stack) if wide == torch.int64 else None
    if reduction in ("MIN", "MAX"):
        return None if wide.is_complex else (stack.amin(0) if reduction == "MIN" else stack.amax(0))
    total = stack.prod(0) if reduction == "PRODUCT" else stack.sum(0)
    if reduction == "PREMUL_SUM":
        return total * FACTOR if wide != torch.int64 else total * int(FACTOR)
    if reduction == "AVG":
        # An integer's average is its quotient without the remainder, as NCCL has it.
        return total / len(parts) if wide != torch.int64 else torch.div(total, len(parts), rounding_mode="trunc")
    return total


def check(got: torch.Tensor, exact: torch.Tensor | None, what: str) -> None:
    """Compare a result with the exact one; a floating-point result may be one unit in the last place off."""
    if exact is None:
        raise WrongError(f"{what} means nothing for {got.dtype}, yet it gave something")
    if got.dtype == torch.bool and got.contiguous().view(torch.uint8).max() > 1:
        raise WrongError(f"{what}: neither true nor false")
    wide = got.to(exact.dtype)
    room = (
        torch.finfo(got.dtype).eps * exact.abs() if got.dtype.is_floating_point or got.dtype.is_complex else None
    )
    right = torch.equal(wide, exact) if room is None else bool(((wide - exact).abs() <= room).all())
    if not right:
        raise WrongError(f"{what}: {got.tolist()} instead of {exact.tolist()}")


def same_bits(got: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    """Compare what was only moved."""
    if not torch.equal(got.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8)):
        raise WrongError(f"{what}: {got.tolist()} instead of {wanted.tolist()}")


def _op(reduction: str) -> Any:
    return _make_nccl_premul_sum(FACTOR) if reduction == "PREMUL_SUM" else getattr(dist.ReduceOp, reduction)


def _shares(rank: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return list(part_of(rank, RANKS * COUNT, dtype).chunk(RANKS))


def all_reduce(rank: int, dtype: torch.dtype, reduction: str) -> None:
    mine = part_of(rank, COUNT, dtype)
    dist.all_reduce(mine, _op(reduction))
    check(mine, reference(reduction, [part_of(r, COUNT, dtype) for r in range(RANKS)]), reduction)


def all_reduce_coalesced(rank: int, dtype: torch.dtype, reduction: str) -> None:
    mine = [part_of(rank, COUNT, dtype), part_of(rank, COUNT + 3, dtype)]
    dist.all_reduce_coalesced(mine, _op(reduction))
    for tensor in mine:
        parts = [part_of(r, tensor.numel(), dtype) for r in range(RANKS)]
        check(tensor, reference(reduction, parts), reduction)


def reduce_to_last(rank: int, dtype: torch.dtype, reduction: str) -> None:
    mine = part_of(rank, COUNT, dtype)
    dist.reduce(mine, RANKS - 1, _op(reduction))
    if rank == RANKS - 1:
        check(mine, reference(reduction, [part_of(r, COUNT, dtype) for r in range(RANKS)]), reduction)


def reduce_scatter(rank: int, dtype: torch.dtype, reduction: str) -> None:
    mine = torch.zeros(COUNT).to(dtype)
    dist.reduce_scatter(mine, _shares(rank, dtype), _op(reduction))
    check(mine, reference(reduction, [_shares(r, dtype)[rank] for r in range(RANKS)]), reduction)


def reduce_scatter_tensor(rank: int, dtype: torch.dtype, reduction: str) -> None:
    mine = torch.zeros(COUNT).to(dtype)
    dist.reduce_scatter_tensor(mine, part_of(rank, RANKS * COUNT, dtype), _op(reduction))
    check(mine, reference(reduction, [_shares(r, dtype)[rank] for r in range(RANKS)]), reduction)


REDUCING: dict[str, Callable[[int, torch.dtype, str], None]] = {
    "all_reduce": all_reduce,
    "reduce": reduce_to_last,
    "reduce_scatter_tensor": reduce_scatter_tensor,
}
# Their arithmetic is that of the operations above, so one reduction shows whether they work.
SUMMING: dict[str, Callable[[int, torch.dtype, str], None]] = {
    "all_reduce_coalesced": all_reduce_coalesced,
    "reduce_scatter": reduce_scatter,
}
