# SPDX-License-Identifier: Apache-2.0
"""Requests of 64 bytes to a parameter server: from Python, from C++, and beside an exchange of 4 MiB.

The C++ part is the program requests_bench; the page says how to build it. All processes are on this machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import LIMIT_S, Row, on_members, report

SMALL, LARGE = 16, 2**20  # elements
WINDOW = 16
PROGRAM = Path(__file__).resolve().parents[2] / "build" / "bench" / "parameters" / "requests_bench"
RATE_GOALS = {"shm": 500_000, "tcp": 50_000}
SLOWER_GOAL = 3.0


def join(folder: str, name: str, elements: int, member: int) -> Any:
    """Return a service of one worker, member 0, and one server, member 1."""
    import braid

    return braid.Parameters(
        f"file://{folder}/{name}", elements=elements, rank=member, size=2, servers=[1], timeout_s=LIMIT_S
    )


def push_pull(parameters: Any, window: int, seconds: float) -> float:
    """Return the median seconds of `window` requests at a time, for each of them."""
    elements = parameters.elements
    values = parameters.start(np.zeros(elements, np.float32))
    update = np.ones(elements, np.float32)
    outs = [np.empty(elements, np.float32) for _ in range(window - 1)] + [values]
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        begun = time.perf_counter()
        for request in [parameters.push_pull(update, out, rate=1e-3) for out in outs]:
            request.wait()
        times.append((time.perf_counter() - begun) / window)
    return statistics.median(times[len(times) // 5 :])


def member(rank: int, folder: str, wire: str, beside_large: bool, window: int, seconds: float) -> float | None:
    """Be the server of both services (rank 0), or the worker with small (1) or with large requests (2)."""
    os.environ["BRAID_TRANSPORTS"] = wire
    if rank == 0:
        import threading

        def serve(name: str, elements: int) -> None:
            with join(folder, name, elements, 1) as parameters:
                parameters.start(np.zeros(elements, np.float32))

        threads = [threading.Thread(target=serve, args=("small", SMALL))]
        if beside_large:
            threads.append(threading.Thread(target=serve, args=("large", LARGE)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return None
    if rank == 2:
        with join(folder, "large", LARGE, 0) as parameters:
            push_pull(parameters, 1, 1.3 * seconds + 0.5)
        return None
    with join(folder, "small", SMALL, 0) as parameters:
        if beside_large:
            time.sleep(0.5)  # until the large exchange has begun
        return push_pull(parameters, window, seconds)


def from_python(seconds: float) -> list[Row]:
    """Return rows for one round trip from Python."""
    rows = []
    for wire in ("shm", "tcp"):
        alone = on_members(2, member, wire, False, 1, seconds)[1] * 1e6
        beside = on_members(3, member, wire, True, 1, seconds)[1] * 1e6
        goal = 30.0 if wire == "shm" else None
        rows.append(Row(f"Python, {wire}: one round trip", alone, "us", goal))
        rows.append(Row(f"Python, {wire}: beside 4 MiB", beside / alone, "x alone", SLOWER_GOAL,
                        beside=f"{beside:.1f} us"))  # fmt: skip
        many = 1 / on_members(2, member, wire, False, WINDOW, seconds)[1]
        rows.append(Row(f"Python, {wire}: window {WINDOW}", many, "requests/s", None))
    return rows


def from_cpp(program: Path, seconds: float) -> list[Row]:
    """Return rows of the program's measurements."""
    done = subprocess.run([program, str(seconds)], check=True, capture_output=True, text=True, timeout=180)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    rows = []
    for line in lines:
        wire, window = line["wire"], line["window"]
        alone = next(each for each in lines if (each["wire"], each["window"]) == (wire, window))
        what = f"C++, {wire}, window {window}"
        tail = f"99 % within {line['p99_us']:.1f} us"
        if line["beside_large"]:
            slower = alone["requests_per_s"] / line["requests_per_s"]
            rows.append(Row(f"{what}: beside 4 MiB", slower, "x alone", SLOWER_GOAL, beside=tail))
        elif window == 1:
            goal = 2.0 if wire == "shm" else None
            rows.append(Row(f"{what}: one round trip", line["median_us"], "us", goal, beside=tail))
        else:
            rows.append(
                Row(what, line["requests_per_s"], "requests/s", RATE_GOALS[wire], is_at_most=False, beside=tail)
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--program", type=Path, default=PROGRAM, help="requests_bench")
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    given = parser.parse_args()
    if not given.program.exists():
        raise SystemExit(f"{given.program} is not built: bench/parameters/README.md says how, or give --program")
    report([*from_cpp(given.program, given.seconds), *from_python(given.seconds)], given.json)


if __name__ == "__main__":
    main()
