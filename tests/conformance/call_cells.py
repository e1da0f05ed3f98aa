# SPDX-License-Identifier: Apache-2.0
"""More special cases of docs/conformance.md: ways to call, to wait and to fail."""

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional_collectives
from cells import COUNT, RANKS
from special_cells import case, right


@case
def coalesced_reductions(rank: int) -> None:
    """Coalescing manager: all_reduce"""
    tensors = [torch.full((COUNT + i,), 1.0 + i) for i in range(3)]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    right(all((tensor == RANKS * (1.0 + i)).all() for i, tensor in enumerate(tensors)), "another sum")


@case
def coalesced_gathers(rank: int) -> None:
    """Coalescing manager: all_gather_into_tensor"""
    outputs = [torch.zeros(RANKS * (COUNT + i)) for i in range(2)]
    with dist._coalescing_manager(device=torch.device("cpu")):
        for i, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, torch.full((COUNT + i,), 10.0 * i + rank))
    wanted = [torch.cat([torch.full((COUNT + i,), 10.0 * i + r) for r in range(RANKS)]) for i in range(2)]
    right(all(torch.equal(a, b) for a, b in zip(outputs, wanted, strict=True)), "another result")


@case
def coalesced_scatters(rank: int) -> None:
    """Coalescing manager: reduce_scatter_tensor"""
    outputs = [torch.zeros(COUNT + i) for i in range(2)]
    with dist._coalescing_manager(device=torch.device("cpu")):
        for i, output in enumerate(outputs):
            dist.reduce_scatter_tensor(output, torch.full((RANKS * (COUNT + i),), 1.0 + i))
    right(all((output == RANKS * (1.0 + i)).all() for i, output in enumerate(outputs)), "another sum")


@case
def coalesced_messages(rank: int) -> None:
    """batch_isend_irecv between all ranks"""
    got = [torch.zeros(COUNT) for _ in range(RANKS)]
    others = [other for other in range(RANKS) if other != rank]
    ops = [dist.P2POp(dist.isend, torch.full((COUNT,), 10.0 * rank + other), other) for other in others]
    ops += [dist.P2POp(dist.irecv, got[other], other) for other in others]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    right(all((got[other] == 10 * other + rank).all() for other in others), "another tensor")


@case
def any_source(rank: int) -> None:
    """recv from any rank, which it returns"""
    if rank != 0:
        dist.send(torch.full((COUNT,), float(rank)), 0)
        return
    senders = []
    for _ in range(RANKS - 1):
        got = torch.zeros(COUNT)
        senders.append(dist.recv(got))
        right((got == senders[-1]).all(), "the tensor is not of the rank that it names")
    right(sorted(senders) == list(range(1, RANKS)), "a sender is missing")


@case
def tags(rank: int) -> None:
    """Tags received in another order than sent"""
    if rank == 0:
        works = [dist.isend(torch.full((COUNT,), float(tag)), 1, tag=tag) for tag in (1, 2, 3)]
        for work in works:
            work.wait()
    elif rank == 1:
        for tag in (3, 1, 2):
            got = torch.zeros(COUNT)
            dist.recv(got, 0, tag=tag)
            right((got == tag).all(), "another message")


