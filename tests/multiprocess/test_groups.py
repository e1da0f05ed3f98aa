# SPDX-License-Identifier: Apache-2.0
"""Groups that come from groups, many groups at once, and what torch asks of a group beyond its operations."""

import contextlib
import copy
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import GROUP_TIMEOUT_S, Rank, error_of, run_ranks
from slowness import limit
from waiting import eventually

pytestmark = pytest.mark.multiprocess

MONITOR_S = round(limit(3.0), 1)

CPU = torch.device("cpu")


def total_of(group: dist.ProcessGroup, value: float = 1.0) -> float:
    tensor = torch.full((100,), value)
    group.allreduce([tensor]).wait()
    return tensor[-1].item()


def split(rank: Rank) -> None:
    world = dist.group.WORLD
    backend = world._get_backend(CPU)
    options = copy.deepcopy(backend.options)
    assert options._timeout == backend.options._timeout == timedelta(seconds=GROUP_TIMEOUT_S)
    assert copy.copy(options).group_name == options.group_name
    half = [other for other in range(rank.size) if other % 2 == rank.rank % 2]
    part = world.split_group(half, timeout=timedelta(seconds=20), opts=options, group_desc="half")
    assert (part.rank(), part.size()) == (half.index(rank.rank), len(half))
    assert total_of(part) == len(half)
    assert total_of(world) == rank.size
    first = world.split_group([0], timeout=timedelta(seconds=20), opts=copy.deepcopy(backend.options))
    assert (first is None) == (rank.rank != 0)
    with pytest.raises(ValueError, match="not in the group"):
        world.split_group([rank.size], timeout=timedelta(seconds=20), opts=options)


def has_its_timeout_to_the_millisecond(rank: Rank) -> None:
    rank.join(timeout_s=142.2)
    assert dist.group.WORLD._get_backend(CPU).options._timeout == timedelta(seconds=142.2)


def test_a_timeout_is_kept_to_the_millisecond() -> None:
    run_ranks(has_its_timeout_to_the_millisecond, 1, join=False)


def merge(rank: Rank) -> None:
    backend = dist.group.WORLD._get_backend(CPU)
    store = dist.PrefixStore("merged", dist.distributed_c10d._get_default_store())
    whole = dist.group.WORLD.merge_remote_group(store, rank.size, timedelta(seconds=20), "whole")
    assert whole.size() == rank.size  # ranks are given in the order of arrival
    assert total_of(whole) == rank.size
    total = torch.tensor([1 << whole.rank()])
    dist.all_reduce(total)
    assert total.item() == (1 << rank.size) - 1
    assert backend.failure() is None


