# SPDX-License-Identifier: Apache-2.0
"""Operations of many pieces: the CPU's bits, and copies in both directions while the operation runs."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import SOON_S, Rank, run_ranks

pytestmark = [pytest.mark.multiprocess]


def start(rank: Rank, hosts: bool) -> Any:
    """Load the device, then make the group: of ranks on one host, or each on a host of its own."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulated

    if hosts:
        os.environ["BRAID_HOST"] = f"host{rank.rank}"
        os.environ["BRAID_LINKS"] = "assume"
    sim = simulated.load()
    rank.join()
    return sim


def equals_the_cpu(rank: Rank, hosts: bool, seeds: int) -> None:
    """Run all cases of many pieces under each schedule."""
    sim = start(rank, hosts)
    import torch
    from cases import bits
    from pipelined import PIPELINED
    from schedules import SCHEDULES, delays

    for case in PIPELINED:
        expected = list(bits(case(rank.rank, rank.size, torch.Tensor.clone)))
        for schedule in SCHEDULES:
            for seed in range(seeds if schedule == "random" else 1):
                sim.set_delays(**delays(schedule, rank.rank, us=300, seed=seed))
                results = case(rank.rank, rank.size, lambda tensor: tensor.to("sim"))
                for index, (mine, cpu) in enumerate(zip(bits(results), expected, strict=True)):
                    assert mine == cpu, f"{case.__name__}, {schedule}, seed {seed}: tensor {index} differs"
    sim.set_delays()
    sim.synchronize()


@pytest.mark.parametrize(("ranks", "hosts"), [(2, False), pytest.param(3, True, marks=pytest.mark.long)])
def test_pieces_have_the_bits_of_the_cpu(ranks: int, hosts: bool) -> None:
    """Over shared memory, and between hosts."""
    from pipelined import SETTINGS

    wire = "tcp" if hosts else "shm"
    run_ranks(equals_the_cpu, ranks, hosts, 1, wire=wire, join=False, environment=SETTINGS)


@pytest.mark.long
@pytest.mark.parametrize("hosts", [False, True])
def test_pieces_have_the_bits_of_the_cpu_with_many_seeds(hosts: bool) -> None:
    """Ten seeds of random delays."""
    from pipelined import SETTINGS

    wire = "tcp" if hosts else "shm"
    run_ranks(equals_the_cpu, 3, hosts, 10, wire=wire, join=False, environment=SETTINGS, timeout_s=280)


def traces(rank: Rank, hosts: bool) -> dict[str, str]:
    """Return the order in which the copies of each operation ended: "d" down, "u" up."""
    sim = start(rank, hosts)
    import torch
    import torch.distributed as dist

    count = 1 << 20
    whole, part = torch.zeros(rank.size * count, device="sim"), torch.ones(count, device="sim")
    calls = {
        "all_reduce": lambda: dist.all_reduce(part),
        "broadcast": lambda: dist.broadcast(part, 0),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
    }
    found = {}
    for name, call in calls.items():
        sim.take_trace()
        call()
        sim.synchronize()
        copies_down = sim.take_trace().count("d")
        if overlaps(name, hosts):  # else a rank could copy all down before the other begins
            sim.hold_down(copies_down - 1, SOON_S)
        call()
        sim.synchronize()
        found[name] = sim.take_trace()
        sim.let_down()
    return found


def overlaps(name: str, hosts: bool) -> bool:
    """Return whether copies go in both directions at once on every rank."""
    if name == "broadcast":
        return False
    return hosts or name in ("all_reduce", "reduce_scatter")  # large blocks of one host are lent whole


@pytest.mark.parametrize("hosts", [False, True])
def test_copies_up_begin_before_the_copies_down_have_ended(hosts: bool) -> None:
    """A rank that has inputs and outputs copies in both directions at the same time."""
    wire = "tcp" if hosts else "shm"
    environment = {"BRAID_PIECE_BYTES": "524288", "BRAID_CHUNK_BYTES": "65536"}
    for rank, found in enumerate(run_ranks(traces, 2, hosts, wire=wire, join=False, environment=environment)):
        for name, trace in found.items():
            if name == "broadcast":  # the root copies in both directions, because its tensor is a result, too
                assert ("d" in trace) == (rank == 0), f"{name} on rank {rank}: {trace}"
            elif overlaps(name, hosts):
                assert trace.index("u") < trace.rindex("d"), f"{name} on rank {rank}: {trace}"


def early_end(rank: Rank) -> None:
    """A group of one rank has nothing to do, but its tensors must not change before they are down."""
    sim = start(rank, hosts=False)
    import torch
    import torch.distributed as dist

    for delays in ({}, {"on_pool": 3000}, {"on_default": 3000}):
        sim.set_delays(**delays)
        tensor = torch.arange(4000, device="sim").mul_(2)
        dist.all_reduce(tensor)
        assert tensor.cpu().equal(torch.arange(4000) * 2)


def test_a_group_of_one() -> None:
    """All pieces are there before the first is copied back."""
    from pipelined import SETTINGS

    run_ranks(early_end, 1, join=False, environment=SETTINGS)
