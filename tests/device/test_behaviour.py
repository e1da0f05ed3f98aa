# SPDX-License-Identifier: Apache-2.0
"""Memory, refusals, waits and failures of operations on tensors of the simulated device."""

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ranks import SOON_S, Rank, error_of, run_ranks
from waiting import eventually

pytestmark = [pytest.mark.multiprocess]


def start(rank: Rank) -> Any:
    """Load the device, then make the group."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulated

    sim = simulated.load()
    rank.join()
    return sim


def memory(rank: Rank) -> None:
    """Inputs are released when they are copied, outputs after wait(), or at the end without it."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    def gather(wait: bool) -> None:
        whole = torch.zeros(2000, device="sim")
        work = dist.all_gather_into_tensor(whole, torch.ones(1000, device="sim"), async_op=True)
        assert work is not None
        if wait:
            work.wait()

    sim.synchronize()
    device = sim.device_bytes()
    for delays in ({}, {"on_pool": 3000}, {"on_default": 3000}):
        sim.set_delays(**delays)
        gather(wait=True)
        # The courier lets go a moment after it has woken the caller.
        eventually(lambda: sim.device_bytes() == device, "device memory is released after wait()")
        gather(wait=False)
        eventually(lambda: sim.device_bytes() == device, "device memory is released without wait()")
        eventually(lambda: sim.pinned_bytes() == 0, "pinned memory is released")


def test_no_memory_is_held() -> None:
    """Neither on the device after wait(), nor anywhere after the end."""
    run_ranks(memory, 2, join=False)


def refusals(rank: Rank) -> None:
    """Wrong uses get one sentence, and the group stays usable."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    tensor = torch.ones(4, device="sim")
    sim.set_capturing(True)
    with pytest.raises(NotImplementedError, match="braid all_reduce: the stream is capturing a graph"):
        dist.all_reduce(tensor)
    sim.set_capturing(False)
    with pytest.raises(ValueError, match="got tensors on sim:0 and on cpu; move them all to one device"):
        dist.all_gather_into_tensor(torch.zeros(8, device="sim"), torch.ones(4))
    with pytest.raises(ValueError, match="several of its elements share memory"):
        dist.all_reduce(torch.ones(1, device="sim").expand(4))
    group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu"))
    with pytest.raises(TypeError, match="on device meta, where tensors have no data"):
        backend.allreduce([torch.ones(4, device="meta")], dist.AllreduceOptions())
    dist.all_reduce(tensor)
    assert tensor.cpu().eq(2).all()


def test_refusals() -> None:
    """Capture, mixed devices, overlapping outputs, devices without a path."""
    run_ranks(refusals, 2, join=False)


def completion(rank: Rank) -> None:
    """A work is completed when its results are there; its text, number and duration are known."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    tensor = torch.ones(1000, device="sim")
    sim.hold(on_pool=True)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    assert not work.is_completed()
    sim.hold()
    eventually(work.is_completed, "the work completes")
    side = torch.sim.Stream()
    with side:  # without a wait: it is complete, so any stream may read
        assert tensor.clone().cpu().eq(2).all()
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("sim"))
    before = backend._get_sequence_number_for_group()
    for count in range(1, 4):  # each is counted at its call
        dist.all_reduce(tensor, async_op=True)
        assert backend._get_sequence_number_for_group() == before + count
    sim.hold(on_default=True)
    tensor.add_(1)
    late = dist.all_reduce(tensor, async_op=True)
    assert late is not None
    assert "(waits for its tensors" in error_of(lambda: late.wait(timedelta(milliseconds=20)))
    sim.hold()
    late.wait()
    assert late._get_duration() >= 0
    assert late.result()[0].data_ptr() == tensor.data_ptr()


def test_completion() -> None:
    """Questions to a work of the device."""
    run_ranks(completion, 2, join=False)


def dies(rank: Rank) -> str:
    """Rank 1 dies while the operation of rank 0 is under way."""
    sim = start(rank)
    import os
    import signal

    import torch
    import torch.distributed as dist

    tensor = torch.ones(1000, device="sim")
    dist.all_reduce(tensor)
    sim.synchronize()
    rank.meet("warm")
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    message = error_of(work.wait)
    eventually(lambda: sim.pinned_bytes() == 0, "pinned memory is released after a failure")
    assert "rank 1" in error_of(lambda: dist.all_reduce(tensor))
    return message


def test_a_dead_peer_is_named() -> None:
    """The survivor's wait() names it, and its memory is released."""
    assert "rank 1" in run_ranks(dies, 2, join=False, killed=[1])[0]


def killed_in_the_middle(rank: Rank) -> tuple[str, float]:
    """Rank 1 is killed with some pieces sent; return rank 0's error, and how long its streams then take."""
    import os
    import signal

    os.environ["BRAID_HOST"] = f"host{rank.rank}"
    os.environ["BRAID_LINKS"] = "assume"
    sim = start(rank)
    import torch
    import torch.distributed as dist

    tensor = torch.ones(1 << 20, device="sim")
    dist.all_reduce(tensor)
    sim.synchronize()
    rank.meet("warm")
    sim.take_trace()
    rate = 1e6 if rank.rank == 1 else 5e6  # 4 s each way: who is killed is in the middle even if it stands still
    sim.set_rates(down=rate, up=rate)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    eventually(lambda: sim.copies_done() >= 6, "some pieces have been copied")
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    message = error_of(work.wait)
    began = time.monotonic()
    sim.synchronize()
    drained = time.monotonic() - began
    eventually(lambda: sim.pinned_bytes() == 0, "pinned memory is released after a failure")
    assert "rank 1" in error_of(lambda: dist.all_reduce(tensor))
    return message, drained


def test_streams_drain_when_a_peer_is_killed_in_the_middle() -> None:
    """The error names the peer, and no stream waits for what will not come."""
    environment = {"BRAID_PIECE_BYTES": "262144", "BRAID_CHUNK_BYTES": "65536"}
    results = run_ranks(killed_in_the_middle, 2, wire="tcp", join=False, killed=[1], environment=environment)
    message, drained = results[0]
    assert "rank 1" in message
    assert drained < SOON_S


def never_ready(rank: Rank) -> float:
    """The group is ended while an operation waits for a device that is late."""
    sim = start(rank)
    import torch
    import torch.distributed as dist

    tensor = torch.ones(10, device="sim")
    sim.set_delays(on_default=1_000_000)
    tensor.add_(1)
    dist.all_reduce(tensor, async_op=True)
    began = time.monotonic()
    dist.destroy_process_group()
    return time.monotonic() - began


def test_the_end_of_a_group_waits_for_a_late_device() -> None:
    """It neither hangs nor loses memory that the device still writes to."""
    assert max(run_ranks(never_ready, 2, join=False)) < SOON_S
