# SPDX-License-Identifier: Apache-2.0
"""What torch expects of a Work, of its future, and of the backend's small questions."""

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks
from slowness import limit

pytestmark = pytest.mark.multiprocess


def backend_of(group: dist.ProcessGroup) -> object:
    return group._get_backend(torch.device("cpu"))


def start_each_operation(rank: Rank) -> list[tuple[str, object, list[torch.Tensor]]]:
    """Start one operation of each kind; list its name, its work and the tensors its future must hold."""
    n, me = rank.size, rank.rank
    flat, one = torch.zeros(4 * n), torch.ones(4)
    blocks = [torch.zeros(4) for _ in range(n)]
    received = torch.zeros(4)
    gathered = blocks if me == 0 else []
    recv = dist.irecv(received, (me - 1) % n)
    send = dist.isend(one, (me + 1) % n)
    asynchronous = {"async_op": True}
    scattered, shard, shard2, exchanged = torch.zeros(4), torch.zeros(4), torch.zeros(4), torch.zeros(4 * n)
    reduced, shared, kept = torch.ones(4), torch.ones(4), torch.ones(4)
    lists = [torch.zeros(4) for _ in range(n)]
    exchanged_list = [torch.zeros(4) for _ in range(n)]
    return [
        ("send", send, []),
        ("recv", recv, [received]),
        ("all_reduce", dist.all_reduce(reduced, **asynchronous), [reduced]),
        ("broadcast", dist.broadcast(shared, 0, **asynchronous), [shared]),
        ("reduce", dist.reduce(kept, 0, **asynchronous), [kept] if me == 0 else []),
        ("all_gather", dist.all_gather(lists, one, **asynchronous), lists),
        ("all_gather_into_tensor", dist.all_gather_into_tensor(flat, one, **asynchronous), [flat]),
        ("reduce_scatter", dist.reduce_scatter(shard, [one] * n, **asynchronous), [shard]),
        ("reduce_scatter_tensor", dist.reduce_scatter_tensor(shard2, torch.ones(4 * n), **asynchronous), [shard2]),
        ("gather", dist.gather(one, blocks if me == 0 else None, **asynchronous), gathered),
        ("scatter", dist.scatter(scattered, [one] * n if me == 0 else None, **asynchronous), [scattered]),
        ("all_to_all", dist.all_to_all(exchanged_list, [one] * n, **asynchronous), exchanged_list),
        ("all_to_all_single", dist.all_to_all_single(exchanged, torch.ones(4 * n), **asynchronous), [exchanged]),
        ("barrier", dist.barrier(**asynchronous), []),
    ]


def have_futures(rank: Rank) -> None:
    for name, work, wanted in start_each_operation(rank):
        future = work.get_future()
        held = future.wait()
        assert isinstance(held, list), name
        assert [t.data_ptr() for t in held] == [t.data_ptr() for t in wanted], name
        work.wait()
        assert work.is_completed(), name
        assert work.is_success(), name
        assert work.exception() is None, name
        assert future.done(), name
        assert [t.data_ptr() for t in work.result()] == [t.data_ptr() for t in wanted], name
        assert work._get_duration() >= 0, name
        if name == "recv":
            assert work._source_rank() == (rank.rank - 1) % rank.size
        # A future asked for afterwards is complete at once.
        assert len(work.get_future().value()) == len(wanted), name


def chain_callbacks(rank: Rank) -> None:
    seen = []
    tensor = torch.ones(1000)
    future = dist.all_reduce(tensor, async_op=True).get_future()

    def halve(done: torch.futures.Future) -> torch.Tensor:
        seen.append(threading.get_ident())
        return done.value()[0] / 2

    halved = future.then(halve).wait()
    assert halved[0].item() == rank.size / 2
    assert len(seen) == 1

    # A callback may start the next operation and wait for it, and for callbacks of that one: PowerSGD does.
    second = torch.full((10,), float(rank.rank))

    def go_on(done: torch.futures.Future) -> torch.Tensor:
        future = dist.all_reduce(second, async_op=True).get_future()
        return done.value()[0] + future.then(lambda inner: inner.value()[0]).wait()

    works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(3)]
    result = works[-1].get_future().then(go_on).wait()
    assert result[0].item() == rank.size + sum(range(rank.size))
    dist.barrier()


