# SPDX-License-Identifier: Apache-2.0
"""Cut cables and aggregators that hang, in a lab."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from braid.lab import Job, Lab, environments, unavailable
from braid.lab.namespaces import send_signal
from slowness import limit
from steps import Steps, start_server
from waiting import eventually

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}"),
]
TIMEOUT_S = 3
LATE_S = limit(10.0)
NBYTES = 4 << 20
RANKS = 4  # with fewer it hardly pays to have an aggregator

# Rank 0 calls, and says how that went and how long it took. Rank 1 is on the other host.
CUT = """
import os, sys, time
from pathlib import Path
import braid, numpy as np
folder, call = Path(sys.argv[1]), sys.argv[2]
def stage(name):
    while not (folder / name).exists(): time.sleep(0.01)
with braid.Communicator(f"file://{folder}/meet", timeout_s=60) as comm:
    x = np.full(500_000, comm.rank + 1.0)
    comm.all_reduce(np.ones(4))
    (folder / f"ready {comm.rank}").touch()
    stage("cut")
    began = time.monotonic()
    try:
        if call == "recv":
            comm.recv(x, 1) if comm.rank == 0 else stage("never")
        else:
            comm.all_reduce(x)
            assert (x == 3).all()
        print("fine")
    except braid.PeerLostError as error:
        print(f"{time.monotonic() - began:.2f} {error.rank} {error}", flush=True)
        os._exit(0)
"""


@contextmanager
def pair(lab: Lab, folder: Path, call: str, **variables: str) -> Iterator[list["subprocess.Popen[str]"]]:
    job = Job(
        environments(lab, [1, 1]),
        [sys.executable, "-c", CUT, str(folder), call],
        env={**os.environ, "BRAID_LINKS": "assume", **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: all((folder / f"ready {rank}").exists() for rank in range(2)), "both ranks")
        yield job.ranks
    finally:
        job.close()


@pytest.mark.parametrize("call", [pytest.param("recv", marks=pytest.mark.long), "all_reduce"])
def test_a_cut_cable_is_named(tmp_path: Path, call: str) -> None:
    with (
        Lab("2x1gbit") as lab,
        pair(lab, tmp_path, call, BRAID_PEER_TIMEOUT=str(TIMEOUT_S)) as (first, _),
    ):
        lab.cut(lab.hosts[1])
        (tmp_path / "cut").touch()
        out = first.communicate(timeout=limit(60))[0]
    took, rank, text = out.split(" ", 2)
    assert TIMEOUT_S * 0.9 < float(took) < TIMEOUT_S + LATE_S, out
    assert rank == "1"
    assert "rank 1 on h1 (pid " in text, text
    assert f"has not answered rank 0 for {TIMEOUT_S} s" in text, text
    assert "network is cut (BRAID_PEER_TIMEOUT)" in text, text


@pytest.mark.long
def test_a_short_cut_is_survived(tmp_path: Path) -> None:
    with Lab("2x10mbit") as lab, pair(lab, tmp_path, "all_reduce") as ranks:
        (tmp_path / "cut").touch()
        time.sleep(0.2)  # it takes 4 s
        lab.cut(lab.hosts[1])
        time.sleep(5)
        assert [rank.poll() for rank in ranks] == [None, None], "not in the middle"
        lab.mend(lab.hosts[1])
        assert [rank.communicate(timeout=limit(60))[0] for rank in ranks] == ["fine\n", "fine\n"]


@pytest.mark.long
def test_ranks_go_on_without_an_aggregator_that_hangs(tmp_path: Path) -> None:
    with (
        Lab(f"{RANKS + 1}x100mbit") as lab,
        Steps(
            lab, [1] * RANKS + [0], tmp_path, NBYTES, BRAID_SERVERS="1", BRAID_PEER_TIMEOUT=str(TIMEOUT_S)
        ) as steps,
    ):
        server = start_server(lab.hosts[RANKS], steps.store)
        try:
            steps.until(lambda: any(len(told["shares"]) > RANKS for told in steps.told()[-1:]), timeout_s=90)
            steps.hold()
            steps.release()
            time.sleep(0.15)
            send_signal(server, signal.SIGSTOP)
            stopped = time.monotonic()
            steps.until(lambda: any("goes on without its 1 aggregator" in line for line in steps.errors()))
            assert time.monotonic() - stopped < TIMEOUT_S + LATE_S
            steps.more(2)
            assert len(steps.told()[-1]["shares"]) <= RANKS
        finally:
            send_signal(server, signal.SIGCONT)
            send_signal(server, signal.SIGTERM)
            server.wait(limit(30))
