# SPDX-License-Identifier: Apache-2.0
"""Communicators whose ranks die, stay away, disagree, are interrupted or forked."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import braid
import numpy as np
import pytest
from arrays import join
from leftovers import nothing_left_behind
from ranks import SOON_S, Rank, run_ranks
from slowness import limit
from waiting import eventually

pytestmark = pytest.mark.multiprocess


def die_in_the_middle(rank: Rank, victim: int, started_only: bool) -> None:
    comm = join(rank)
    if rank.rank == victim:
        for other in range(rank.size):
            if other != victim:
                rank.wait_for("waiting", other)
        time.sleep(0.2)
        (rank.folder / "time of death").write_text(repr(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    rank.mark("waiting")
    x = np.ones(1000)
    call = (lambda: comm.iall_reduce(x).wait()) if started_only else (lambda: comm.all_reduce(x))
    with pytest.raises(braid.PeerLostError) as caught:
        call()
    late = time.monotonic() - float((rank.folder / "time of death").read_text())
    assert late < SOON_S
    assert caught.value.rank == victim
    assert "all_reduce #2" in str(caught.value)
    assert f"rank {victim}" in str(caught.value)
    # It stays failed, and says so; the others can go on without the dead.
    with pytest.raises(braid.PeerLostError):
        comm.barrier()
    assert f"rank {victim}" in (comm.failure() or "")
    comm.close()
    survivors = [each for each in range(rank.size) if each != victim]
    left = Rank(survivors.index(rank.rank), len(survivors), rank.folder)
    with join(left) as comm:
        assert comm.all_reduce(np.ones(1)) == len(survivors)


def miss_a_rank(rank: Rank) -> None:
    comm = join(rank)
    comm.set_timeout(3)
    if rank.rank == 2:
        rank.wait_for("heard", 0)
        rank.wait_for("heard", 1)
        with suppress(braid.CommunicatorError):
            comm.all_reduce(np.ones(4))
        return
    started = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        comm.all_reduce(np.ones(4))
    assert 2.5 < time.monotonic() - started < 3 + SOON_S
    assert isinstance(caught.value, braid.CommunicatorTimeoutError)
    # A rank whose threads do not get their turn within the time for an answer is named, too: then it is late.
    assert caught.value.rank == 2, str(caught.value)
    assert "not there yet: rank 2" in str(caught.value), str(caught.value)
    rank.mark("heard")


def give_wrong_arguments(rank: Rank) -> None:
    n, r = rank.size, rank.rank
    comm = join(rank)
    fixed = np.ones(3)
    fixed.flags.writeable = False
    wrong = [
        lambda: comm.all_reduce(fixed),
        lambda: comm.all_reduce(np.ones(3), "median"),
        lambda: comm.all_reduce(np.ones(3), out=np.ones(4)),
        lambda: comm.all_reduce(np.ones(3), out=np.ones(3, np.float32)),
        lambda: comm.broadcast(np.ones(3), n),
        lambda: comm.iall_to_all(np.ones(n + 1)),
        lambda: comm.all_gather(np.ones(3), counts=[3] * (n + 1)),
        lambda: comm.send(np.ones(3), r),
        lambda: comm.recv(np.ones(3), n),
        lambda: comm.send(np.ones(3), (r + 1) % n, tag=-1),
        lambda: comm.all_gather(fixed[:2], out=np.ones(2 * n)[: 2 * n].reshape(n, 2)[:, :1]),
    ]
    for call in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            call()
    whole = np.ones(2 * n)
    with pytest.raises(ValueError, match="overlap"):
        comm.all_to_all(whole, out=whole)
    assert comm.all_reduce(np.ones(3)).tolist() == [n] * 3
    # Ranks that disagree are told so.
    with pytest.raises(braid.CommunicatorError, match="disagree"):
        comm.all_reduce(np.ones(3 + (r == 0)))


def wait_too_briefly(rank: Rank) -> None:
    with join(rank) as comm:
        if rank.rank == 1:
            rank.wait_for("given up", 0)
        request = comm.iall_reduce(np.ones(3))
        if rank.rank == 0:
            with pytest.raises(braid.CommunicatorTimeoutError, match="150 ms"):
                request.wait(0.15)
            assert not request.test()
            rank.mark("given up")
        assert request.wait().tolist() == [rank.size] * 3


def interrupt(rank: Rank) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with join(rank) as comm:
        if rank.rank == 1:
            rank.wait_for("interrupted", 0)
            assert comm.all_reduce(np.full(3, 5.0)).tolist() == [6] * 3
            comm.send(np.full(3, 7.0), 0)
        else:
            x, y = np.ones(3), np.zeros(3)
            for call in (lambda: comm.all_reduce(x), lambda: comm.recv(y, 1)):
                sent: list[float] = []

                def press_control_c(sent: list[float] = sent) -> None:
                    sent.append(time.monotonic())
                    os.kill(os.getpid(), signal.SIGINT)

                threading.Timer(0.3, press_control_c).start()
                with pytest.raises(KeyboardInterrupt):
                    call()
                assert time.monotonic() - sent[0] < SOON_S, "0.05 s on an idle machine"
            rank.mark("interrupted")
        # What was interrupted went on, and nothing is out of step.
        assert comm.all_reduce(np.full(2, 1.0)).tolist() == [2, 2]
        if rank.rank == 0:
            assert x.tolist() == [6] * 3
            # A collective may end before a receive that began earlier.
            eventually(lambda: y.tolist() == [7] * 3, lambda: f"[7, 7, 7], now {y.tolist()},")


def fork_a_child(rank: Rank) -> None:
    comm = join(rank)
    request = comm.iall_reduce(np.ones(3))
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            for call in (comm.barrier, request.wait, comm.stats):
                with pytest.raises(braid.CommunicatorError, match="fork"):
                    call()
            comm.close()
            with braid.Communicator(f"file://{rank.folder}/child{rank.rank}", rank=0, size=1) as alone:
                assert alone.all_reduce(np.ones(1)) == 1
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert request.wait().tolist() == [rank.size] * 3
    comm.barrier()
    comm.close()
    with pytest.raises(braid.CommunicatorError, match="closed"):
        comm.barrier()


def abort_for_all(rank: Rank) -> None:
    comm = join(rank)
    rank.meet("joined")
    if rank.rank == 1:
        with pytest.raises(KeyError), comm:
            raise KeyError("lost")
        return
    with pytest.raises(braid.CommunicatorError, match="rank 1 aborted the group: KeyError") as caught:
        comm.all_reduce(np.ones(3))
    assert caught.value.rank == 1


@pytest.mark.parametrize(("victim", "started_only"), [(0, True), (2, False)])
def test_death(wire: str, victim: int, started_only: bool) -> None:
    with nothing_left_behind():
        run_ranks(die_in_the_middle, 3, victim, started_only, wire=wire, join=False, killed=[victim])


def test_absence(wire: str) -> None:
    run_ranks(miss_a_rank, 3, wire=wire, join=False)


@pytest.mark.parametrize(
    "function", [give_wrong_arguments, wait_too_briefly, interrupt, fork_a_child, abort_for_all]
)
def test_mishaps(function: object) -> None:
    run_ranks(function, 2, wire="shm,tcp", join=False)


def test_ends_of_programs(tmp_path: Path) -> None:
    """One ends without close(), one by an exception, which the other hears of."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import sys, braid, numpy as np
            rank = int(sys.argv[1])
            comm = braid.Communicator(f"file://{sys.argv[2]}", rank=rank, size=2)
            if rank == 1:
                comm.recv(np.ones(1), 0)  # a rank that still joins would hear of the error there
                raise KeyError("lost")
            try:
                comm.send(np.ones(1), 1)
                comm.all_reduce(np.ones(10))
            except braid.CommunicatorError as error:
                print(error)
        """)
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, script, str(rank), tmp_path / "meet"],
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
