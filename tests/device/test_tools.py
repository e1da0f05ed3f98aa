# SPDX-License-Identifier: Apache-2.0
"""torch's own tools on tensors of the simulated device: its profiler, and its debug mode."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import Rank, run_ranks

pytestmark = [pytest.mark.multiprocess]


def start(rank: Rank) -> Any:
    """Load the device, then make the group."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulated

    sim = simulated.load()
    rank.join()
    return sim


def appear_in_profiles(rank: Rank) -> None:
    """Each operation is one event with its shapes, and lasts until the copies up are enqueued."""
    sim = start(rank)
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    size = rank.size
    sim.set_delays(on_pool=20_000)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        sim.hold(on_pool=True)  # until the event has begun: the copy down is enqueued before
        reduction = dist.all_reduce(torch.ones(5, device="sim"), async_op=True)
        sim.hold()
        reduction.wait()
        whole = torch.zeros(2 * size, device="sim")
        dist.all_gather_into_tensor(whole, torch.ones(2, device="sim"), async_op=True).wait()
        dist.broadcast(torch.ones(3, device="sim"), 0)
        dist.barrier()
    sim.set_delays()
    events: dict[str, list[Any]] = {}
    for event in profiler.events():
        if event.name.startswith("braid:"):
            events.setdefault(event.name, []).append(event)
    assert [event.input_shapes for event in events["braid:all_reduce"]] == [[[5]]]
    assert [event.input_shapes for event in events["braid:all_gather"]] == [[[2]]]
    assert [event.input_shapes for event in events["braid:broadcast"]] == [[[3]]]
    assert len(events["braid:barrier"]) == 1
    assert events["braid:all_reduce"][0].time_range.elapsed_us() > 20_000  # the copy down alone takes as long
    path = rank.folder / f"trace.{rank.rank}.json"
    profiler.export_chrome_trace(str(path))
    told = json.loads(path.read_text())["traceEvents"]
    facts = [event["args"] for event in told if event.get("name") == "record_param_comms"]
    fact = next(each for each in facts if each["Collective name"] == "allreduce")
    assert fact["In msg nelems"] == fact["Out msg nelems"] == 5
    assert fact["Group size"] == size


def test_the_profiler_shows_operations_on_the_device() -> None:
    """Names, shapes and durations."""
    run_ranks(appear_in_profiles, 2, join=False)


def check_in_detail(rank: Rank) -> None:
    """torch's wrapper compares every call with those of other ranks, also while the device is late."""
    import torch.distributed as dist

    dist.set_debug_level_from_env()
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    sim = start(rank)
    import torch

    for delays in ({}, {"on_pool": 3000}, {"on_default": 3000}):
        sim.set_delays(**delays)
        total = torch.ones(4, device="sim").mul_(rank.rank + 1)
        dist.all_reduce(total)
        assert total.cpu().eq(sum(range(1, rank.size + 1))).all()
        blocks = [torch.zeros(2, device="sim") for _ in range(rank.size)]
        dist.all_gather(blocks, torch.full((2,), float(rank.rank), device="sim"))
        assert [block[0].item() for block in blocks] == list(range(rank.size))
    with pytest.raises(RuntimeError, match="Detected mismatch"):
        dist.all_reduce(torch.ones(4 + rank.rank, device="sim"))
    dist.barrier()


def test_torch_debug_mode() -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    run_ranks(check_in_detail, 2, join=False, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
