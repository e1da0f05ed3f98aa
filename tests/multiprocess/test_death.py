# SPDX-License-Identifier: Apache-2.0
"""Ranks that die: everybody else hears of it soon, and by name, and can go on without them."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from leftovers import nothing_left_behind
from ranks import SOON_S, Rank, error_of, run_ranks
from slowness import limit

pytestmark = pytest.mark.multiprocess

BIG = 4_000_000


def die(rank: Rank) -> None:
    (rank.folder / "time of death").write_text(repr(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def seconds_since_death(rank: Rank) -> float:
    return time.monotonic() - float((rank.folder / "time of death").read_text())


def all_reduce_until_it_fails(count: int) -> str:
    def repeat() -> None:
        while True:
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
    rank.meet("begun")
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
        for other in range(rank.size):
            if other != victim:
                rank.wait_for("waiting", other)
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
        for other in (0, 2):
            rank.wait_for("waiting", other)
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


@pytest.mark.parametrize(("size", "victim"), [(3, 0), (3, 2), pytest.param(4, 1, marks=pytest.mark.long)])
@pytest.mark.parametrize("count", [1000, BIG])
def test_death_inside_all_reduce(wire: str, size: int, victim: int, count: int) -> None:
    with nothing_left_behind():
        run_ranks(survive_death_inside, size, victim, count, wire=wire, killed=[victim])


@pytest.mark.parametrize(("size", "victim"), [(2, 1), (3, 1), pytest.param(4, 0, marks=pytest.mark.long)])
def test_death_before_all_reduce(wire: str, size: int, victim: int) -> None:
    with nothing_left_behind():
        run_ranks(survive_death_before, size, victim, wire=wire, killed=[victim])


def test_death_of_a_sender(wire: str) -> None:
    run_ranks(survive_death_of_sender, 2, wire=wire, killed=[1])


def test_death_and_the_queue(wire: str) -> None:
    run_ranks(see_queued_work_fail, 3, wire=wire, killed=[1])


def test_errors_name_global_ranks(wire: str) -> None:
    run_ranks(name_global_ranks, 3, wire=wire, killed=[2])


@pytest.mark.long
def test_torchrun_starts_again_after_a_death(wire: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import os, signal, torch, torch.distributed as dist
            dist.init_process_group()
            turn = os.environ["TORCHELASTIC_RESTART_COUNT"]
            total = torch.ones(1 << 20)
            for step in range(5):
                if step == 3 and turn == "0" and dist.get_rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                dist.all_reduce(total.fill_(1))
            if dist.get_rank() == 0:
                print("sum", total[-1].item(), "by", dist.get_backend(), "in turn", turn)
            dist.destroy_process_group()
        """)
    )
    command = [sys.executable, "-m", "braid.cli", "run", "--nproc", "3", "--max-restarts", "1", str(script)]
    with nothing_left_behind():
        done = subprocess.run(
            command,
            env={**os.environ, "BRAID_TRANSPORTS": wire},
            capture_output=True,
            text=True,
            timeout=limit(250),
        )
    assert done.returncode == 0, done.stderr
    assert "sum 3.0 by braid in turn 1" in done.stdout, done.stdout + done.stderr