def shrink(rank: Rank) -> str:
    last = rank.size - 1
    group = dist.new_group()
    if rank.rank == last:  # it has not heard of it, and goes on: an operation of the others hangs
        for other in range(last):
            rank.wait_for("shrunk", other)
        return ""
    pending = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    smaller = dist.shrink_group([last], group=group, shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    assert dist.get_world_size(smaller) == last
    assert total_of(smaller) == last
    rank.mark("shrunk")
    return error_of(pending.wait)


def monitor(rank: Rank) -> str:
    group = dist.new_group()
    for _ in range(2):
        dist.monitored_barrier(group, timeout=timedelta(seconds=limit(10)))
    dist.monitored_barrier(group)
    rank.meet("through")
    if 0 < rank.rank < 3:
        rank.wait_for("done", 0)
        return ""
    error = error_of(lambda: dist.monitored_barrier(group, timeout=MONITOR_S, wait_all_ranks=True))
    rank.mark("done")
    return error


def hook(rank: Rank) -> None:
    group = dist.new_group()
    seen = []

    def note(info: object) -> None:
        time.sleep(0.05)
        seen.append((str(info.op_type), info.seq, info.active_duration > timedelta(0)))

    group._register_on_completion_hook(note)
    assert group._has_hooks()
    large = 1 << 17  # durations are counted in whole microseconds
    for _ in range(3):
        dist.all_reduce(torch.ones(large), group=group)
    dist.broadcast(torch.ones(large), 0, group=group, async_op=True)
    group._wait_for_pending_works()
    assert [sequence for _, sequence, _ in seen] == [1, 2, 3, 4]
    assert [name.split(".")[-1] for name, _, _ in seen] == ["ALLREDUCE"] * 3 + ["BROADCAST"]
    assert rank.size == 1 or all(took for _, _, took in seen)
    with pytest.raises(RuntimeError, match="already"):
        group._register_on_completion_hook(note)


def ask_for_memory(rank: Rank) -> None:
    backend = dist.group.WORLD._get_backend(CPU)
    assert backend.supports_tensor_alloc(CPU)
    tensor = backend.allocate_tensor(1000, dtype=torch.float64, device=CPU)
    assert (tensor.shape, tensor.dtype, tensor.device) == ((1000,), torch.float64, CPU)
    dist.all_reduce(tensor.fill_(1))
    assert tensor[-1].item() == rank.size


def change_the_timeout(rank: Rank) -> str:
    group = dist.new_group()
    backend = group._get_backend(CPU)
    dist.barrier(group)
    backend.set_timeout(timedelta(seconds=0.3))
    assert backend.options._timeout == timedelta(seconds=0.3)
    if rank.rank == 1:
        rank.wait_for("late", 0)
        return ""
    error = error_of(lambda: dist.all_reduce(torch.ones(3), group=group))
    rank.mark("late")
    return error


def use_a_thread_per_group(rank: Rank) -> None:
    groups = [dist.new_group() for _ in range(4)]
    wrong = []

    def work(index: int) -> None:
        for turn in range(50):
            total = total_of(groups[index], float(index + turn))
            if total != rank.size * (index + turn):
                wrong.append((index, turn, total))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def hold_a_hundred_groups(rank: Rank) -> None:
    groups = [dist.new_group() for _ in range(100)]
    works = []
    tensors = [torch.full((10,), float(index)) for index in range(100)]
    for group, tensor in zip(groups, tensors, strict=True):
        works.append(dist.all_reduce(tensor, group=group, async_op=True))
    for work in reversed(works):
        work.wait()
    assert [tensor[0].item() for tensor in tensors] == [rank.size * index for index in range(100)]


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("function", [split, merge, hook, ask_for_memory, use_a_thread_per_group])
@pytest.mark.parametrize("size", [1, 2, pytest.param(4, marks=pytest.mark.long)])
def test_groups(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, wire=wire)


@pytest.mark.long_over_tcp
def test_a_hundred_groups_at_once(wire: str) -> None:
    run_ranks(hold_a_hundred_groups, 3, wire=wire)


def test_shrinking() -> None:
    results = run_ranks(shrink, 3)
    assert ["aborted the group: the group is shrunk" in text for text in results] == [True, True, False], results


def test_the_monitored_barrier_names_all_who_are_missing() -> None:
    results = run_ranks(monitor, 4)
    took = f"in {round(1000 * MONITOR_S)} ms"
    assert results[0].startswith(f"Ranks 1, 2 failed to pass monitoredBarrier {took}"), results[0]
    assert results[3].startswith("Rank 3 successfully reached monitoredBarrier")
    assert "rank 1 rank 2" in results[3]


def test_a_new_timeout_holds() -> None:
    assert "timed out after its timeout of 0.3 s; not there yet: rank 1" in run_ranks(change_the_timeout, 2)[0]


def name_threads_left(rank: Rank) -> list[str]:
    total_of(dist.group.WORLD)
    dist.all_reduce(torch.ones(100), async_op=True).wait()
    dist.destroy_process_group()
    # The kernel still lists a thread for a moment after it was joined.
    with contextlib.suppress(TimeoutError):
        eventually(lambda: not engine_threads(), "the end of the engine's threads", 0.5)
    return engine_threads()


def engine_threads() -> list[str]:
    """Return the names of the engine's threads that this process has."""
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has ended
            names.append(path.read_text().strip())
    return [name for name in names if name in ("braid-net", "braid-progress")]


def test_the_last_group_takes_the_engine_with_it(wire: str) -> None:
    """A part of the group that outlives it would keep the engine's threads, and destroying would wait in vain."""
    assert run_ranks(name_threads_left, 2, wire=wire) == [[], []]
