# SPDX-License-Identifier: Apache-2.0
"""What is measured: an operation on buffers of one size, dtype and operator; and how a command line names them."""

import re
from dataclasses import dataclass

from braid import _core
from braid._bench.collectives import COLLECTIVES, Collective


class UsageError(Exception):
    """A command line that makes no sense; one line that says what to do instead."""


@dataclass(frozen=True)
class Workload:
    """One size of one collective, as every contestant's ranks are asked to run it."""

    collective: str
    dtype: str
    op: str
    count: int  # elements of the larger of a rank's input and output
    in_place: bool
    cold: bool = False  # every call on memory not used before, with empty caches

    @property
    def kind(self) -> Collective:
        """What is known of the collective."""
        return COLLECTIVES[self.collective]

    @property
    def bytes(self) -> int:
        """Size of the larger of a rank's input and output."""
        return self.count * itemsize(self.dtype)


def itemsize(dtype: str) -> int:
    """Return the bytes of one element."""
    if dtype.startswith("float8") or dtype == "bool":
        return 1
    return int(re.sub(r"^\D+", "", dtype)) // 8


def workload(
    collective: str, dtype: str, op: str, size: int, ranks: int, in_place: bool | None, cold: bool
) -> Workload:
    """Make the workload of about `size` bytes: rounded up to whole elements, and to whole blocks where there are.

    Raises:
        UsageError: the operator or the placement does not fit the collective.
    """
    kind = COLLECTIVES[collective]
    if in_place is None:
        in_place = kind.in_place
    elif in_place != kind.in_place and not kind.both_ways:
        only = "in place" if kind.in_place else "out of place"
        raise UsageError(f"{collective} is measured {only} only")
    count = 0 if collective == "barrier" else -(-size // itemsize(dtype))
    if kind.blocks_in or kind.blocks_out:
        count = -(-count // ranks) * ranks
    return Workload(collective, dtype, op if kind.reduces else "", count, in_place, cold)


def check_op(dtype: str, op: str) -> str:
    """Return the core's name of an operator; UsageError, with what there is, for an unknown or senseless one."""
    op = {"prod": "product", "mean": "avg"}.get(op.lower(), op.lower())
    if op not in _core.reduce_ops():
        raise UsageError(f"--op: unknown operator {op!r}, expected one of {', '.join(_core.reduce_ops())}")
    floats = dtype.startswith(("float", "bfloat", "complex"))
    if op in ("band", "bor", "bxor") and floats:
        raise UsageError(f"--op {op} needs a dtype of whole numbers, not {dtype}")
    if op in ("product", "min", "max") and dtype.startswith("complex"):
        raise UsageError(f"--op {op} is not measured on {dtype}: sum or avg is")
    return op


def check_dtype(dtype: str) -> str:
    """Return the core's name of a dtype; UsageError, with what there is, for an unknown one."""
    short = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "float": "float32",
             "double": "float64", "half": "float16"}  # fmt: skip
    dtype = short.get(dtype.lower(), dtype.lower())
    if dtype not in _core.dtypes():
        raise UsageError(f"--dtype: unknown dtype {dtype!r}, expected one of {', '.join(_core.dtypes())}")
    return dtype


_SIZE = re.compile(r"(\d+)\s*([kmg]?)(i?b)?", re.IGNORECASE)


def parse_sizes(text: str) -> list[int]:
    """Return the sizes in bytes that "8:64M" (doubling), "8:64M:4" (times four) or "8,1K,3000" name, as given.

    K, M and G are powers of 1024. Raises UsageError.
    """
    sizes: list[int] = []
    for part in text.split(","):
        ends = part.split(":")
        if len(ends) == 1:
            sizes.append(_size(part))
        elif len(ends) in (2, 3):
            sizes += _range(part, _size(ends[0]), _size(ends[1]), ends[2] if len(ends) == 3 else "2")
        else:
            raise UsageError(f"--sizes: {part!r} has too many colons, expected FROM:TO or FROM:TO:FACTOR")
    return list(dict.fromkeys(sizes))


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"--sizes: {text.strip()!r} is not a size, expected something like 8, 64K, 1M or 8:64M")
    return int(match[1]) << (10 * " kmg".index((match[2] or " ").lower()))


def _range(part: str, low: int, high: int, factor_text: str) -> list[int]:
    factor = int(factor_text) if factor_text.strip().isdigit() else 0
    if factor < 2:
        raise UsageError(f"--sizes: {part!r} grows by {factor_text!r}, expected a whole number of at least 2")
    if not 0 < low <= high:
        raise UsageError(f"--sizes: {part!r} does not go from a size above 0 up to a larger one")
    sizes = []
    while low < high:
        sizes.append(low)
        low *= factor
    return [*sizes, high]
