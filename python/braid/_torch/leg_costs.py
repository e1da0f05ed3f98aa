# SPDX-License-Identifier: Apache-2.0
"""Whether a local leg pays: what the cost model says of operations by the leg, and of those without it.

The backend within hosts is measured, because no model knows it. All else is what ``explain()`` predicts.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

CHUNK_BYTES = 4 << 20  # as in csrc/c10d/leg_calls.cc
# Each stands for all sizes down to the one before, and the last one for larger ones, too.
SIZES = tuple(4**power for power in range(4, 15))
KINDS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
_SMALL_BYTES = 1 << 10
_TIMES = 3


@dataclass(frozen=True)
class Line:
    """What an operation of n bytes takes: ``latency_s + n * s_per_byte``."""

    latency_s: float
    s_per_byte: float

    def of(self, nbytes: float) -> float:
        """Return the seconds of an operation of so many bytes."""
        return self.latency_s + nbytes * self.s_per_byte


@dataclass(frozen=True)
class Within:
    """The backend within a host, for `ranks` ranks. Bytes are those of all blocks together."""

    ranks: int
    all_gather: Line
    reduce_scatter: Line
    broadcast: Line


@dataclass(frozen=True)
class Between:
    """The group of one place on all hosts: seconds of a collective of so many bytes, and of a device's copies."""

    hosts: int
    network_s: Callable[[str, int], float]
    copies_s: Callable[[str, int], float]


@dataclass(frozen=True)
class Row:
    """Operations of up to so many bytes: the seconds without the leg, and with it."""

    up_to_bytes: int
    flat_s: float
    leg_s: float


def measured(local: Any, device: str) -> Within:
    """Time the backend within this host on the current device. All ranks of the host must call this.

    Raises:
        Exception: whatever the backend raises.
    """
    import torch
    from torch.distributed.distributed_c10d import AllgatherOptions, BroadcastOptions, ReduceScatterOptions

    ranks = local.size()
    lines = {}
    for kind in ("all_gather", "reduce_scatter", "broadcast"):
        seconds = {}
        for nbytes in (_SMALL_BYTES, CHUNK_BYTES):
            share = torch.zeros(max(1, nbytes // 4 // ranks), dtype=torch.float32, device=device)
            whole = torch.zeros(share.numel() * ranks, dtype=torch.float32, device=device)
            calls: dict[str, Callable[[], Any]] = {
                "all_gather": partial(local._allgather_base, whole, share, AllgatherOptions()),
                "reduce_scatter": partial(local._reduce_scatter_base, share, whole, ReduceScatterOptions()),
                "broadcast": partial(local.broadcast, [whole], BroadcastOptions()),
            }
            seconds[nbytes] = min(_seconds(calls[kind], device) for _ in range(_TIMES + 1))
        small, large = seconds[_SMALL_BYTES], seconds[CHUNK_BYTES]
        lines[kind] = Line(small, max(large - small, 0) / (CHUNK_BYTES - _SMALL_BYTES))
    return Within(ranks, **lines)


def _seconds(call: Callable[[], Any], device: str) -> float:
    import torch

    def finish() -> None:
        if device != "cpu":
            torch.accelerator.synchronize()

    finish()
    began = time.perf_counter()
    call().wait()
    finish()
    return time.perf_counter() - began


def leg_s(kind: str, nbytes: int, within: Within, between: Between | None) -> float:
    """Return what an operation by the leg takes, in seconds.

    Args:
        kind: one of KINDS.
        nbytes: of the vector, or of all blocks together.
        within: the backend within a host.
        between: the group between hosts; None on one host.
    """

    def crosses(part: int, sharing: int) -> float:
        # The places of a host share its network, but each device has its own copies.
        if between is None:
            return 0
        return between.network_s(kind, part) + between.copies_s(kind, max(1, part // sharing))

    if kind in ("all_gather", "reduce_scatter"):
        hosts = between.hosts if between else 1
        line = within.all_gather if kind == "all_gather" else within.reduce_scatter
        return hosts * line.of(nbytes / hosts) + crosses(nbytes, within.ranks)
    chunk = min(nbytes, CHUNK_BYTES)
    chunks = -(-nbytes // chunk)
    if kind == "all_reduce":
        inside = within.reduce_scatter.of(chunk) + within.all_gather.of(chunk)
        outside = crosses(chunk, within.ranks)
    else:
        inside, outside = within.broadcast.of(chunk), crosses(chunk, 1)
    return chunks * max(inside, outside) + min(inside, outside)


def table(backend: Any, across: Any, within: Within, device: str) -> dict[str, list[Row]]:
    """Return, for each kind of operation, what the cost model says of each size.

    Args:
        backend: the group of all ranks.
        across: the group of this place on all hosts; None on one host.
        within: the backend within hosts.
        device: the type of device whose tensors the leg carries.
    """
    between = None
    if across is not None:
        between = Between(
            across.size(),
            lambda kind, nbytes: across.explain(kind, nbytes)["predicted_s"],
            lambda kind, nbytes: across.explain(kind, nbytes, device=device)["copies_s"],
        )
    rows: dict[str, list[Row]] = {}
    for kind, size in itertools.product(KINDS, SIZES):
        flat = backend.explain(kind, size, device=device)["predicted_s"]
        rows.setdefault(kind, []).append(Row(size, flat, leg_s(kind, size, within, between)))
    return rows


def as_tuples(rows: dict[str, list[Row]]) -> dict[str, list[tuple[int, float, float]]]:
    """Return the table as the adapter takes it, and as JSON can carry it."""
    return {kind: [(row.up_to_bytes, row.flat_s, row.leg_s) for row in of_kind] for kind, of_kind in rows.items()}
