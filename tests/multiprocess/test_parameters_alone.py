# SPDX-License-Identifier: Apache-2.0
"""``braid.Parameters`` with its shards in processes of `braid serve`."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from ports import free_port
from ranks import Rank, run_ranks
from serving import LIMIT_S, said_by, serving, start
from slowness import limit
from sockets import cut_connections_to
from stopped import stop_soon, stopped
from waiting import eventually

pytestmark = pytest.mark.multiprocess

ELEMENTS = 1003
STEPS = 20
STOPPED_S = min(limit(5.0), 12.0)  # less than three quarters of BRAID_PEER_TIMEOUT, 20 s


def join(rank: Rank, where: str, servers, **options):
    import braid

    given = {"rule": "sgd:momentum", "mode": "sync", "size": rank.size, **options}
    return braid.Parameters(where, elements=ELEMENTS, rank=rank.rank, servers=servers, timeout_s=LIMIT_S, **given)


def minimise(rank: Rank, where: str, servers, **options) -> tuple[list[float], dict]:
    """Return the values at the end, and what the service counted."""
    target = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    with join(rank, where, servers, **options) as parameters:
        values = parameters.start(np.full(ELEMENTS, float(rank.rank), np.float32))
        for step in range(STEPS):
            gradient = (values - target) * np.float32(1 + rank.rank + step % 3)
            parameters.push_pull(gradient, values, rate=0.02, momentum=0.5).wait()
        return values.tolist(), parameters.stats()


def places(rank: Rank, where: str) -> list[float]:
    """Train with the shards in several places; the bits must be the same everywhere."""
    expected, counted = minimise(rank, where, None)
    assert counted["homes"] == list(range(rank.size))
    for servers, shards in (("serve:2", 2), ("ranks+serve:2", rank.size + 2), ([1, "serve:1"], 2)):
        values, counted = minimise(rank, where, servers, name=f"in {servers}")
        assert len(counted["homes"]) == shards
        assert values == expected
    os.environ["BRAID_PARAMETER_SERVERS"] = "2"
    values, counted = minimise(rank, where, None, name="by variable", shares=[1, 3])
    assert counted["bytes"] == 0, "no shard lies in a rank"
    assert len(counted["homes"]) == 2
    del os.environ["BRAID_PARAMETER_SERVERS"]
    return values


def test_servers_alone_compute_what_servers_in_ranks_do() -> None:
    where = f"tcp://127.0.0.1:{free_port()}"
    with serving(where, 2) as processes:
        found = run_ranks(places, 3, where, join=False, timeout_s=300.0)
        assert found[1:] == found[:1] * 2
    for process in processes:
        said = said_by(process)
        assert process.returncode == 0, said
        assert said.count(f" is over after {3 * STEPS} updates") >= 3, said
        assert "Traceback" not in said


def outlive(rank: Rank, where: str, victims: list[int], pids: list[int]) -> tuple[list[int], int, float]:
    """Push ones while one server is interrupted or killed; return versions, lost parts and the least value."""
    with join(rank, where, "serve:2", rule="add", mode="async") as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        update = np.ones(ELEMENTS, np.float32)
        request = None
        for step in range(60):
            if step == 20:
                rank.mark("half")
                for other in range(rank.size):
                    rank.wait_for("half", other)
                if rank.rank == 0:
                    os.kill(pids[0], victims[0])
            request = parameters.push_pull(update, values)
            request.wait()
            time.sleep(0.01)
        assert request is not None

        def has_moved() -> bool:  # each request tells
            parameters.pull(values).wait()
            return len(set(parameters.stats()["homes"])) == 1

        eventually(has_moved, "the shard's move", LIMIT_S)
        rank.mark("pushed")
        for other in range(rank.size):
            rank.wait_for("pushed", other)
        parameters.pull(values).wait()
        counted = parameters.stats()
        assert len(set(counted["homes"])) == 1, "the shard has moved"
        return list(request.versions), counted["lost_parts"], float(values.min())


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_server_that_leaves_loses_nothing_and_one_that_dies_stops_nobody(tmp_path, by: int) -> None:
    where = f"file://{tmp_path}/meet"
    processes = [start(where, name=f"helper{i}") for i in range(2)]
    try:
        found = run_ranks(outlive, 3, where, [by], [processes[1].pid], join=False, timeout_s=300.0)
        processes[1].wait(LIMIT_S)
        processes[0].send_signal(signal.SIGINT)  # a folder does not tell that the job is over
        assert processes[0].wait(LIMIT_S) == 0
    finally:
        for process in processes:
            process.kill()
    lost = sum(parts for _, parts, _ in found)
    assert lost == 0 or by == signal.SIGKILL
    for _, _, least in found:
        assert 180 - lost <= least <= 180


def train_beside_idle_servers(rank: Rank, mode: str) -> tuple[int, float]:
    """Train with all numbers at rank 0; return the calls at this rank's server, and the least value."""
    with join(
        rank, f"file://{rank.folder}/meet", None, rule="add", mode=mode, staleness=1, shares=[1, 0, 0]
    ) as one:
        values = one.start(np.zeros(ELEMENTS, np.float32))
        for _ in range(STEPS):
            one.push_pull(np.ones(ELEMENTS, np.float32), values).wait()
        rank.mark("trained")
        for other in range(rank.size):
            rank.wait_for("trained", other)
        one.pull(values).wait()
        calls = one.stats()["calls"]
        rank.mark("seen")
        for other in range(rank.size):
            rank.wait_for("seen", other)
        return calls, float(values.min())


