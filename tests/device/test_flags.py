# SPDX-License-Identifier: Apache-2.0
"""With BRAID_STREAM_WAITS=1 the stream waits for an operation, and the CPU goes on."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import SOON_S, Rank, error_of, run_ranks
from waiting import eventually

pytestmark = [pytest.mark.multiprocess]

ON = {"BRAID_STREAM_WAITS": "1"}
SMALL = {**ON, "BRAID_PIECE_BYTES": "512", "BRAID_CHUNK_BYTES": "1024"}


def start(rank: Rank) -> Any:
    """Load the device with its flags, then make the group."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulated

    sim = simulated.load()
    simulated.offer_flags()
    rank.join()
    return sim


def returns_at_once(rank: Rank) -> list[float]:
    """Rank 1 calls when wait() of rank 0 has returned; return how long each wait() took."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    calls = {
        "all_reduce": lambda whole, part: dist.all_reduce(whole, async_op=True),
        "all_gather": lambda whole, part: dist.all_gather_into_tensor(whole, part, async_op=True),
        "broadcast": lambda whole, part: dist.broadcast(whole, 1, async_op=True),
    }
    took = []
    for name, call in calls.items():
        whole, part = torch.full((2000,), 1.0, device="sim"), torch.full((1000,), 1.0, device="sim")
        rank.mark(name)
        rank.wait_for(name, 1 - rank.rank)
        if rank.rank == 1:  # late: it calls when rank 0 has gone on
            rank.wait_for(f"{name} goes on", 0)
        work = call(whole, part)
        called = time.monotonic()
        work.wait()
        took.append(time.monotonic() - called)
        used = whole * 3  # on the caller's stream, without a wait of the CPU
        if rank.rank == 0:
            assert not work.is_completed()
            rank.mark(f"{name} goes on")
        assert used.cpu().eq(3 * (rank.size if name == "all_reduce" else 1)).all(), name
        sim.synchronize()
    return took


def test_wait_returns_while_the_peer_is_late() -> None:
    """Operators that depend on the result see it."""
    print(run_ranks(returns_at_once, 2, join=False, environment=ON))


def reads_at_once(rank: Rank) -> None:
    """Copy results to memory that is not pinned, right after wait(), while the copies down are late."""
    sim = start(rank)
    sim.lock_driver(True)
    import torch
    import torch.distributed as dist

    calls = {
        "broadcast": lambda tensor: dist.broadcast(tensor, 1, async_op=True),
        "all_reduce": lambda tensor: dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True),
        "reduce_scatter": lambda tensor: dist.reduce_scatter_tensor(
            tensor[:1000], tensor, op=dist.ReduceOp.MAX, async_op=True
        ),
    }
    for name, call in calls.items():
        for delay in (0, 200, 20_000):
            sim.set_delays(on_pool=delay)
            tensor = torch.full((1000 * rank.size,), float(rank.rank), device="sim")
            call(tensor).wait()
            assert tensor[:1000].cpu().eq(1).all(), (name, delay)


def test_results_may_be_read_at_once() -> None:
    """Such a copy holds the driver's lock until the values are there, so nobody may ask the driver meanwhile."""
    run_ranks(reads_at_once, 2, join=False, environment=SMALL)


def issues_ahead(rank: Rank) -> None:
    """FSDP2's forward issues all its all-gathers while the first waits for the other rank."""
    start(rank)
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model: Any = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4))).to("sim")
    mesh = init_device_mesh("sim", (rank.size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    inputs = torch.ones(4, 16).to("sim")
    expected = model(inputs).detach().cpu()
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("sim"))
    before = backend._get_sequence_number_for_group()
    rank.mark("warm")
    rank.wait_for("warm", 1 - rank.rank)
    if rank.rank == 1:  # late: it calls when rank 0 has gone on
        rank.wait_for("the pass is issued", 0)
    result = model(inputs)
    if rank.rank == 0:
        rank.mark("the pass is issued")
        assert backend._get_sequence_number_for_group() >= before + 4
    assert result.detach().cpu().equal(expected)


def test_fsdp2_issues_the_next_all_gather() -> None:
    """The CPU runs ahead of the other rank by a whole forward pass."""
    run_ranks(issues_ahead, 2, join=False, environment=ON)


def equals_the_cpu(rank: Rank) -> None:
    """Run all cases, small and of many pieces, under each schedule."""
    sim = start(rank)
    import torch
    from cases import CASES, bits
    from pipelined import PIPELINED
    from schedules import SCHEDULES, delays

    for case in (*CASES, *PIPELINED):
        expected = list(bits(case(rank.rank, rank.size, torch.Tensor.clone)))
        for schedule in SCHEDULES:
            sim.set_delays(**delays(schedule, rank.rank, us=200))
            results = case(rank.rank, rank.size, lambda tensor: tensor.to("sim"))
            for index, (mine, cpu) in enumerate(zip(bits(results), expected, strict=True)):
                assert mine == cpu, f"{case.__name__}, {schedule}: tensor {index} differs"
    sim.set_delays()
    sim.synchronize()


@pytest.mark.long
@pytest.mark.parametrize("wire", ["shm", "tcp"])
def test_results_have_the_bits_of_the_cpu(wire: str) -> None:
    """All operations, in pieces where they are large enough."""
    run_ranks(equals_the_cpu, 2, wire=wire, join=False, environment=SMALL, timeout_s=200)


def little_memory(rank: Rank) -> None:
    """Operations that find no memory wait for it without flags, between others that have some."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    tensors = [
        torch.full((count,), float(rank.rank + 1), device="sim") for count in (500, 5000, 500, 20000, 500) * 3
    ]
    sim.set_delays(on_pool=500)
    for _ in range(3):
        works = [dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True) for tensor in tensors]
        for work in works:
            assert work is not None
            work.wait()
    assert all(tensor.cpu().eq(1.5).all() for tensor in tensors)


def test_operations_without_memory_come_in_order() -> None:
    """A limit of 32 KiB, of which one operation needs more."""
    run_ranks(little_memory, 2, join=False, environment={**SMALL, "BRAID_PINNED_BYTES": "32768"})


def fails(rank: Rank) -> tuple[str, float]:
    """Rank 1 dies after rank 0 has waited; return rank 0's next error, and how long its streams take."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    tensor = torch.ones(5000, device="sim")
    dist.all_reduce(tensor)
    sim.synchronize()
    rank.mark("warm")
    rank.wait_for("warm", 1 - rank.rank)
    if rank.rank == 1:
        rank.wait_for("waited", 0)
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.wait()
    used = tensor + 1
    rank.mark("waited")
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("sim"))
    eventually(lambda: backend.failure() is not None, "the failure")
    began = time.monotonic()
    sim.synchronize()
    took = time.monotonic() - began
    assert used.cpu().isnan().all(), "a result that never came must not look like one"
    assert "rank 1" in error_of(work.wait)
    return error_of(lambda: dist.all_reduce(tensor)), took


def test_a_failure_opens_all_gates() -> None:
    """The streams drain soon, results are NaN, and the next call names the peer."""
    message, took = run_ranks(fails, 2, join=False, killed=[1], environment=SMALL)[0]
    assert "rank 1" in message
    assert took < SOON_S
