# SPDX-License-Identifier: Apache-2.0
"""Turns the arguments of a collective into a Call on memory, or raises an error that says what is wrong.

The functions are pure: wrong arguments never touch a group. As in MPI, `out` of a block operation may have any
shape with the right number of elements. Blocks follow each other by rank, in the C order of elements.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braid import _core
from braid._array.arrays import Array, Output, dtype_name, fresh, is_writable, source, target, view
from braid._array.numbers import whole
from braid._array.staged import Staged, land

Counts = tuple[int, ...]

_ALIASES = {"prod": "product"}
_OPS = {**{name: name for name in _core.reduce_ops()}, **_ALIASES}


@dataclass(slots=True)
class Call:
    """A collective that is ready to start: the arguments of the core's run() and start(), and the result."""

    collective: str
    dtype: str = "uint8"
    op: str = "sum"
    root: int = 0
    source: Array | None = None
    source_counts: Counts = ()
    output: Output | None = None
    output_counts: Counts = ()

    def arguments(self) -> tuple[str, str, str, int, Array | None, Counts, Array | None, Counts]:
        """Return the arguments of the core's run() and start(). The values of the source have landed."""
        land(self.source)
        memory = None if self.output is None else self.output.memory
        return (
            *(self.collective, self.dtype, self.op, self.root),
            *(self.source, self.source_counts, memory, self.output_counts),
        )


def op_name(name: str) -> str:
    """Return the core's name of a reduction. An unknown name raises ValueError, which lists the known names."""
    try:
        return _OPS[name]
    except (KeyError, TypeError):
        said = repr(name) if isinstance(name, str) else f"of type {type(name).__name__}"
        raise ValueError(f"unknown reduction {said}; there are {', '.join(sorted(_OPS))}") from None


def _same_dtype(out: Array, x: Array, call: str) -> None:
    if out.dtype != x.dtype:
        raise ValueError(f"{call}: out has dtype {out.dtype}, but x has {x.dtype}")


def _elements(array: Array, expected: int, what: str) -> None:
    if array.size != expected:
        raise ValueError(f"{what} has {array.size} elements, expected {expected}")