@pytest.mark.parametrize(("mode", "pushed"), [("sync", STEPS), ("ssp", 3 * STEPS)])
def test_servers_that_hold_nothing_are_not_called(mode: str, pushed: int) -> None:
    found = run_ranks(train_beside_idle_servers, 3, mode, join=False, timeout_s=300.0)
    assert [values for _, values in found] == [float(pushed)] * 3
    assert found[0][0] > 3 * STEPS
    assert [calls for calls, _ in found[1:]] == [0, 0]


def train_beside_a_stopped_server(rank: Rank, shares: list[float]) -> float:
    """Train while rank 2 is stopped, which only holds what `shares` give it; return how long the steps took."""
    with join(rank, f"file://{rank.folder}/meet", None, rule="add", mode="async", shares=shares) as one:
        values = one.start(np.zeros(ELEMENTS, np.float32))
        if rank.rank == 2:
            stop_soon(rank, "trains", 0)
            return 0.0
        if rank.rank == 1:
            rank.wait_for("trained", 0)
            return 0.0
        with stopped(rank, "trains", 2):
            begun = time.monotonic()
            requests = [one.push_pull(np.ones(ELEMENTS, np.float32), values) for _ in range(STEPS)]
            with contextlib.suppress(TimeoutError):
                requests[-1].wait(STOPPED_S)
            spent = time.monotonic() - begun
        for request in requests:
            request.wait()
        rank.mark("trained")
        assert set(values.tolist()) == {float(STEPS)}
        return spent


@pytest.mark.parametrize(("shares", "waits"), [([1, 1, 0], False), ([1, 1, 1], True)])
def test_a_stopped_server_stops_nobody_unless_it_holds_numbers(shares: list[float], waits: bool) -> None:
    spent, *_ = run_ranks(train_beside_a_stopped_server, 3, shares, join=False, timeout_s=300.0)
    assert (spent >= STOPPED_S) == waits


def train_around_a_stop(rank: Rank, where: str, pid: int) -> tuple[list[int], float, int]:
    """Train while the first server is stopped, and after it has gone on; return homes, a value, and parts lost."""
    with join(rank, where, "serve:2", rule="add", mode="async") as one:
        values = one.start(np.zeros(ELEMENTS, np.float32))
        update = np.ones(ELEMENTS, np.float32)

        def train(steps: int) -> None:
            for _ in range(steps):
                one.push_pull(update, values).wait()

        train(STEPS)
        rank.mark("begun")
        for other in range(rank.size):
            rank.wait_for("begun", other)
        if rank.rank == 0:
            os.kill(pid, signal.SIGSTOP)
        rank.mark("stopped")
        rank.wait_for("stopped", 0)
        train(1)  # it waits until the server is lost
        rank.mark("moved")
        for other in range(rank.size):
            rank.wait_for("moved", other)
        if rank.rank == 0:
            os.kill(pid, signal.SIGCONT)
        train(STEPS)
        rank.mark("trained")
        for other in range(rank.size):
            rank.wait_for("trained", other)
        one.pull(values).wait()
        stats = one.stats()
        return stats["homes"], float(values[0]), stats["lost_parts"]


@pytest.mark.long
def test_a_server_that_stood_still_is_no_owner_any_more(monkeypatch) -> None:
    monkeypatch.setenv("BRAID_PEER_TIMEOUT", str(round(limit(4))))
    where = f"tcp://127.0.0.1:{free_port()}"
    with serving(where, 2) as (first, second):
        found = run_ranks(train_around_a_stop, 2, where, first.pid, join=False, timeout_s=300.0)
    assert "stood still" in said_by(first)
    assert "is over after" in said_by(second)
    homes = {tuple(homes) for homes, _, _ in found}
    assert len(homes) == 1, "all workers agree on the owner"
    assert len(set(homes.pop())) == 1, "which has all shards"
    assert len({value for _, value, _ in found}) == 1
    made, lost = 2 * (2 * STEPS + 1), sum(lost for _, _, lost in found)
    assert made - lost <= found[0][1] <= made


