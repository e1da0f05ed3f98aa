# SPDX-License-Identifier: Apache-2.0
"""The operations that hooks start: means over all ranks, whose futures write into the bucket's buffer."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from braid._lossy import lossy_all_reduce, predict_all_reduce
from braid.compression.layout import Part

# torch 2.13 has new names for these, and warns of the old ones.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

_LARGE = 1 << 20  # elements, for which a codec makes a difference if it ever does


def exact_mean(flat: Tensor, group: dist.ProcessGroup | None) -> "Future[list[Tensor]]":
    """Start the mean of a vector over all ranks, in place."""
    work = dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=group, async_op=True)
    assert work is not None
    return work.get_future()


def lossy_mean(
    flat: Tensor, codec: str, residual: Tensor, group: dist.ProcessGroup | None
) -> "Future[list[Tensor]]":
    """Start the mean by a codec; what it leaves out goes into the residual, whose content it adds before."""
    work = lossy_all_reduce(flat, codec, residual=residual, group=group, async_op=True)
    assert work is not None
    return work.get_future()


def must_be_ours(group: dist.ProcessGroup | None) -> None:
    """Raise RuntimeError, which says what to do, if the group is not on braid."""
    predict_all_reduce(0, None, group)


def is_on_one_host(group: dist.ProcessGroup | None) -> bool:
    """Tell whether no codec would ever be used: within a host all is exact."""
    return predict_all_reduce(_LARGE, "sign", group) == predict_all_reduce(_LARGE, None, group)


def choice_of_first(choice: int, group: dist.ProcessGroup | None) -> int:
    """Return the choice of the group's first rank; waits for it. All ranks of the group must come."""
    word = torch.tensor([choice])
    dist.broadcast(word, dist.get_global_rank(group or dist.group.WORLD, 0), group=group)
    return int(word)


def plain(buffer: Tensor, group: dist.ProcessGroup | None) -> "Future[Tensor]":
    """Reduce a whole bucket as DDP itself would."""
    return exact_mean(buffer, group).then(lambda done: done.value()[0])


def put_back(future: "Future[Any]", part: Part, flat: Tensor, buffer: Tensor) -> "Future[Any]":
    """Bring a part's values back to the buffer when they are there."""
    if part.in_place:
        return future

    def put(done: "Future[Any]") -> None:
        done.value()  # raises what went wrong
        part.put(flat, buffer)

    return future.then(put)


def together(futures: "list[Future[Any]]", buffer: Tensor) -> "Future[Tensor]":
    """Return the future of the buffer, done when all its parts are."""
    if len(futures) == 1:
        return futures[0].then(lambda done: _after([done], buffer))
    return torch.futures.collect_all(futures).then(lambda done: _after(done.value(), buffer))


def _after(parts: "list[Future[Any]]", buffer: Tensor) -> Tensor:
    for part in parts:
        part.value()  # raises what went wrong
    return buffer
