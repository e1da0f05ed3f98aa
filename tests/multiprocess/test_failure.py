# SPDX-License-Identifier: Apache-2.0
"""Ranks that stay away, give up or leave: everybody else hears of it soon, and by name."""

import os
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import SOON_S, Rank, error_of, run_ranks
from slowness import limit

pytestmark = pytest.mark.multiprocess


def miss_a_rank(rank: Rank) -> None:
    rank.join()
    dist.barrier()
    rank.set_timeout(3)
    if rank.rank == 1:
        for other in range(rank.size):
            if other != rank.rank:
                rank.wait_for("heard", other)
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
    assert 2.5 < waited < 3 + SOON_S, f"{waited} s: {text}"
    assert "timed out" in text, text
    assert "rank 1" in text, text
    assert "all_reduce #2" in text, text
    rank.mark("heard")


def miss_a_message(rank: Rank) -> None:
    rank.join()
    rank.set_timeout(1)
    if rank.rank == 0:
        text = error_of(lambda: dist.recv(torch.zeros(4), 1, tag=9))
        assert "rank 1" in text, text
        assert "tag 9" in text, text
        assert "timed out" in text, text
        rank.mark("done")
    else:
        rank.wait_for("done", 0)


def wait_with_a_limit(rank: Rank) -> None:
    if rank.rank == 1:
        rank.wait_for("given up", 0)
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    if rank.rank == 0:
        started = time.monotonic()
        text = error_of(lambda: work.wait(timedelta(milliseconds=200)))
        assert 0.15 < time.monotonic() - started < SOON_S
        assert "all_reduce #1" in text, text
        assert "200 ms" in text, text
        assert not work.is_completed()
        rank.mark("given up")
    work.wait()
    assert tensor[0].item() == rank.size
    dist.barrier()


def abort_for_all(rank: Rank) -> None:
    dist.barrier()
    rank.meet("through")  # one rank may still be in the barrier
    if rank.rank == 1:
        rank.wait_for("waiting", 0)
        time.sleep(0.2)
        dist.group.WORLD.abort()
        assert "abort" in error_of(lambda: dist.barrier())
        return
    rank.mark("waiting")
    started = time.monotonic()
    text = error_of(lambda: dist.all_reduce(torch.ones(10)))
    assert time.monotonic() - started < SOON_S
    assert "rank 1 aborted" in text, text


def leave_early(rank: Rank) -> None:
    dist.barrier()
    rank.meet("through")
    if rank.rank == 1:
        dist.destroy_process_group()
        return
    text = error_of(lambda: dist.all_reduce(torch.ones(10)))
    assert "rank 1" in text, text


@pytest.mark.parametrize("size", [2, 3])
def test_absence(wire: str, size: int) -> None:
    run_ranks(miss_a_rank, size, wire=wire, join=False)


def test_absence_of_a_message(wire: str) -> None:
    run_ranks(miss_a_message, 2, wire=wire, join=False)


@pytest.mark.parametrize("function", [wait_with_a_limit, abort_for_all, leave_early])
def test_limits_and_endings(function: object, wire: str) -> None:
    run_ranks(function, 3, wire=wire)


@pytest.mark.long_over_tcp
def test_uncaught_exception_is_told_to_the_others(wire: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            import torch.distributed as dist, torch, braid
            rank = int(sys.argv[1])
            dist.init_process_group("braid", store=dist.FileStore(sys.argv[2]), rank=rank, world_size=2)
            if rank == 1:
                dist.recv(torch.ones(1), 0)  # a rank that still joins would hear of the error there
                raise KeyError("lost")
            try:
                dist.send(torch.ones(1), 1)
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
    heard, died = (rank.communicate(timeout=limit(200))[0] for rank in ranks)
    assert "rank 1" in heard, heard
    assert "KeyError" in heard, heard
    assert ranks[0].returncode == 0, heard
    assert "KeyError: 'lost'" in died, died
