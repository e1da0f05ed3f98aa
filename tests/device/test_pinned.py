# SPDX-License-Identifier: Apache-2.0
"""The pinned memory of a group is bounded, and nobody waits for ever for it."""

import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import Rank, run_ranks
from waiting import eventually

pytestmark = [pytest.mark.multiprocess]

MIB = 1 << 20
LIMIT = {"BRAID_PINNED_BYTES": str(2 * MIB), "BRAID_PIECE_BYTES": str(MIB // 4)}


def start(rank: Rank) -> Any:
    """Load the device, then make the group."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulated

    sim = simulated.load()
    rank.join()
    return sim


def released(sim: Any) -> None:
    """Wait until the courier has let go of all pinned memory."""
    eventually(lambda: sim.pinned_bytes() == 0, lambda: f"the end of {sim.pinned_bytes()} pinned bytes", 20)


def many(rank: Rank) -> None:
    """Twelve operations that need six times the limit, under way at once, while the device is late."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    for delays in ({}, {"on_pool": 3000}, {"on_default": 3000}):
        sim.set_delays(**delays)
        sim.take_peak_pinned_bytes()
        tensors = [torch.full((MIB // 4,), float(each), device="sim") for each in range(12)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            assert work is not None
            work.wait()
        for each, tensor in enumerate(tensors):
            assert tensor.cpu().eq(each * rank.size).all(), f"sum {each}"
        assert 0 < sim.take_peak_pinned_bytes() <= 2 * MIB
        released(sim)


def test_operations_wait_for_memory() -> None:
    """No more is pinned than the setting allows."""
    run_ranks(many, 2, join=False, environment=LIMIT)


def larger(rank: Rank) -> None:
    """An operation that is larger than the limit runs alone, between small ones, in the order of the calls."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    tensors = [torch.full((count,), 1.0, device="sim") for count in (MIB // 8, MIB, MIB // 8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in (*tensors, tensors[0], tensors[1])]
    for work in works:
        assert work is not None
        work.wait()
    for tensor, times in zip(tensors, (2, 2, 1), strict=True):
        assert tensor.cpu().eq(rank.size**times).all()
    assert sim.take_peak_pinned_bytes() <= 4 * MIB
    released(sim)


def test_a_larger_operation_runs_alone() -> None:
    """It needs 4 MiB where 2 are allowed."""
    run_ranks(larger, 2, join=False, environment=LIMIT)


def crossed(rank: Rank) -> None:
    """Ranks use two groups in opposite orders, and wait with messages for each other, with little memory."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    groups = [dist.new_group(), dist.new_group()]
    order = groups if rank.rank == 0 else groups[::-1]
    tensors = {group: [torch.ones(MIB // 4, device="sim") for _ in range(4)] for group in groups}
    received, sent = torch.zeros(MIB, device="sim"), torch.full((MIB,), 7.0, device="sim")
    works: list[Any] = [dist.irecv(received, 1 - rank.rank)]
    works += [dist.all_reduce(each, group=group, async_op=True) for group in order for each in tensors[group]]
    whole = torch.zeros(MIB // 2, device="sim")
    works += [dist.all_gather_into_tensor(whole, torch.ones(MIB // 4, device="sim"), async_op=True)]
    works += [dist.isend(sent, 1 - rank.rank)]
    for work in works:
        work.wait()
    assert received.cpu().eq(7).all()
    assert whole.cpu().eq(1).all()
    assert all(each.cpu().eq(rank.size).all() for group in groups for each in tensors[group])
    released(sim)


def test_nobody_waits_for_ever() -> None:
    """Each group has a budget of its own, and messages need none."""
    run_ranks(crossed, 2, join=False, environment=LIMIT)


def fails(rank: Rank) -> None:
    """A group fails while operations wait for memory: they fail, too, and release what they have."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    tensors = [torch.ones(MIB // 4, device="sim") for _ in range(6)]
    sim.hold(on_pool=True)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dist.distributed_c10d._get_default_group()._get_backend(torch.device("sim")).abort()
    for work in works:
        assert work is not None
        with pytest.raises(dist.DistBackendError):
            work.wait()
    sim.hold()
    released(sim)


def test_a_failure_releases_all() -> None:
    """abort() ends operations without memory."""
    run_ranks(fails, 2, join=False, environment=LIMIT)