def fail_in_a_callback(rank: Rank) -> None:
    def fail(done: torch.futures.Future) -> None:
        raise KeyError("mine")

    future = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(fail)
    with pytest.raises(Exception, match="mine"):
        future.wait()
    dist.barrier()


def keep_tensors_alive(rank: Rank) -> None:
    works = []
    for _ in range(20):
        # Nobody but the operation holds these.
        works.append(dist.all_reduce(torch.full((50_000,), 1.0), async_op=True))
    del _
    for work in works[::-1]:
        assert work.get_future().wait()[0][-1].item() == rank.size
    dist.all_reduce(torch.ones(100_000), async_op=True)  # neither tensor nor work is kept
    dist.barrier()


def answer_questions(rank: Rank) -> None:
    group = dist.group.WORLD
    backend = backend_of(group)
    assert backend.name() == "braid"
    assert dist.get_backend() == "braid"
    assert backend.supports_coalescing
    assert backend.supports_splitting
    assert backend.supports_shrinking
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    dist.all_reduce(torch.ones(4))
    assert backend._get_sequence_number_for_group() == before + 2
    first = dist.all_reduce(torch.ones(4), async_op=True)
    second = dist.all_reduce(torch.ones(4), async_op=True)
    assert backend._get_sequence_number_for_group() == before + 4
    second.wait()
    first.wait()

    rows = backend.stats()
    reductions = [row for row in rows if row["collective"] == "all_reduce"]
    assert sum(row["calls"] for row in reductions) == 3
    assert sum(row["bytes"] for row in reductions) == 48
    for row in rows:
        assert row["algorithm"]
        assert 0 < row["p50_s"] <= row["p95_s"] <= row["p99_s"] <= row["max_s"] <= row["seconds"]
    assert len(backend.wires()) == rank.size
    if rank.size > 1:
        other = (rank.rank + 1) % rank.size
        assert os.environ["BRAID_TRANSPORTS"] in backend.wires()[other]
    assert backend.failure() is None
    group.set_timeout(timedelta(seconds=20))
    dist.barrier()


def start_many_groups(rank: Rank) -> None:
    # Groups come and go; names and sequence numbers do not mix.
    for turn in range(5):
        everybody = dist.new_group(list(range(rank.size)))
        alone = [dist.new_group([other]) for other in range(rank.size)]
        tensor = torch.ones(10)
        dist.all_reduce(tensor, group=everybody)
        assert tensor[0].item() == rank.size
        dist.all_reduce(tensor, group=alone[rank.rank])
        assert tensor[0].item() == rank.size, turn
        dist.destroy_process_group(alone[rank.rank])
        dist.destroy_process_group(everybody)
    dist.barrier()


def begin_again(rank: Rank) -> None:
    for turn in range(4):
        rank.join(prefix=f"turn{turn}")
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        assert tensor[0].item() == rank.size
        dist.destroy_process_group()


def never_destroy(rank: Rank) -> None:
    # The interpreter must still end, soon and quietly, with the group alive and an operation in flight.
    rank.join()
    dist.all_reduce(torch.ones(10))
    dist.all_reduce(torch.ones(100_000), async_op=True)
    dist.distributed_c10d.GroupMember.WORLD = None  # so that the harness, too, leaves it alone


def fork_children(rank: Rank) -> None:
    rank.join()
    dist.all_reduce(torch.ones(10))
    pending = dist.irecv(torch.zeros(3), (rank.rank + 1) % rank.size)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            dist.all_reduce(torch.ones(10))
        except RuntimeError as error:
            status = 0 if "fork" in str(error) else 2
            del pending
            dist.destroy_process_group()  # does nothing to the parent's group, and does not hang
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    dist.send(torch.ones(3), (rank.rank - 1) % rank.size)
    pending.wait()
    total = torch.ones(10)
    dist.all_reduce(total)
    assert total[0].item() == rank.size
    dist.destroy_process_group()


def fork_and_join(rank: Rank) -> None:
    """The children of two ranks form a group of their own, while their parents have one."""
    rank.join()
    dist.barrier()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            dist.distributed_c10d._world.pg_map.clear()
            dist.distributed_c10d.GroupMember.WORLD = None
            dist.distributed_c10d._world.pg_names.clear()
            dist.distributed_c10d._world.pg_group_ranks.clear()
            rank.join(prefix="children")
            total = torch.ones(1000)
            dist.all_reduce(total)
            status = 0 if total[0].item() == rank.size else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    dist.barrier()


