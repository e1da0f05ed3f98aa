# SPDX-License-Identifier: Apache-2.0
"""How much memory `braid serve --memory` takes, while all workers push and want the vector with its state.

The server is given just what it says that it needs. Measured: the peak of the process, less what it has without a
strategy.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from braid._array.servers.terms import Vector
from measuring import LIMIT_S, Row, on_members, report

RULE = "sgd:momentum"
MIB = 1 << 20


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process has had so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status tells no peak of the memory")


def member(rank: int, folder: str, meeting: str, workers: int, elements: int, times: int) -> None:
    """Push, and take snapshots."""
    import braid

    with braid.Parameters(
        meeting, elements=elements, rule=RULE, rank=rank, size=workers, servers="serve:1", timeout_s=LIMIT_S
    ) as parameters:
        values = parameters.start(np.zeros(elements, np.float32))
        update = np.ones(elements, np.float32)
        for _ in range(times):
            parameters.push_pull(update, values, rate=1e-3).wait()
            parameters.snapshot()


def measure(workers: int, elements: int, wire: str, times: int) -> tuple[int, int]:
    """Return the bytes that the server was given, and those that it took."""
    os.environ["BRAID_TRANSPORTS"] = wire
    _, given = Vector("parameters", elements, RULE).needs(workers, 1)
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        command = [sys.executable, "-m", "braid.cli", "serve", "--rendezvous", meeting, "--memory", str(given)]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        before = 0

        def note_peak(_members: Any, _folder: Path) -> None:
            nonlocal before
            assert server.stderr is not None
            said = server.stderr.readline()
            if "waits for strategies" not in said:
                raise RuntimeError(f"braid serve said {said!r}")
            before = peak_bytes(server.pid)

        try:
            on_members(workers, member, meeting, workers, elements, times, at=note_peak)
            return given, peak_bytes(server.pid) - before
        finally:
            server.kill()
            server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--times", type=int, default=5, help="pushes, and snapshots, of each worker")
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    asked = parser.parse_args()
    rows = []
    for wire in ("shm", "tcp"):
        given, took = measure(asked.workers, asked.elements, wire, asked.times)
        beside = f"{took / MIB:.1f} MiB; it was given {given / MIB:.1f} MiB"
        rows.append(Row(f"{wire}: memory of a server over --memory", took / given, "", 1.0, beside=beside))
    report(rows, asked.json)


if __name__ == "__main__":
    main()
