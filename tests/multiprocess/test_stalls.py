# SPDX-License-Identifier: Apache-2.0
"""Operations that wait long say for whom, on standard error, in the counters and in the flight record."""

import os
import re
import signal
import threading
from typing import Any

import braid
import numpy as np
import pytest
import torch
import torch.distributed as dist
from arrays import join
from hosts_apart import join_apart
from ranks import SOON_S, Rank, run_ranks
from stopped import stop_soon, stopped
from waiting import eventually

pytestmark = pytest.mark.multiprocess


def lines_of(rank: Rank, about: str) -> list[str]:
    """Return what rank 0 has said so far."""
    text = (rank.folder / "log.0").read_text()
    return [line for line in text.splitlines() if line.startswith("braid: ") and about in line]


def wait_for_lines(rank: Rank, about: str, count: int = 1) -> None:
    eventually(lambda: len(lines_of(rank, about)) >= count, lambda: lines_of(rank, ""))


def wait_for_a_stopped_rank(rank: Rank, apart: bool) -> None:
    if apart:
        join_apart(rank)
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    if rank.rank == 1:
        stop_soon(rank, "stop")
        dist.all_reduce(torch.ones(1000))
        return
    seen: dict[str, Any] = {}

    def look(pid: int) -> None:
        wait_for_lines(rank, "all_reduce #4", 2)
        seen["stats"] = braid.stats()[0]
        seen["record"] = braid.flight_record()["entries"][-1]
        os.kill(pid, signal.SIGCONT)

    with stopped(rank, "stop"):
        pid = int((rank.folder / "pid.1").read_text())
        watcher = threading.Thread(target=look, args=(pid,))
        watcher.start()
        dist.all_reduce(torch.ones(1000))
        watcher.join()
    (waiting,) = seen["stats"]["waiting"]
    assert waiting["operation"].startswith("all_reduce #4 (sum, float32, 4000 bytes"), waiting
    assert waiting["ranks"] == [1]
    assert waiting["seconds"] > 1
    assert seen["stats"]["notices"] >= 1
    assert seen["stats"]["longest_wait_s"] > 1
    assert seen["record"]["state"] == "started"
    assert seen["record"]["awaited_ranks"] == [1]

    first, second, *_, ended = lines_of(rank, "all_reduce #4")
    waited = [float(re.findall(r"rank 0 has waited ([\d.]+) s in", line)[0]) for line in (first, second)]
    assert 1 <= waited[0] < waited[1] < SOON_S, waited
    state = "did not answer when asked" if apart else "has not begun it; its last operation was #3"
    assert f"(pid {pid}) {state}" in first, first
    assert "has ended after" in ended, ended
    after = braid.stats()[0]
    assert after["waiting"] == []
    assert after["notices"] >= 2
    assert braid.flight_record()["entries"][-1]["awaited_ranks"] == []


def wait_for_a_message(rank: Rank) -> None:
    tensor = torch.zeros(1_000_000)
    dist.barrier()
    if rank.rank == 1:
        wait_for_lines(rank, "recv from rank 1")
        dist.send(tensor, 0, tag=5)
    else:
        dist.recv(tensor, 1, tag=5)
        first, *_, ended = lines_of(rank, "recv from rank 1")
        assert "(tag 5, 4000000 bytes)" in first, first
        assert first.endswith("no message was announced"), first
        assert "has ended after" in ended, ended


def wait_for_a_member(rank: Rank) -> None:
    if rank.rank == 2:
        wait_for_lines(rank, "waiting for rank 2 of 3; 2 have come")
    comm = join(rank)
    assert comm.all_reduce(np.ones(1)) == rank.size
    comm.close()
    if rank.rank == 0:
        # On a busy machine the all_reduce may have waited, too.
        assert "has ended after" in lines_of(rank, "the rendezvous of group")[-1]


@pytest.mark.parametrize("apart", [False, True])
def test_a_stopped_rank_is_named(apart: bool) -> None:
    run_ranks(
        wait_for_a_stopped_rank,
        *(2, apart),
        wire="shm,tcp",
        join=not apart,
        environment={"BRAID_STALL_NOTICE": "1"},
    )


def test_a_message_that_does_not_come_is_named(wire: str) -> None:
    run_ranks(wait_for_a_message, 2, wire=wire, environment={"BRAID_STALL_NOTICE": "1"})


def test_a_member_that_does_not_come_is_named(wire: str) -> None:
    run_ranks(wait_for_a_member, 3, wire=wire, join=False, environment={"BRAID_STALL_NOTICE": "1"})