def _equal(total: int, ranks: int, what: str) -> Counts:
    if total % ranks:
        raise ValueError(f"{what} has {total} elements, not a multiple of {ranks} ranks; give counts")
    return (total // ranks,) * ranks


def _counted(counts: Sequence[int], ranks: int, what: str) -> Counts:
    if not isinstance(counts, Iterable):
        raise TypeError(f"{what} must be a sequence of whole numbers, not {type(counts).__name__}")
    checked = tuple(whole(count, what) for count in counts)
    if len(checked) != ranks or any(count < 0 for count in checked):
        raise ValueError(f"{what}: expected {ranks} numbers of elements, one per rank, got {list(counts)}")
    return checked


def _rooted(root: Any, kind: str, place: tuple[int, int]) -> tuple[int, bool]:
    """Return the root's rank, and whether it is this one."""
    rank, ranks = place
    number = whole(root, f"{kind}: root")
    if not 0 <= number < ranks:
        raise ValueError(f"{kind}: root {number} is not in a group of {ranks}")
    return number, number == rank


def all_reduce(x: Any, op: str, out: Any) -> Call:
    """Input: a vector per rank. Output: the combined vector on all ranks."""
    name = op_name(op)
    if out is None:
        output = target(x, "all_reduce: x", filled=True)
        memory = output.memory
    else:
        memory, output = source(x, "all_reduce: x"), target(out, "all_reduce: out")
        _same_shape(output.memory, memory, "all_reduce")
    return Call("all_reduce", dtype_name(memory.dtype, "all_reduce: x"), name, 0, memory, (), output)


def lossy_all_reduce(x: Any, residual: Any) -> tuple[Output, Output | None]:
    """Return the vector, which is input and output, and the residual, which is changed in place."""
    output = target(x, "lossy_all_reduce: x", filled=True)
    if residual is None:
        return output, None
    kept = target(residual, "lossy_all_reduce: residual", filled=True)
    if kept.home is not None and not isinstance(kept.memory, Staged):
        raise ValueError("lossy_all_reduce: residual must be C-contiguous: it is changed where it lies")
    if kept.memory.dtype != np.float32:
        raise ValueError(f"lossy_all_reduce: residual has dtype {kept.memory.dtype}, expected float32")
    _elements(kept.memory, output.memory.size, "lossy_all_reduce: residual")
    return output, kept


def _same_shape(out: Array, x: Array, call: str) -> None:
    _same_dtype(out, x, call)
    if out.shape != x.shape:
        raise ValueError(f"{call}: out has shape {out.shape}, but x has {x.shape}")


def reduce(x: Any, op: str, root: int, out: Any, place: tuple[int, int]) -> Call:
    """Input: a vector per rank. Output: the combined vector on the root."""
    root, is_root = _rooted(root, "reduce", place)
    name = op_name(op)
    if not is_root:
        memory, output = source(x, "reduce: x"), None
    elif out is None:
        output = target(x, "reduce: x", filled=True)
        memory = output.memory
    else:
        memory, output = source(x, "reduce: x"), target(out, "reduce: out")
        _same_shape(output.memory, memory, "reduce")
    return Call("reduce", dtype_name(memory.dtype, "reduce: x"), name, root, memory, (), output)


def broadcast(x: Any, root: int, place: tuple[int, int]) -> Call:
    """Output: the root's vector on all ranks."""
    root, is_root = _rooted(root, "broadcast", place)
    if not is_root:
        output = target(x, "broadcast: x")
        return Call("broadcast", dtype_name(output.memory.dtype, "broadcast: x"), "sum", root, output=output)
    array = view(x, "broadcast: x")
    # The root only reads it, but the core needs a writable vector on every rank.
    if not isinstance(array, Staged) and not (array.flags.c_contiguous and is_writable(array)):
        array = array.copy(order="C")
    return Call("broadcast", dtype_name(array.dtype, "broadcast: x"), "sum", root, array, (), Output(x, array))


def all_gather(x: Any, out: Any, counts: Sequence[int] | None, place: tuple[int, int]) -> Call:
    """Input: a block per rank. Output: all blocks on all ranks."""
    return _gather("all_gather", x, out, counts, place)


def gather(x: Any, root: int, out: Any, counts: Sequence[int] | None, place: tuple[int, int]) -> Call:
    """Input: a block per rank. Output: all blocks on the root."""
    root, is_root = _rooted(root, "gather", place)
    if is_root:
        call = _gather("gather", x, out, counts, place)
        call.root = root
        return call
    memory = source(x, "gather: x")
    if counts is not None:
        _elements(memory, _counted(counts, place[1], "gather: counts")[place[0]], "gather: x")
    return Call("gather", dtype_name(memory.dtype, "gather: x"), "sum", root, memory)


def _gather(kind: str, x: Any, out: Any, counts: Sequence[int] | None, place: tuple[int, int]) -> Call:
    rank, ranks = place
    memory = source(x, f"{kind}: x")
    blocks = (memory.size,) * ranks if counts is None else _counted(counts, ranks, f"{kind}: counts")
    _elements(memory, blocks[rank], f"{kind}: x")
    if out is not None:
        output = target(out, f"{kind}: out")
        _same_dtype(output.memory, memory, kind)
        _elements(output.memory, sum(blocks), f"{kind}: out")
    else:
        output = fresh((ranks, *memory.shape) if counts is None else sum(blocks), x, memory, kind)
    return Call(kind, dtype_name(memory.dtype, f"{kind}: x"), "sum", 0, memory, (), output, blocks)


def reduce_scatter(x: Any, op: str, out: Any, counts: Sequence[int] | None, place: tuple[int, int]) -> Call:
    """Input: a block for every rank. Output: the combined block for this rank."""
    call = _scatter("reduce_scatter", x, out, counts, place)
    call.op = op_name(op)
    return call


def scatter(x: Any, root: int, out: Any, counts: Sequence[int] | None, place: tuple[int, int]) -> Call:
    """Input: a block for every rank, on the root. Output: each rank's own block."""
    root, is_root = _rooted(root, "scatter", place)
    rank, ranks = place
    if is_root:
        call = _scatter("scatter", x, out, counts, place)
        call.root = root
        return call
    if out is None:
        raise ValueError("scatter: ranks other than the root must give out, the array for their block")
    output = target(out, "scatter: out")
    if counts is not None:
        _elements(output.memory, _counted(counts, ranks, "scatter: counts")[rank], "scatter: out")
    return Call("scatter", dtype_name(output.memory.dtype, "scatter: out"), "sum", root, output=output)


def _scatter(kind: str, x: Any, out: Any, counts: Sequence[int] | None, place: tuple[int, int]) -> Call:
    rank, ranks = place
    memory = source(x, f"{kind}: x")
    if counts is None:
        blocks = _equal(memory.size, ranks, f"{kind}: x")
    else:
        blocks = _counted(counts, ranks, f"{kind}: counts")
        _elements(memory, sum(blocks), f"{kind}: x")
    if out is not None:
        output = target(out, f"{kind}: out")
        _same_dtype(output.memory, memory, kind)
        _elements(output.memory, blocks[rank], f"{kind}: out")
    elif counts is None and memory.shape[:1] == (ranks,):
        output = fresh(memory.shape[1:], x, memory, kind)
    else:
        output = fresh(blocks[rank], x, memory, kind)
    return Call(kind, dtype_name(memory.dtype, f"{kind}: x"), "sum", 0, memory, blocks, output)


def all_to_all(
    x: Any, out: Any, send_counts: Sequence[int] | None, recv_counts: Sequence[int] | None, ranks: int
) -> Call:
    """Input: a block for every rank. Output: the blocks that all ranks have for this rank."""
    memory = source(x, "all_to_all: x")
    if (send_counts is None) != (recv_counts is None):
        raise ValueError("all_to_all: give both send_counts and recv_counts, or none")
    if send_counts is None or recv_counts is None:
        leaving = coming = _equal(memory.size, ranks, "all_to_all: x")
    else:
        leaving = _counted(send_counts, ranks, "all_to_all: send_counts")
        coming = _counted(recv_counts, ranks, "all_to_all: recv_counts")
        _elements(memory, sum(leaving), "all_to_all: x")
    if out is not None:
        output = target(out, "all_to_all: out")
        _same_dtype(output.memory, memory, "all_to_all")
        _elements(output.memory, sum(coming), "all_to_all: out")
    else:
        output = fresh(memory.shape if recv_counts is None else sum(coming), x, memory, "all_to_all")
    return Call("all_to_all", dtype_name(memory.dtype, "all_to_all: x"), "sum", 0, memory, leaving, output, coming)
