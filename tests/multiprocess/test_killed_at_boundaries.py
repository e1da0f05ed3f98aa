# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed at each boundary of their requests: the others go on, and no update counts twice."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import Rank, run_ranks
from slowness import limit

pytestmark = pytest.mark.multiprocess

ELEMENTS = 1003
LIMIT_S = limit(120.0)
SERVERS = 2
BASE = 8  # more than a worker pushes: digits to this base tell the workers apart
# When a worker dies -> how many of its updates must be there, and how many may be.
BOUNDARIES = {
    "joined": (0, 0),
    "started": (0, 0),
    "pushing": (0, 1),
    "pushed": (1, 1),
    "pulling": (1, 1),
    "window": (1, 5),
}


def die_at(boundary: str, parameters, own: np.ndarray) -> None:
    """Make requests up to a boundary. The caller kills the process then."""
    if boundary == "joined":
        return
    values = parameters.start(own)
    if boundary == "started":
        return
    request = parameters.push_pull(own, None)
    if boundary == "pushing":
        return
    request.wait()
    if boundary == "pulling":
        parameters.pull(values)
    if boundary == "window":
        for _ in range(4):
            parameters.push_pull(own, None)


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:  # it is gone, perhaps while it was read
        return True


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def join(rank: Rank):
    import braid

    return braid.Parameters(
        f"file://{rank.folder}/parameters", elements=ELEMENTS, rank=rank.rank, size=SERVERS, rule="add",
        late=rank.rank >= SERVERS, timeout_s=LIMIT_S,
    )  # fmt: skip


def run(rank: Rank) -> dict | None:
    """Train on the first ranks; on the others come late, and be killed."""
    if rank.rank >= SERVERS:
        for server in range(SERVERS):
            rank.wait_for("begun", server, LIMIT_S)
        boundary = list(BOUNDARIES)[rank.rank - SERVERS]
        die_at(boundary, join(rank), np.full(ELEMENTS, BASE ** (rank.rank - SERVERS), np.float32))
        (rank.folder / f"pid.{rank.rank}").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    with join(rank) as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        ones = np.full(ELEMENTS, BASE ** len(BOUNDARIES), np.float32)
        parameters.push_pull(ones, values).wait()
        before = descriptors()
        rank.mark("begun")
        versions, steps, after = [0] * SERVERS, 1, 0
        begun = time.monotonic()
        while after < 5:  # steps after the last death
            pids = [rank.folder / f"pid.{SERVERS + i}" for i in range(len(BOUNDARIES))]
            if all(pid.exists() and pid.read_text() and has_ended(int(pid.read_text())) for pid in pids):
                after += 1
            assert time.monotonic() - begun < LIMIT_S, [pid.name for pid in pids if not pid.exists()]
            if steps < 20:
                request = parameters.push_pull(ones, values)
                steps += 1
            else:  # more would not be exact in float32
                request = parameters.pull(values)
            request.wait()
            now = list(request.versions)
            assert all(a >= b for a, b in zip(now, versions, strict=True)), "versions never fall"
            versions = now
            time.sleep(0.02)
        # Looked at once each time: a thread that reads the rendezvous has one more open for a moment.
        while (left := descriptors()) > before and time.monotonic() - begun < LIMIT_S:
            time.sleep(0.05)
        rank.mark("over")
        for server in range(SERVERS):
            rank.wait_for("over", server, LIMIT_S)
        parameters.pull(values).wait()
        shards = np.split(values, parameters._core.ends()[:-1])
        assert all((shard == shard[0]).all() for shard in shards), "every update is there whole"
        return {"left": left - before, "steps": steps, "sums": [int(shard[0]) for shard in shards]}


def test_no_boundary_harms_the_others(wire: str) -> None:
    size = SERVERS + len(BOUNDARIES)
    first, second, *_ = run_ranks(run, size, wire=wire, join=False, killed=range(SERVERS, size), timeout_s=280.0)
    assert max(first["left"], second["left"]) <= 0, "descriptors of the dead are closed"
    for number in first["sums"]:
        for least, most in BOUNDARIES.values():
            number, updates = divmod(number, BASE)
            assert least <= updates <= most
        assert number == first["steps"] + second["steps"]
