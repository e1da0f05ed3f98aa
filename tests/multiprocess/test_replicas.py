# SPDX-License-Identifier: Apache-2.0
"""Servers that are killed while another server keeps a copy of their shards: the rule's state survives."""

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from ranks import Rank, run_ranks
from slowness import limit
from waiting import eventually

pytestmark = pytest.mark.multiprocess

ELEMENTS = 1003
LIMIT_S = limit(60.0)
RANKS, SERVERS, VICTIM = 4, [0, 1, 2], 1
STEPS = 25
MOST_UNSEEN = 16 + RANKS  # the copy is 16 updates old at most
ADAM = {"rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
# Of the request in which the server dies. Its process is a worker, too.
BOUNDARIES = ["idle", "pushing", "pushed", "pulling", "window", "others push"]


def join(rank: Rank, rule: str, mode: str) -> Any:
    import braid

    return braid.Parameters(
        f"file://{rank.folder}/parameters", elements=ELEMENTS, rank=rank.rank, size=RANKS, rule=rule, mode=mode,
        servers=SERVERS, replicas=1, timeout_s=LIMIT_S,
    )  # fmt: skip


def await_copies(parameters: Any) -> None:
    """Wait until the backup has the newest version of this member's shards."""

    def has_all() -> bool:
        told = parameters.stats()
        return bool(told["copied"]) and told["copied"] == told["versions"]

    eventually(has_all, parameters.stats)


def await_death(parameters: Any, values: np.ndarray) -> None:
    """Pull until this worker knows of the death."""
    while parameters.stats()["homes"][VICTIM] == VICTIM:
        parameters.pull(values).wait()


def die_at(boundary: str, parameters: Any, update: np.ndarray, values: np.ndarray) -> None:
    """Be killed at a boundary of this process's own requests, or between two requests of others."""
    if boundary == "pushed":
        parameters.push_pull(update, None, **ADAM).wait()
    if boundary == "pushing":
        parameters.push_pull(update, None, **ADAM)
    if boundary == "pulling":
        parameters.pull(values)
    if boundary == "window":
        for _ in range(4):
            parameters.push_pull(update, None, **ADAM)
    if boundary == "others push":
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


def go_on(rank: Rank, boundary: str) -> dict[str, Any] | None:
    """Push gradients of one sign with Adam; return how the values moved after the death."""
    with join(rank, "adam", "async") as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        update = np.ones(ELEMENTS, np.float32)
        versions = [0] * len(SERVERS)

        def step() -> None:
            nonlocal versions
            request = parameters.push_pull(update, values, **ADAM)
            request.wait()
            now = list(request.versions)
            assert all(a >= b for a, b in zip(now, versions, strict=True)), "versions never fall"
            assert np.isfinite(values).all()
            versions = now

        for _ in range(STEPS):
            step()
        rank.mark("trained")
        for other in range(RANKS):
            rank.wait_for("trained", other, LIMIT_S)
        if rank.rank in SERVERS:
            await_copies(parameters)
        rank.mark("copied")
        for other in range(RANKS):
            rank.wait_for("copied", other, LIMIT_S)
        if rank.rank == VICTIM:
            die_at(boundary, parameters, update, values)
        if boundary == "idle":
            await_death(parameters, values)
        for _ in range(STEPS):
            step()
            time.sleep(0.005)
        await_death(parameters, values)
        rank.mark("over")
        for other in range(RANKS):
            if other != VICTIM:
                rank.wait_for("over", other, LIMIT_S)
        parameters.pull(values).wait()
        told = parameters.stats()
        ends = parameters._core.ends()
        saved = parameters.snapshot()
        shards = np.split(values, ends[:-1])
        assert all((shard == shard[0]).all() for shard in shards), "every update is there whole"
        rank.mark("seen")
        for other in range(RANKS):
            if other != VICTIM:
                rank.wait_for("seen", other, LIMIT_S)
        return {
            "values": [float(shard[0]) for shard in shards],
            "steps": list(saved["steps"]),
            "lost": told["lost_parts"],
            "homes": told["homes"],
            "moments": [float(each[0]) for each in np.split(saved["vectors"][1], ends[:-1])],
        }


@pytest.mark.parametrize(
    "boundary", [pytest.param(each, marks=[] if each == "window" else pytest.mark.long) for each in BOUNDARIES]
)
def test_adam_goes_on_with_its_moments(wire: str, boundary: str) -> None:
    found = run_ranks(go_on, RANKS, boundary, wire=wire, join=False, killed=[VICTIM], timeout_s=200.0)
    left = [each for each in found if each is not None]
    assert len(left) == RANKS - 1
    pushed = STEPS * RANKS + STEPS * (RANKS - 1)
    own = {"idle": (0, 0), "pushing": (0, 1), "pushed": (1, 1), "window": (0, 4)}.get(boundary, (0, 0))
    lost = sum(each["lost"] for each in left)
    for each in left:
        assert each["homes"] == [0, 2, 2]
        for shard in range(len(SERVERS)):
            # Equal gradients: the first moment is 1 - 0.9^steps, near 1. Without the state it begins at 0.1.
            assert each["moments"][shard] == pytest.approx(1.0, abs=1e-3)
            most = pushed + own[1]
            least = pushed + own[0] - (lost if shard == VICTIM else 0)
            if shard == VICTIM:
                least -= MOST_UNSEEN  # nobody else may have seen what was pushed there last
            assert least <= each["steps"][shard] <= most, "nothing is applied twice"
            # Adam moves by the rate in each step, as long as moments and their step count fit each other.
            assert each["values"][shard] == pytest.approx(-ADAM["rate"] * each["steps"][shard], rel=0.02)


PEER_TIMEOUT_S = float(round(limit(3)))


def stand_still(rank: Rank) -> dict[str, Any]:
    """Server 0 holds the whole vector. Its backup, server 1, is stopped for longer than the limit."""
    import braid

    with braid.Parameters(
        f"file://{rank.folder}/parameters",
        elements=ELEMENTS,
        rank=rank.rank,
        size=rank.size,
        rule="add",
        shares=[1, 0, 0],
        replicas=1,
        timeout_s=LIMIT_S,
    ) as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        update = np.ones(ELEMENTS, np.float32)
        longest = 0.0

        def step() -> None:
            nonlocal longest
            began = time.monotonic()
            parameters.push_pull(update, values).wait()
            longest = max(longest, time.monotonic() - began)

        for _ in range(STEPS):
            step()
        rank.mark("trained")
        for other in range(rank.size):
            rank.wait_for("trained", other, LIMIT_S)
        if rank.rank == 0:
            await_copies(parameters)
        rank.mark("copied")
        if rank.rank == 1:
            rank.wait_for("copied", 0, LIMIT_S)
            (rank.folder / "pid").write_text(str(os.getpid()))
            rank.mark("ready")
            told = ""
            try:
                for _ in range(int(LIMIT_S / 0.1)):
                    time.sleep(0.1)
                    parameters.pull(values).wait()
            except braid.CommunicatorError as error:
                told = str(error)
                rank.mark("told")
            began = time.monotonic()
            parameters.close()
            return {"told": told, "closing": time.monotonic() - began}
        rank.wait_for("ready", 1, LIMIT_S)
        pid = int((rank.folder / "pid").read_text())
        if rank.rank == 0:
            os.kill(pid, signal.SIGSTOP)
        rank.mark("stopped")
        rank.wait_for("stopped", 0, LIMIT_S)
        for _ in range(STEPS):
            step()
        if rank.rank == 0:
            await_copies(parameters)  # at the next backup
            os.kill(pid, signal.SIGCONT)
        rank.wait_for("told", 1, LIMIT_S)
        for _ in range(STEPS):
            step()
        rank.mark("pushed")
        for other in (0, 2):
            rank.wait_for("pushed", other, LIMIT_S)
        parameters.pull(values).wait()
        rank.mark("seen")
        for other in (0, 2):
            rank.wait_for("seen", other, LIMIT_S)
        return {"longest": longest, "values": set(values.tolist())}


def test_a_backup_that_stands_still_is_replaced_after_the_limit() -> None:
    first, told, last = run_ranks(
        stand_still, 3, join=False, timeout_s=200.0, environment={"BRAID_PEER_TIMEOUT": str(int(PEER_TIMEOUT_S))}
    )
    assert "stood still" in told["told"]
    assert told["closing"] < LIMIT_S / 4, "nobody is left for whom it could wait"
    for each in (first, last):
        assert each["values"] == {float(7 * STEPS)}, "every update is there once"
        assert each["longest"] < 5 * PEER_TIMEOUT_S
