# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, stay away, or disagree: everybody else hears of it soon, and by name, and can go on without."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

SOON_S = 2.0
BIG = 4_000_000
# Of other programs on this machine.
FOREIGN = ("torch_", "sem.", "pym-", "psm_", "vader_", "mpich", "nccl-", "gloo")


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    before = set(os.listdir("/dev/shm"))
    yield
    left = {name for name in set(os.listdir("/dev/shm")) - before if not name.startswith(FOREIGN)}
    assert not left, f"left in /dev/shm: {left}"


def die(rank: Rank) -> None:
    (rank.folder / "time of death").write_text(repr(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def seconds_since_death(rank: Rank) -> float:
    return time.monotonic() - float((rank.folder / "time of death").read_text())


def error_of(call: Callable[[], object]) -> str:
    """Return the message of the DistBackendError that the call must raise."""
    try:
        call()
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("no error was raised")


def all_reduce_until_it_fails(count: int) -> str:
    def repeat() -> None:
        for _ in range(10_000):
            dist.all_reduce(torch.ones(count))

    return error_of(repeat)


def go_on_without(rank: Rank, dead: int) -> None:
    dist.destroy_process_group()
    survivors = [other for other in range(rank.size) if other != dead]
    rank.join(prefix="second", members=survivors)
    tensor = torch.full((1000,), float(rank.rank))
    dist.all_reduce(tensor)
    assert tensor[0].item() == sum(survivors)
    objects: list[object] = [None] * len(survivors)
    dist.all_gather_object(objects, rank.rank)
    assert objects == survivors


def survive_death_inside(rank: Rank, victim: int, count: int) -> None:
    dist.all_reduce(torch.ones(count))
    dist.barrier()
    if rank.rank == victim:
        threading.Timer(0.05, die, (rank,)).start()
        all_reduce_until_it_fails(count)
    text = all_reduce_until_it_fails(count)
    late = seconds_since_death(rank)
    assert late < SOON_S, f"noticed only after {late:.1f} s: {text}"
    assert f"rank {victim}" in text, text
    assert re.search(r"all_reduce #\d+", text), text
    assert "float32" in text, text
    assert f"{count * 4} bytes" in text, text
    # The group stays failed, and says why.
    again = error_of(lambda: dist.barrier())
    assert f"rank {victim}" in again, again
    go_on_without(rank, victim)


def survive_death_before(rank: Rank, victim: int) -> None:
    dist.barrier()
    if rank.rank == victim:
        rank.wait_for("waiting", (victim + 1) % rank.size)
        time.sleep(0.2)  # all others sleep in the operation by now
        die(rank)
    rank.mark("waiting")
    text = error_of(lambda: dist.all_reduce(torch.ones(1000)))
    assert seconds_since_death(rank) < SOON_S, text
    assert f"rank {victim}" in text, text
    assert "all_reduce #2" in text, text
    go_on_without(rank, victim)


def survive_death_of_sender(rank: Rank) -> None:
    if rank.rank == 1:
        rank.wait_for("waiting", 0)
        time.sleep(0.2)
        die(rank)
    if rank.rank == 0:
        work = dist.irecv(torch.zeros(10), 1, tag=3)
        rank.mark("waiting")
        text = error_of(work.wait)
        assert seconds_since_death(rank) < SOON_S, text
        assert "rank 1" in text, text
        assert "recv" in text, text
        assert not work.is_success()
        assert work.exception() is not None
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            work.get_future().wait()


def see_queued_work_fail(rank: Rank) -> None:
    dist.barrier()
    if rank.rank == 1:
        rank.wait_for("waiting", 0)
        die(rank)
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(5)]
    futures = [work.get_future() for work in works]
    seen: list[bool] = []
    told = futures[-1].then(lambda done: seen.append(True))
    rank.mark("waiting")
    for number, work in enumerate(works):
        text = error_of(work.wait)
        assert "rank 1" in text, text
        assert f"all_reduce #{number + 2}" in text, text
    for future in futures:
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            future.wait()
    told.wait()
    assert seen == [True]
    assert "rank 1" in dist.group.WORLD._get_backend(torch.device("cpu")).failure()


def name_global_ranks(rank: Rank) -> None:
    group = dist.new_group([1, 2])
    if rank.rank == 2:
        rank.wait_for("waiting", 1)
        time.sleep(0.1)
        die(rank)
    if rank.rank == 1:
        rank.mark("waiting")
        text = error_of(lambda: dist.all_reduce(torch.ones(10), group=group))
        assert "rank 1" in text, text
        assert "global rank 2" in text, text


def miss_a_rank(rank: Rank) -> None:
    rank.join(timeout_s=2)
    dist.barrier()
    if rank.rank == 1:
        rank.wait_for("heard", 0)
        # Coming late, it may still find in its mailbox all that the sum needs; if so, the next call tells it.
        tensor = torch.ones(10)
        with suppress(dist.DistBackendError):
            dist.all_reduce(tensor)
            assert tensor.tolist() == [rank.size] * 10
        assert "timed out" in error_of(lambda: dist.all_reduce(torch.ones(10)))
        return
    started = time.monotonic()
    text = error_of(lambda: dist.all_reduce(torch.ones(10)))
    waited = time.monotonic() - started
    assert 1.5 < waited < 6, f"{waited} s: {text}"
    assert "timed out" in text, text
    assert "rank 1" in text, text
    assert "all_reduce #2" in text, text
    rank.mark("heard")


def miss_a_message(rank: Rank) -> None:
    rank.join(timeout_s=1)
    if rank.rank == 0:
        text = error_of(lambda: dist.recv(torch.zeros(4), 1, tag=9))
        assert "rank 1" in text, text
        assert "tag 9" in text, text
        assert "timed out" in text, text
        rank.mark("done")
    else:
        rank.wait_for("done", 0)


def stay_until_all_have_heard(rank: Rank) -> None:
    """A process that ends at once takes the reason with it that it had not yet sent over tcp."""
    rank.mark("heard")
    for other in range(rank.size):
        rank.wait_for("heard", other)


def disagree_on_size(rank: Rank) -> None:
    text = error_of(lambda: dist.all_reduce(torch.ones(10 + (rank.rank == 1))))
    stay_until_all_have_heard(rank)
    assert "rank 1" in text, text
    assert "40" in text, text
    assert "44" in text, text
    # Whoever hears of it before it has begun is told of the operation that failed.
    assert "all_reduce #1" in text or "operation 1" in text, text


def disagree_on_operation(rank: Rank) -> None:
    if rank.rank == 1:
        text = error_of(lambda: dist.broadcast(torch.ones(10), 0))
    else:
        text = error_of(lambda: dist.all_reduce(torch.ones(10)))
    stay_until_all_have_heard(rank)
    assert "all_reduce" in text, text
    assert "broadcast" in text, text


def disagree_on_dtype(rank: Rank) -> None:
    dtype = torch.int32 if rank.rank == 1 else torch.float32
    text = error_of(lambda: dist.all_reduce(torch.ones(10, dtype=dtype)))
    stay_until_all_have_heard(rank)
    assert "int32" in text, text
    assert "float32" in text, text


def disagree_on_message_size(rank: Rank) -> None:
    if rank.rank == 0:
        dist.isend(torch.ones(11), 1)
        rank.wait_for("done", 1)
    if rank.rank == 1:
        text = error_of(lambda: dist.recv(torch.ones(10), 0))
        assert "40" in text, text
        assert "44" in text, text
        rank.mark("done")


def wait_with_a_limit(rank: Rank) -> None:
    if rank.rank == 1:
        rank.wait_for("given up", 0)
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    if rank.rank == 0:
        started = time.monotonic()
        text = error_of(lambda: work.wait(timedelta(milliseconds=200)))
        assert 0.15 < time.monotonic() - started < 5
        assert "all_reduce #1" in text, text
        assert "200 ms" in text, text
        assert not work.is_completed()
        rank.mark("given up")
    work.wait()
    assert tensor[0].item() == rank.size
    dist.barrier()


def abort_for_all(rank: Rank) -> None:
    dist.barrier()
    if rank.rank == 1:
        rank.wait_for("waiting", 0)
        time.sleep(0.2)
        dist.group.WORLD.abort()
        assert "abort" in error_of(lambda: dist.barrier())
        return
    rank.mark("waiting")
    started = time.monotonic()
    text = error_of(lambda: dist.all_reduce(torch.ones(10)))
    assert time.monotonic() - started < 5
    assert "rank 1 aborted" in text, text


def leave_early(rank: Rank) -> None:
    dist.barrier()
    if rank.rank == 1:
        dist.destroy_process_group()
        return
    text = error_of(lambda: dist.all_reduce(torch.ones(10)))
    assert "rank 1" in text, text


@pytest.mark.parametrize(("size", "victim"), [(3, 0), (3, 2), (4, 1)])
@pytest.mark.parametrize("count", [1000, BIG])
def test_death_inside_all_reduce(wire: str, size: int, victim: int, count: int) -> None:
    with nothing_left_behind():
        run_ranks(survive_death_inside, size, victim, count, wire=wire, killed=[victim])


@pytest.mark.parametrize(("size", "victim"), [(2, 1), (3, 1), (4, 0)])
def test_death_before_all_reduce(wire: str, size: int, victim: int) -> None:
    with nothing_left_behind():
        run_ranks(survive_death_before, size, victim, wire=wire, killed=[victim])


def test_death_of_a_sender(wire: str) -> None:
    run_ranks(survive_death_of_sender, 2, wire=wire, killed=[1])


def test_death_and_the_queue(wire: str) -> None:
    run_ranks(see_queued_work_fail, 3, wire=wire, killed=[1])


def test_errors_name_global_ranks(wire: str) -> None:
    run_ranks(name_global_ranks, 3, wire=wire, killed=[2])


@pytest.mark.parametrize("size", [2, 3])
def test_absence(wire: str, size: int) -> None:
    run_ranks(miss_a_rank, size, wire=wire, join=False)


def test_absence_of_a_message(wire: str) -> None:
    run_ranks(miss_a_message, 2, wire=wire, join=False)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("function", [disagree_on_size, disagree_on_operation, disagree_on_dtype])
def test_disagreement(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, wire=wire)


def test_disagreement_on_a_message(wire: str) -> None:
    run_ranks(disagree_on_message_size, 2, wire=wire)


@pytest.mark.parametrize("function", [wait_with_a_limit, abort_for_all, leave_early])
def test_limits_and_endings(function: object, wire: str) -> None:
    run_ranks(function, 3, wire=wire)


def test_uncaught_exception_is_told_to_the_others(wire: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            import torch.distributed as dist, torch, braid
            rank = int(sys.argv[1])
            dist.init_process_group("braid", store=dist.FileStore(sys.argv[2]), rank=rank, world_size=2)
            dist.barrier()
            if rank == 1:
                raise KeyError("lost")
            try:
                dist.all_reduce(torch.ones(4))
            except dist.DistBackendError as error:
                print(error)
        """)
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, script, str(rank), tmp_path / "store"],
            env={**os.environ, "BRAID_TRANSPORTS": wire},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    heard, died = (rank.communicate(timeout=100)[0] for rank in ranks)
    assert "rank 1" in heard, heard
    assert "KeyError" in heard, heard
    assert ranks[0].returncode == 0, heard
    assert "KeyError: 'lost'" in died, died
