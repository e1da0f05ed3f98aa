# SPDX-License-Identifier: Apache-2.0
"""`braid serve --memory`: what a server does that would need more than it may use."""

import os
import signal

import numpy as np
import pytest
from braid._array.servers.terms import Vector
from ports import free_port
from ranks import Rank, run_ranks
from serving import LIMIT_S, serving, start

pytestmark = pytest.mark.multiprocess

ELEMENTS = 1003
# Of two servers, each has just what it needs for its half.
JUST_ENOUGH = str(Vector("parameters", ELEMENTS, "add").needs(2, 2)[1])


def outlive(rank: Rank, where: str, victim: int, brings_third: bool) -> tuple[str, float]:
    """Return the error after one server was killed, and the least value."""
    import braid

    third = None
    with braid.Parameters(
        where,
        elements=ELEMENTS,
        rule="add",
        rank=rank.rank,
        size=rank.size,
        servers="serve:2",
        timeout_s=LIMIT_S,
    ) as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        update = np.ones(ELEMENTS, np.float32)
        parameters.push_pull(update, values).wait()
        rank.mark("pushed")
        rank.wait_for("pushed", 1 - rank.rank)
        if rank.rank == 0:
            os.kill(victim, signal.SIGKILL)
            third = start(where, name="third") if brings_third else None
            rank.mark("killed")
        # Whoever pushes before the kill loses nothing.
        rank.wait_for("killed", 0)
        error = ""
        try:
            parameters.push_pull(update, values).wait()
        except braid.CommunicatorError as caught:
            error = str(caught)
        rank.mark("over")
        rank.wait_for("over", 1 - rank.rank)
    if third is not None:
        assert third.wait(LIMIT_S) == 0
    return error, float(values.min())


@pytest.mark.parametrize("brings_third", [True, pytest.param(False, marks=pytest.mark.long)])
def test_no_memory_for_the_shard_of_one_that_was_killed(brings_third: bool) -> None:
    where = f"tcp://127.0.0.1:{free_port()}"
    with serving(where, 2, "--memory", JUST_ENOUGH) as processes:
        found = run_ranks(outlive, 2, where, processes[1].pid, brings_third, join=False, timeout_s=300.0)
    if brings_third:
        assert [error for error, _ in found] == ["", ""]
        assert all(least >= 2 for _, least in found)
        return
    for error, _ in found:
        assert "no parameter server that is left has memory for a shard" in error
        assert "start another `braid serve`, or give each more with --memory" in error


def come_late(rank: Rank, where: str) -> str:
    """Return the error of a worker that comes late."""
    import braid

    is_late = rank.rank == 2
    if is_late:
        rank.wait_for("begun", 0)
    try:
        with braid.Parameters(
            where,
            elements=ELEMENTS,
            rule="sgd:compensates",
            rank=rank.rank,
            size=2,
            servers="serve:2",
            late=is_late,
            timeout_s=LIMIT_S,
        ) as parameters:
            values = parameters.start(np.zeros(ELEMENTS, np.float32))
            rank.mark("begun")
            rank.wait_for("over", 2)
            parameters.push_pull(values, values, rate=0.1).wait()
    except braid.CommunicatorError as error:
        rank.mark("over")
        return str(error)
    return ""


def test_no_memory_for_a_worker_that_comes_late() -> None:
    where = f"tcp://127.0.0.1:{free_port()}"
    needed = str(Vector("parameters", ELEMENTS, "sgd:compensates").needs(2, 2)[1])
    with serving(where, 2, "--memory", needed):
        first, second, late = run_ranks(come_late, 3, where, join=False, timeout_s=300.0)
    assert (first, second) == ("", "")
    assert "has no memory for one worker more than the 2 that are here: give it more with --memory" in late
