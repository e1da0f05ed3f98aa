# SPDX-License-Identifier: Apache-2.0
"""``braid run --aggregators``: aggregators that live as long as the job, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from braid import cli
from braid.lab.namespaces import children_of
from ports import free_port
from slowness import limit

pytestmark = pytest.mark.multiprocess

# Each rank says that it is a host of its own; the aggregator is on the host that it is really on.
SCRIPT = """
import os, sys, time
os.environ["BRAID_HOST"] = "host-" + os.environ["RANK"]
import braid, numpy as np
with braid.Communicator("env://", timeout_s=150) as comm:
    for _ in range(5):
        x = np.full(1 << 20, comm.rank, np.float32)
        comm.all_reduce(x)
        assert (x == sum(range(comm.size))).all()
    if comm.rank == 0:
        print([row["algorithm"] for row in comm.stats() if row["collective"] == "all_reduce"], flush=True)
    if sys.argv[1:] == ["wait"]:
        time.sleep(100)
    sys.exit(3 if sys.argv[1:] == ["fail"] and comm.rank == 1 else 0)
"""


def start(
    folder: Path, *arguments: str, servers: int = 1, option: str = "--aggregators", **variables: str
) -> "subprocess.Popen[str]":
    script = folder / "train.py"
    script.write_text(SCRIPT)
    links = folder / "net.toml"
    links.write_text('[between]\nrate = "100mbit"')
    options = ["--takeover", "", "--nproc", "4", "--links", str(links), option, str(servers)]
    return subprocess.Popen(
        [sys.executable, "-m", "braid.cli", "run", *options, *arguments[1:], str(script), *arguments[:1]],
        env={name: value for name, value in os.environ.items() if not name.startswith("BRAID_SERVERS")}
        | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_they_are_used_and_end_with_the_job(tmp_path: Path, servers: int) -> None:
    job = start(tmp_path, servers=servers)
    out, err = job.communicate(timeout=limit(250))
    assert job.returncode == 0, err
    assert out == f"['direct with {servers} aggregator{'s' if servers > 1 else ''}']\n"
    assert sum(line.endswith(f"of {servers} for 4 ranks") for line in err.splitlines()) == servers, err
    assert "Traceback" not in err
    assert "Exception" not in err


@pytest.mark.long
def test_the_former_meaning_of_servers(tmp_path: Path) -> None:
    job = start(tmp_path, option="--servers", BRAID_SERVERS="1")
    out, err = job.communicate(timeout=limit(250))
    assert job.returncode == 0, err
    assert out == "['direct with 1 aggregator']\n"
    assert (
        err.count("braid: --servers starts parameter servers now. BRAID_SERVERS is set, so as many aggregators")
        == 1
    )
    assert err.count("braid serve: no strategy has asked for this server") == 1


@pytest.mark.long
def test_a_job_that_fails_ends_them(tmp_path: Path) -> None:
    port = free_port()
    job = start(tmp_path, "fail", f"--rdzv-endpoint=localhost:{port}", f"--master-port={port}")
    _, err = job.communicate(
        timeout=limit(250)
    )  # until nobody holds its standard error: the server has ended, too
    assert job.returncode == 3, err
    assert "braid: rank 1 (process " in err


@pytest.mark.long
def test_an_interrupted_job_ends_them(tmp_path: Path) -> None:
    job = start(tmp_path, "wait")
    assert job.stdout is not None
    assert job.stdout.readline() == "['direct with 1 aggregator']\n"
    children = children_of(job.pid)
    assert len(children) == 5
    time.sleep(0.2)
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=limit(200))
    assert job.returncode == 130, err
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--servers", "few"], "argument --servers: invalid int value: 'few'"),
        (["--servers", "-1"], "--servers: expected 1 to 64 on all nodes together, got -1"),
        (["--aggregators", "65"], "--aggregators: expected 1 to 64 on all nodes together, got 65"),
        (["--compresion", "int8"], "unrecognized arguments: --compresion; did you mean --compression?"),
        (["--servers", "20", "--nnodes", "4"], "--servers: expected 1 to 64 on all nodes together, got 80"),
        (
            ["--servers", "1", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "node0:29500"],
            "--servers: with --rdzv-backend c10d it is not known beforehand where ranks meet; use --master-addr, "
            "--master-port and --node-rank",
        ),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", *arguments, __file__]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"braid: {complaint}\n")
