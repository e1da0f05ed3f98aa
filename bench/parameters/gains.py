# SPDX-License-Identifier: Apache-2.0
"""What a codec gains on slow links, and relaxed consistency (Hogwild) over atomic on one host.

Codec: two emulated hosts of 200 Mbit/s, one with the server; needs root, as `braid lab` does. Relaxed: workers and
a server on this machine, updates of 4 MiB without a pause.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import LIMIT_S, Row, on_members, report

WORKERS = 2
HOSTS = "2x200mbit"
CODECS = {"float32": {}, "int8": {"compression": "int8", "pull_compression": "int8"},
          "bf16": {"compression": "bf16", "pull_compression": "bf16"}}  # fmt: skip


def train(parameters: Any, seconds: float) -> float:
    """Return this worker's updates per second."""
    elements = parameters.elements
    values = parameters.start(np.zeros(elements, np.float32))
    update = np.random.default_rng(0).standard_normal(elements).astype(np.float32)
    parameters.push_pull(update, values, rate=1e-3).wait()
    updates, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + seconds or updates < 4:
        parameters.push_pull(update, values, rate=1e-3).wait()
        updates += 1
    return updates / (time.perf_counter() - begun)


def of_one_host(rank: int, folder: str, consistency: str, elements: int, seconds: float) -> float:
    """Be one of the workers; worker 0 has the server."""
    import braid

    with braid.Parameters(
        f"file://{folder}/meeting", elements=elements, rank=rank, size=WORKERS, servers=[0],
        consistency=consistency, timeout_s=LIMIT_S,
    ) as parameters:  # fmt: skip
        return train(parameters, seconds)


def be_a_rank(codec: str, elements: int, seconds: float) -> None:
    """Train between hosts; print updates per second."""
    import braid

    with braid.Parameters(
        "env://", elements=elements, servers=[0], timeout_s=LIMIT_S, **CODECS[codec]
    ) as parameters:
        print(json.dumps(train(parameters, seconds)), flush=True)


def between_hosts(codec: str, elements: int, seconds: float) -> float:
    """Return the updates per second of the worker whose host has no server."""
    from braid.lab import Job, Lab, environments

    os.environ["BRAID_LINKS"] = "assume"
    command = [sys.executable, str(Path(__file__).resolve()), "--rank", codec, str(elements), str(seconds)]
    with (
        Lab(HOSTS) as lab,
        Job(environments(lab, [1, 1]), command, stdout=subprocess.PIPE, text=True) as job,
    ):
        if any(codes := job.wait(LIMIT_S)):
            raise SystemExit(f"ranks ended with {codes}")
        assert job.ranks[1].stdout is not None
        return float(job.ranks[1].stdout.read())


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=2**20)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--times", type=int, default=3, help="of relaxed and atomic, in turns")
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    given = parser.parse_args()
    mib = given.elements * 4 / 2**20
    rates: dict[str, list[float]] = {"atomic": [], "relaxed": []}
    for _ in range(given.times):
        for consistency, found in rates.items():
            told = on_members(WORKERS, of_one_host, consistency, given.elements, given.seconds)
            found.append(sum(told.values()))
    atomic, relaxed = (statistics.median(found) for found in rates.values())
    beside = f"{relaxed:.1f} and {atomic:.1f} updates/s of all"
    rows = [Row(f"relaxed over atomic, {mib:g} MiB", relaxed / atomic, "x", 1.0, is_at_most=False, beside=beside)]
    from braid.lab import unavailable

    if reason := unavailable():
        print(f"no emulated hosts here, so no codecs: {reason}", file=sys.stderr)
    else:
        found = {codec: between_hosts(codec, given.elements, given.seconds) for codec in CODECS}
        for codec, rate in list(found.items())[1:]:
            beside = f"{rate:.2f} and {found['float32']:.2f} updates/s over {HOSTS}"
            rows.append(
                Row(f"{codec} over float32, {mib:g} MiB", rate / found["float32"], "x", 1.0, is_at_most=False,
                    beside=beside)
            )  # fmt: skip
    report(rows, given.json)


if __name__ == "__main__":
    main()