def lose_one_server_alone(rank: Rank, where: str, pid: int) -> tuple[str, list[int], float]:
    """Cut worker 2's connections to one server; return its error, the homes of the shards, and a value."""
    import braid

    with join(rank, where, "serve:2", rule="add", mode="async") as one:
        values = one.start(np.zeros(ELEMENTS, np.float32))
        one.push_pull(np.ones(ELEMENTS, np.float32), values).wait()
        rank.mark("begun")
        for other in range(rank.size):
            rank.wait_for("begun", other)
        if rank.rank == 2:
            cut_connections_to(pid)
            with pytest.raises(braid.PeerLostError) as error:
                one.push_pull(np.ones(ELEMENTS, np.float32), values).wait()
            rank.mark("over")
            return str(error.value), [], 0.0
        while not (rank.folder / "over.2").exists():
            one.push_pull(np.ones(ELEMENTS, np.float32), values).wait()
        rank.mark("trained")
        for other in (0, 1):
            rank.wait_for("trained", other)
        one.pull(values).wait()
        assert len(set(values.tolist())) <= 2, "worker 2 pushed to one of two servers"
        return "", one.stats()["homes"], float(values.max())


@pytest.mark.long
def test_a_server_that_one_worker_alone_loses_stays_the_owner() -> None:
    where = f"tcp://127.0.0.1:{free_port()}"
    with serving(where, 2) as (first, _):
        found = run_ranks(lose_one_server_alone, 3, where, first.pid, wire="tcp", join=False, timeout_s=300.0)
    assert "this worker has lost a parameter server that other workers still reach" in found[2][0]
    assert found[0][1:] == found[1][1:]
    assert set(found[0][1]) == {0, 1}, "each server has kept its shards"


def refused(rank: Rank, where: str) -> list[str]:
    """Return what a worker hears of each thing that cannot be."""
    import braid

    heard = []

    def expect(kind: type[Exception], servers, **options) -> None:
        begun = time.monotonic()
        with pytest.raises(kind) as error:
            join(rank, where, servers, **options)
        assert time.monotonic() - begun < LIMIT_S / 2
        heard.append(str(error.value))

    with pytest.raises(ValueError, match=r"'serve:0' is no place"):
        join(rank, where, "serve:0")
    with pytest.raises(ValueError, match="sgdd"):
        join(rank, where, "serve:1", rule="sgdd")
    with pytest.raises(ValueError, match="nowhere else"):
        join(rank, Nowhere(), "serve:1")
    expect(ValueError, "serve:1", name="differs", mode=("sync", "async")[rank.rank])
    with pytest.raises(ValueError, match="memory") as error:
        braid.Parameters(
            where,
            elements=1_000_000,
            rank=rank.rank,
            size=rank.size,
            servers="serve:1",
            timeout_s=LIMIT_S,
            name="big",
        )
    heard.append(str(error.value))
    with pytest.raises(braid.CommunicatorTimeoutError) as late:
        braid.Parameters(
            where, elements=5, rank=rank.rank, size=rank.size, servers="serve:2", timeout_s=10.0, name="none"
        )
    heard.append(str(late.value))
    return heard


class Nowhere:
    """A store that no other process reaches."""

    def set(self, key: str, value: bytes) -> None:
        raise NotImplementedError

    get = wait = set


def test_what_cannot_be_is_one_sentence_on_every_worker() -> None:
    where = f"tcp://127.0.0.1:{free_port()}"
    with serving(where, 1, "--memory", "1M"):
        first, other = run_ranks(refused, 2, where, join=False, timeout_s=300.0)
    assert first == other
    assert first == [
        "worker 1 has mode async, but worker 0 has mode sync: all must have the same",
        "parameter service 'big': the parameter server helper0 has 1 MiB of memory, and its part of this strategy "
        "needs 22.94 MiB: give it more with --memory, or start more servers",
        "parameter service 'none' waits for 2 parameter servers, and 1 came within 10 s; start them with "
        f"`braid serve --rendezvous {where}`",
    ]


def late(rank: Rank, where: str) -> float:
    is_late = rank.rank == 2
    if is_late:
        rank.wait_for("trained", 0)
        rank.wait_for("trained", 1)
    options = {"rule": "sgd", "mode": "async", "size": 2, "late": is_late}
    with join(rank, where, "serve:1", **options) as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        if is_late:
            rank.mark("came")
        else:
            parameters.push_pull(np.full(ELEMENTS, -1, np.float32), values, rate=1.0).wait()
            rank.mark("trained")
            rank.wait_for("came", 2)
        return float(values[0])


@pytest.mark.long
def test_a_worker_may_come_late() -> None:
    where = f"tcp://127.0.0.1:{free_port()}"
    with serving(where, 1):
        assert run_ranks(late, 3, where, join=False, timeout_s=300.0)[2] == 2.0


SCRIPT = """
import sys
import braid, numpy as np
assert "torch" not in sys.modules
with braid.Parameters("env://", elements=10, timeout_s=150) as parameters:
    values = parameters.start(np.zeros(10, np.float32))
    parameters.push_pull(np.ones(10, np.float32), values, rate=1.0).wait()
    sys.stdout.write(f"{len(parameters.stats()['homes'])} {parameters.stats()['bytes']}\\n")
"""


@pytest.mark.slow
@pytest.mark.long
def test_braid_run_starts_them(tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace('assert "torch" not in sys.modules', ""))
    command = [sys.executable, "-m", "braid.cli", "run", "--takeover", "", "--nproc", "2", "--servers", "2"]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=limit(200), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 0", "2 0"]
    assert "Traceback" not in done.stderr
