# SPDX-License-Identifier: Apache-2.0
"""The operations that hooks start: means over all ranks. Their futures write into the bucket's buffer."""

import platform
import zlib
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from braid._torch.lossy import is_on_several_hosts, lossy_all_reduce, predict_all_reduce
from braid.compression import codecs
from braid.compression.layout import Part

# torch 2.13 has new names for these two, and warns about the old ones.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

_LARGE = 1 << 20  # elements


def exact_mean(flat: Tensor, group: dist.ProcessGroup | None) -> "Future[list[Tensor]]":
    """Start the mean of a vector over all ranks, in place."""
    work = dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=group, async_op=True)
    assert work is not None
    return work.get_future()


def lossy_mean(
    flat: Tensor, codec: str, residual: Tensor, group: dist.ProcessGroup | None
) -> "Future[list[Tensor]]":
    """Start the mean with a codec. It adds the residual first, and stores the new error there."""
    work = lossy_all_reduce(flat, codec, residual=residual, group=group, async_op=True)
    assert work is not None
    return work.get_future()


def must_carry(wanted: Iterable[str], group: dist.ProcessGroup | None) -> None:
    """Check that a group carries codecs. Otherwise the first step after the warm-up would fail.

    Raises:
        RuntimeError: the group is not on braid; the message says what to do.
        ValueError: a codec of the core is wanted, and the algorithm that the user has forced cannot carry codecs.
    """
    named = [codec for codec in wanted if codec not in (codecs.EXACT, codecs.AUTO) and not codecs.low_rank(codec)]
    predict_all_reduce(_LARGE, named[0] if named else None, group)


def is_on_one_host(group: dist.ProcessGroup | None) -> bool:
    """Return true if all ranks are on one host. Then no codec is used: all is exact within a host."""
    return not is_on_several_hosts(group)


def most_of(number: int, group: dist.ProcessGroup | None) -> int:
    """Return the largest number of all ranks, and wait for it. All ranks of the group must call this."""
    word = torch.tensor([number], dtype=torch.int64)
    dist.all_reduce(word, op=dist.ReduceOp.MAX, group=group)
    return int(word)


def slowest_of(seconds: float, group: dist.ProcessGroup | None) -> float:
    """Return the longest time of all ranks, and wait for it. All ranks of the group must call this."""
    word = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(word, op=dist.ReduceOp.MAX, group=group)
    return float(word)


def compute_alike(group: dist.ProcessGroup | None) -> bool:
    """Return true if the same product of matrices has the same bits on all ranks. All ranks must call this.

    Libraries choose their kernels by processor and number of threads. The kernel decides the order of sums.
    """
    mine = "\n".join(
        (
            _processor(),
            torch.backends.cpu.get_cpu_capability(),
            torch.__config__.show(),
            str(torch.get_num_threads()),
        )
    )
    number = zlib.crc32(mine.encode())
    return most_of(number, group) == -most_of(-number, group)


def choice_of_first(choice: int, group: dist.ProcessGroup | None) -> int:
    """Return the choice of the group's first rank, and wait for it. All ranks of the group must call this."""
    word = torch.tensor([choice], dtype=torch.int64)
    dist.broadcast(word, dist.get_global_rank(group or dist.group.WORLD, 0), group=group)
    return int(word)


def plain(buffer: Tensor, group: dist.ProcessGroup | None) -> "Future[Tensor]":
    """Start the exact mean of a whole bucket, as DDP does without a hook."""
    return exact_mean(buffer, group).then(lambda done: done.value()[0])


def put_back(future: "Future[Any]", part: Part, flat: Tensor, buffer: Tensor) -> "Future[Any]":
    """Copy a part's values back to the buffer when the future is done."""
    if part.in_place:
        return future

    def put(done: "Future[Any]") -> Tensor:
        done.value()  # raises the operation's error
        part.put(flat, buffer)
        return buffer  # who waits for the future waits for the streams of its tensors alone

    return future.then(put)


def together(futures: "list[Future[Any]]", buffer: Tensor) -> "Future[Tensor]":
    """Return the future of the buffer. It is done when all parts are done.

    On a device, who waits for it waits for the streams of all parts. A future of collect_all() has no device, and
    waits for none of them.
    """
    if len(futures) == 1:
        return futures[0].then(lambda done: _after([done], buffer))
    if buffer.device.type == "cpu":
        return torch.futures.collect_all(futures).then(lambda done: _after(done.value(), buffer))
    all_came: Future[Tensor] = torch.futures.Future(devices=[buffer.device])
    still_to_come = count(len(futures) - 1, -1)

    def came(_: "Future[Any]") -> None:
        if next(still_to_come) == 0:
            for each in futures:
                with suppress(Exception):  # which _after() raises
                    each.wait()  # of this callback's stream, for those of the part
            all_came.set_result(buffer)

    for each in futures:
        each.add_done_callback(came)
    return all_came.then(lambda _: _after(futures, buffer))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told = [line for line in lines if line.startswith(("model", "vendor_id", "cpu family", "stepping", "flags"))]
    return "\n".join(sorted(set(told))) or f"{platform.machine()} {platform.processor()}"


def _after(parts: "list[Future[Any]]", buffer: Tensor) -> Tensor:
    for part in parts:
        part.value()  # raises the operation's error
    return buffer