def wait_without_the_gil(rank: Rank) -> None:
    # While one thread waits for an operation, the others run: here, the one that makes the operation end.
    released = threading.Event()
    if rank.rank == 0:

        def help_out() -> None:
            time.sleep(0.3)
            released.set()
            dist.send(torch.ones(3), 1)

        threading.Thread(target=help_out).start()
        tensor = torch.zeros(3)
        dist.recv(tensor, 1)
        assert released.is_set()
        assert tensor[0].item() == 2
    elif rank.rank == 1:
        tensor = torch.zeros(3)
        dist.recv(tensor, 0)
        dist.send(tensor * 2, 0)
    dist.barrier()


def test_a_process_may_end_while_a_callback_runs() -> None:
    code = """
import threading, time, torch, torch.distributed as dist, braid
dist.init_process_group("braid", store=dist.HashStore(), rank=0, world_size=1)
begun = threading.Event()
def answer(done):
    begun.set()
    time.sleep(0.5)
    print("answered", flush=True)
dist.all_reduce(torch.ones(4), async_op=True).get_future().then(answer)
begun.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=limit(100))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "answered\n"


# Receives whose messages never come, with a callback and without.
UNMATCHED = """
import sys, time, torch, torch.distributed as dist, braid
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("braid", store=dist.FileStore(folder + "/store"), rank=rank, world_size=2)
dist.barrier()
if rank == 0:
    for tag in range(5):
        dist.irecv(torch.empty(4), 1, tag=tag).get_future().then(lambda done: sum(range(100_000)))
        dist.irecv(torch.empty(4), 1, tag=10 + tag)
else:
    time.sleep(7)
"""


@pytest.mark.long
def test_a_process_may_end_while_receives_wait(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNMATCHED]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    for rank in ranks:
        told = rank.communicate(timeout=limit(100))[1]
        assert rank.returncode == 0, told


class Noisy(torch.Tensor):
    """A tensor that takes the GIL whenever it is copied."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))


def ask_while_results_go_home(rank: Rank) -> None:
    for _ in range(50):
        # Not contiguous, so the result is copied back when the operation ends.
        base = torch.ones(300, 300).t()[:, :150]
        work = dist.all_reduce(torch.Tensor._make_subclass(Noisy, base), async_op=True)
        while not work.is_completed():
            pass
        assert base[0, 0] == rank.size


def wait_in_a_callback(rank: Rank) -> None:
    """What is attached to one future may wait for the operation, though there is another future."""
    tensors = [torch.ones(1000) for _ in range(2)]
    for _ in range(20):
        for work in (
            dist.all_reduce(tensors[0], async_op=True),
            dist.group.WORLD.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()),
        ):
            told = work.get_future_result()
            future = work.get_future()
            assert future.then(lambda _, work=work: work.wait()).wait()
            told.wait()


def find_futures_complete(rank: Rank) -> None:
    """Whoever has waited for an operation finds complete what was given out before."""
    tensors = [torch.ones(20_000) for _ in range(3)]
    for _ in range(200):
        work = dist.all_reduce(tensors[0], async_op=True)
        made = [work.get_future(), work.get_future_result()]
        work.wait()
        assert all(future.done() for future in made)
        work = dist.group.WORLD.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions())
        made = [work.get_future(), work.get_future_result()]
        work.wait()
        assert all(future.done() for future in made)
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        made = [work.get_future() for work in manager.works]
        manager.wait()
        assert all(future.done() for future in made)
        for tensor in tensors:
            tensor.fill_(1)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("size", [1, 2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "function", [chain_callbacks, fail_in_a_callback, keep_tensors_alive, answer_questions, start_many_groups]
)
def test_work_and_group(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, wire=wire)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "function",
    [have_futures, find_futures_complete, wait_in_a_callback, ask_while_results_go_home, wait_without_the_gil],
)
def test_futures(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, wire=wire)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("function", [begin_again, never_destroy, fork_children, fork_and_join])
def test_process_life(function: object, wire: str) -> None:
    run_ranks(function, 2, wire=wire, join=False, timeout_s=60)
