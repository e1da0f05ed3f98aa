# SPDX-License-Identifier: Apache-2.0
"""What each rank puts in, and what must come out: computed by torch, on one rank, without any communication."""

import torch

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
REDUCED = [*FLOATS, *SIGNED, *UNSIGNED, torch.bool]
MOVED = [*REDUCED, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]
OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX"]
SIZES = [0, 1, 7, 1000, 100_003]


def contribution(rank: int, count: int, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    """Return what `rank` puts in: small whole numbers, so that every sum is exact in every dtype."""
    numbers = (torch.arange(count) * 7 + rank * 5 + salt * 3) % 11
    if dtype == torch.bool:
        return numbers % 3 == 0
    if dtype in UNSIGNED:
        return (numbers % 6).to(dtype)
    if dtype.is_complex:
        return torch.complex((numbers - 5).double(), (numbers % 4).double()).to(dtype)
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return numbers.float().to(dtype)
    return (numbers % 7 - 3).to(dtype)


def reduction(op: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """Return the parts combined as braid documents it (csrc/reduce/reduce.h)."""
    dtype = parts[0].dtype
    if dtype == torch.bool:
        stacked = torch.stack(parts)
        return stacked.all(0) if op in ("PRODUCT", "MIN") else stacked.any(0)
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    stacked = torch.stack([part.to(wide) for part in parts])
    if op == "PRODUCT":
        return stacked.prod(0).to(dtype)
    if op == "MIN":
        return stacked.amin(0).to(dtype)
    if op == "MAX":
        return stacked.amax(0).to(dtype)
    total = stacked.sum(0)
    if op == "SUM":
        return total.to(dtype)
    if dtype.is_floating_point:
        return (total / len(parts)).to(dtype)
    return torch.div(total, len(parts), rounding_mode="trunc").to(dtype)


def same(actual: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    """Fail unless both have the same dtype, shape and bytes."""
    assert actual.dtype == wanted.dtype, f"{what}: {actual.dtype} instead of {wanted.dtype}"
    assert actual.shape == wanted.shape, f"{what}: {actual.shape} instead of {wanted.shape}"
    left = actual.contiguous().reshape(-1).view(torch.uint8)
    right = wanted.contiguous().reshape(-1).view(torch.uint8)
    if not torch.equal(left, right):
        where = (left != right).nonzero()[0].item() // actual.dtype.itemsize
        flat, flat_wanted = actual.reshape(-1), wanted.reshape(-1)
        raise AssertionError(f"{what}: element {where} is {flat[where]} instead of {flat_wanted[where]}")


def close(actual: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    """Fail unless equal; a floating-point average may be off by the last digit."""
    if not actual.dtype.is_floating_point:
        return same(actual, wanted, what)
    step = torch.finfo(actual.dtype).eps
    torch.testing.assert_close(actual, wanted, rtol=step, atol=0, msg=lambda text: f"{what}: {text}")
    return None
