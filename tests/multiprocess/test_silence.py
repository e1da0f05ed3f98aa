# SPDX-License-Identifier: Apache-2.0
"""Ranks that are there and say nothing: stopped processes count as lost, those that only work do not."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import braid
import numpy as np
import pytest
from arrays import join
from ranks import Rank, run_ranks
from slowness import limit

pytestmark = pytest.mark.multiprocess

VICTIM = 1
# How much later than BRAID_PEER_TIMEOUT a silent rank is named, at most.
LATE_S = limit(10.0)
LARGE = 4_000_000

Call = Callable[[braid.Communicator], object]
CALLS: dict[str, Call] = {
    "small all_reduce": lambda comm: comm.all_reduce(np.ones(4)),
    "large all_reduce": lambda comm: comm.all_reduce(np.ones(LARGE, np.float32)),
    "barrier": lambda comm: comm.barrier(),
    "recv": lambda comm: comm.recv(np.ones(4), VICTIM),
    "recv from any": lambda comm: comm.recv(np.ones(4)),
    "large send": lambda comm: comm.send(np.ones(LARGE, np.float32), VICTIM),
    "async all_reduce": lambda comm: comm.iall_reduce(np.ones(4)).wait(),
}

COLLECTIVES = {name for name in CALLS if "all_reduce" in name or name == "barrier"}


def stop(rank: Rank, place: str) -> None:
    """Stop this process until go_on()."""
    (rank.folder / "pid").write_text(str(os.getpid()))
    rank.mark(place)
    os.kill(os.getpid(), signal.SIGSTOP)


def go_on(rank: Rank) -> None:
    os.kill(int((rank.folder / "pid").read_text()), signal.SIGCONT)


def try_to(comm: braid.Communicator, name: str, is_victim: bool) -> None:
    if not is_victim or name in COLLECTIVES:
        CALLS[name](comm)
    comm.barrier()  # the one that was stopped may have found all messages of the first operation


def miss_the_stopped(rank: Rank, timeout_s: float) -> None:
    for name in CALLS:
        comm = join(rank, name=name, timeout_s=60.0)
        comm.all_reduce(np.ones(4))
        if rank.rank == VICTIM:
            stop(rank, name)
            went_on = time.monotonic()
        else:
            rank.wait_for(name, VICTIM)
        began = time.monotonic()
        if rank.rank != VICTIM:
            rank.meet(f"{name} begins", (0, 2))  # else one could hear of it from the other, and too early
        with pytest.raises(braid.PeerLostError) as caught:
            try_to(comm, name, is_victim=rank.rank == VICTIM)
        took_s = time.monotonic() - began
        text = str(caught.value)
        assert caught.value.rank == VICTIM, (name, text)
        assert "has not answered rank " in text, text
        assert f"for {timeout_s:g} s" in text, text
        assert "BRAID_PEER_TIMEOUT" in text, text
        assert f"rank {VICTIM} on " in text, text
        assert f"pid {(rank.folder / 'pid').read_text()}" in text, text
        if rank.rank == VICTIM:
            assert time.monotonic() - went_on < LATE_S, f"{name}: it waited after it had gone on: {text}"
        else:
            assert timeout_s * 0.9 < took_s < timeout_s + LATE_S, (name, took_s, text)
        rank.mark(f"{name} heard")
        if rank.rank == 0:
            rank.wait_for(f"{name} heard", 2)
            go_on(rank)
        comm.close()


@pytest.mark.slow
@pytest.mark.long_over_tcp
def test_a_stopped_rank_is_lost(wire: str) -> None:
    run_ranks(miss_the_stopped, 3, 3, wire=wire, join=False, environment={"BRAID_PEER_TIMEOUT": "3"})


def wait_for_the_stopped(rank: Rank, values: list[str]) -> None:
    for value in values:
        os.environ["BRAID_PEER_TIMEOUT"] = value
        with join(rank, name=f"timeout {value}") as comm:
            if rank.rank == VICTIM:
                stop(rank, value)
            elif rank.rank == 0:
                rank.wait_for(value, VICTIM)
                threading.Timer(4, go_on, (rank,)).start()
            assert comm.all_reduce(np.full(LARGE, rank.rank, np.float32))[-1] == sum(range(rank.size))


@pytest.mark.long
def test_a_longer_timeout_or_none_waits(wire: str) -> None:
    run_ranks(wait_for_the_stopped, 3, ["60", "never", "0"], wire=wire, join=False)


def work_meanwhile(rank: Rank, seconds: float) -> None:
    with join(rank) as comm:
        comm.barrier()
        if rank.rank == VICTIM:
            ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # without giving up the GIL
        assert comm.all_reduce(np.ones(4))[0] == rank.size
        if rank.rank == VICTIM:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                pass
        assert comm.all_reduce(np.ones(LARGE, np.float32))[-1] == rank.size


@pytest.mark.slow
@pytest.mark.long_over_tcp
def test_a_rank_that_works_is_not_silent(wire: str) -> None:
    peer_timeout_s = round(limit(2))
    environment = {"BRAID_PEER_TIMEOUT": str(peer_timeout_s)}
    run_ranks(work_meanwhile, 3, 3.25 * peer_timeout_s, wire=wire, join=False, environment=environment)


def crowd(rank: Rank, seconds: float) -> None:
    stopped = threading.Event()

    def compute() -> None:
        x = np.ones((200, 200))
        while not stopped.is_set():
            x = np.tanh(x @ x)

    threading.Thread(target=compute).start()
    try:
        with join(rank, timeout_s=100.0) as comm:
            until = time.monotonic() + seconds
            while comm.all_reduce(np.array([time.monotonic() < until], np.float32))[0] == rank.size:
                assert comm.all_reduce(np.ones(300_000, np.float32))[-1] == rank.size
    finally:
        stopped.set()


@pytest.mark.long
def test_a_crowd_is_not_silent(wire: str) -> None:
    # Eight busy ranks, far more than there are cores, and the shortest timeout that holds on this machine.
    peer_timeout_s = round(limit(2))
    environment = {"BRAID_PEER_TIMEOUT": str(peer_timeout_s)}
    run_ranks(crowd, 8, 4.0 * peer_timeout_s, wire=wire, join=False, environment=environment)


@pytest.mark.parametrize("value", ["1", "-3", "1.5", "soon", "1000001"])
def test_other_values_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("BRAID_PEER_TIMEOUT", value)
    with pytest.raises(ValueError, match=f"BRAID_PEER_TIMEOUT={value}: expected seconds from 2"):
        join(Rank(0, 1, tmp_path))