def _works(rank: int) -> dict[str, Callable[[], dist.Work]]:
    def blocks() -> list[torch.Tensor]:
        return [torch.ones(COUNT) for _ in range(RANKS)]

    return {
        "all_reduce": lambda: dist.all_reduce(torch.ones(COUNT), async_op=True),
        "broadcast": lambda: dist.broadcast(torch.ones(COUNT), 0, async_op=True),
        "reduce": lambda: dist.reduce(torch.ones(COUNT), 0, async_op=True),
        "all_gather": lambda: dist.all_gather(blocks(), torch.ones(COUNT), async_op=True),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(
            torch.ones(RANKS * COUNT), torch.ones(COUNT), async_op=True
        ),
        "gather": lambda: dist.gather(torch.ones(COUNT), blocks() if rank == 0 else None, async_op=True),
        "scatter": lambda: dist.scatter(torch.ones(COUNT), blocks() if rank == 0 else None, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter(torch.ones(COUNT), blocks(), async_op=True),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(
            torch.ones(COUNT), torch.ones(RANKS * COUNT), async_op=True
        ),
        "all_to_all_single": lambda: dist.all_to_all_single(
            torch.ones(RANKS * COUNT), torch.ones(RANKS * COUNT), async_op=True
        ),
        "barrier": lambda: dist.barrier(async_op=True),
    }


@case
def futures(rank: int) -> None:
    """get_future of every collective, with callback"""
    for name, start in _works(rank).items():
        called: list[int] = []
        start().get_future().then(lambda _, called=called: called.append(1)).wait()
        right(called, f"not of {name}")


@case
def overlapping(rank: int) -> None:
    """Many works, waited for last to first"""
    tensors = [torch.full((COUNT * (i + 1),), float(i)) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i in reversed(range(20)):
        works[i].wait()
        right((tensors[i] == RANKS * i).all(), "another sum")


@case
def monitored_barrier(rank: int) -> None:
    """monitored_barrier with all ranks"""
    dist.distributed_c10d._get_default_group().monitored_barrier(timedelta(seconds=5))


@case
def monitored_barrier_missing(rank: int) -> None:
    """monitored_barrier on rank 0 names a missing rank"""
    if rank == 1:
        return
    try:
        dist.distributed_c10d._get_default_group().monitored_barrier(timedelta(seconds=1))
    except RuntimeError as error:
        if rank == 0 and "ank 1" not in str(error):
            raise
    else:
        right(False, "it returns")


def _alive(rank: int) -> None:
    mine = torch.full((COUNT,), float(rank))
    try:
        dist.all_reduce(mine)
    except RuntimeError as error:
        right(False, f"the group is lost: {error}")
    right((mine == 3).all(), "the next sum is another")


@case
def alive_after_unknown(rank: int) -> None:
    """The group works after all ranks refused an operation"""
    try:
        dist.all_reduce(torch.ones(COUNT), dist.ReduceOp.BXOR)
    except (RuntimeError, TypeError, ValueError):
        _alive(rank)
    else:
        right(False, "BXOR of floats is not refused")


@case
def alive_after_wrong_shape(rank: int) -> None:
    """The group works after all ranks refused an output"""
    try:
        dist.all_gather_into_tensor(torch.ones(RANKS * COUNT + 1), torch.ones(COUNT))
    except (RuntimeError, TypeError, ValueError):
        _alive(rank)
    else:
        right(False, "it is not refused")


@case
def different_sizes(rank: int) -> None:
    """all_reduce of different sizes raises on all ranks"""
    try:
        dist.all_reduce(torch.ones(COUNT + rank))
    except (RuntimeError, TypeError, ValueError):
        return
    right(False, "it returns on some ranks")


@case
def different_operations(rank: int) -> None:
    """all_reduce beside all_gather raises on all ranks"""
    try:
        if rank == 0:
            dist.all_reduce(torch.ones(COUNT))
        else:
            dist.all_gather([torch.ones(COUNT) for _ in range(RANKS)], torch.ones(COUNT))
    except (RuntimeError, TypeError, ValueError):
        return
    right(False, "it returns on some ranks")


@case
def small_groups(rank: int) -> None:
    """Groups of one rank, of two"""
    for members in ([rank], [0, 2]):
        groups = [dist.new_group([r]) for r in range(RANKS)] if len(members) == 1 else [dist.new_group(members)]
        group = groups[rank if len(members) == 1 else 0]
        if rank in members:
            mine = torch.ones(COUNT)
            dist.all_reduce(mine, group=group)
            right((mine == len(members)).all(), "another sum")


@case
def object_collectives(rank: int) -> None:
    """all_gather_object, gather_object, broadcast_object_list, scatter_object_list"""
    thing = {"rank": rank, "text": "x" * rank}
    things = [{"rank": r, "text": "x" * r} for r in range(RANKS)]
    got: list[object] = [None] * RANKS
    dist.all_gather_object(got, thing)
    right(got == things, "all_gather_object")
    gathered: list[object] | None = [None] * RANKS if rank == 1 else None
    dist.gather_object(thing, gathered, dst=1)
    right(gathered == (things if rank == 1 else None), "gather_object")
    sent: list[object] = [thing]
    dist.broadcast_object_list(sent, src=2)
    right(sent == [things[2]], "broadcast_object_list")
    mine: list[object] = [None]
    dist.scatter_object_list(mine, things if rank == 0 else None, src=0)
    right(mine == [thing], "scatter_object_list")


@case
def functional(rank: int) -> None:
    """Functional collectives (torch.compile, DTensor)"""
    world = list(range(RANKS))
    total = functional_collectives.all_reduce(torch.ones(COUNT), "sum", world)
    right((total.wait() == RANKS).all(), "all_reduce")
    whole = functional_collectives.all_gather_tensor(torch.full((COUNT,), float(rank)), 0, world)
    right(torch.equal(whole.wait(), torch.arange(float(RANKS)).repeat_interleave(COUNT)), "all_gather_tensor")
    share = functional_collectives.reduce_scatter_tensor(torch.ones(RANKS * COUNT), "avg", 0, world)
    right((share.wait() == 1).all(), "reduce_scatter_tensor")
    both = functional_collectives.all_reduce_coalesced([torch.ones(COUNT), torch.ones(3)], "sum", world)
    right(all((tensor.wait() == RANKS).all() for tensor in both), "all_reduce_coalesced")


@case
def debug_detail(rank: int) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL"""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        group = dist.new_group(list(range(RANKS)))
        mine = torch.ones(COUNT)
        dist.all_reduce(mine, group=group)
        right((mine == RANKS).all(), "another sum")
        dist.barrier(group=group)
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)
