# SPDX-License-Identifier: Apache-2.0
"""A rank is killed in the middle of all_reduces on the simulated device: how soon do the others' streams drain?

Each rank reduces again and again. The last rank gets SIGKILL. A thread of each survivor asks the group for a
failure, every millisecond: that is the detection. The streams have drained when synchronize() returns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
DEVICE = FOLDER.parent.parent / "tests" / "device"
MIB = 1 << 20
WAYS = {
    "wait() blocks": {"BRAID_STREAM_WAITS": "0"},
    "streams wait": {"BRAID_STREAM_WAITS": "1"},
    "local leg": {"BRAID_LOCAL_LEG": "sim:braid"},
}
AFTER_S = (0.3, 0.8)  # from the first all_reduce to the kill


def be_a_rank(store: str, rank: int, ranks: int, nbytes: int, rate: float) -> None:
    """Reduce until that fails, and print when the failure was detected, raised, and the streams had drained."""
    sys.path.insert(0, str(DEVICE))
    import simulated
    import torch
    import torch.distributed as dist

    sim = simulated.load()
    simulated.offer_flags()
    dist.init_process_group("braid", init_method=f"file://{store}", rank=rank, world_size=ranks)
    backend: Any = dist.distributed_c10d._get_default_group()._get_backend(torch.device("sim"))
    tensor = torch.ones(nbytes // 4, device="sim")
    dist.all_reduce(tensor)
    sim.synchronize()
    sim.set_rates(down=rate, up=rate)
    found: dict[str, Any] = {}

    def watch() -> None:
        while backend.failure() is None:
            time.sleep(0.001)
        found["detected"] = time.monotonic()

    watcher = threading.Thread(target=watch)
    watcher.start()
    dist.barrier()
    print("begins", flush=True)
    try:
        while True:
            dist.all_reduce(tensor)
            tensor.mul_(1 / ranks)
            if os.environ.get("BRAID_STREAM_WAITS") == "1":
                sim.synchronize()  # else the CPU runs far ahead
    except dist.DistBackendError as error:
        found["error"] = str(error)
        found["raised"] = time.monotonic()
    sim.synchronize()
    found["drained"] = time.monotonic()
    watcher.join()
    print(json.dumps(found), flush=True)
    os._exit(0)  # the end of the group is not measured


def death(way: str, ranks: int, nbytes: int, rate: float, after_s: float) -> list[dict[str, Any]]:
    """Let the last rank die once; return the seconds of each survivor."""
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(ranks):
            environment = {**os.environ, "BRAID_QUIET": "1", "BRAID_TRANSPORTS": "tcp", **WAYS[way]}
            environment |= {"BRAID_HOST": f"host-{rank * 2 // ranks}", "BRAID_LINKS": "assume"}
            arguments = [str(Path(folder, "store")), str(rank), str(ranks), str(nbytes), str(rate)]
            command = [sys.executable, __file__, "--rank", *arguments]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "begins\n":
                raise RuntimeError("a rank has ended before the death")
        time.sleep(after_s)
        killed = time.monotonic()
        processes[-1].kill()
        told = []
        for rank, process in enumerate(processes[:-1]):
            assert process.stdout is not None
            found = json.loads(process.stdout.readline())
            told.append({
                "rank": rank,
                "detected_s": found["detected"] - killed,
                "raised_after_detection_s": found["raised"] - found["detected"],
                "drained_after_detection_s": found["drained"] - found["detected"],
                "names_the_rank": f"rank {ranks - 1}" in found["error"],
            })  # fmt: skip
        for process in processes:
            process.wait(timeout=60)
    return told


def measure(way: str, ranks: int, nbytes: int, rate: float, deaths: int) -> dict[str, Any]:
    """Return what all survivors of several deaths took: the median and the longest."""
    told: list[dict[str, Any]] = []
    for number in range(deaths):
        told += death(way, ranks, nbytes, rate, random.Random(number).uniform(*AFTER_S))
    row: dict[str, Any] = {"way": way, "ranks": ranks, "deaths": deaths}
    for name in ("detected_s", "raised_after_detection_s", "drained_after_detection_s"):
        times = [each[name] for each in told]
        row[f"{name}_median"] = round(statistics.median(times), 3)
        row[f"{name}_longest"] = round(max(times), 3)
    row["survivors_whose_error_names_the_rank"] = sum(each["names_the_rank"] for each in told)
    row["survivors"] = len(told)
    return row


def main() -> None:
    """Print the rows and write them beside this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4, help="on two hosts, which are not there; TCP")
    parser.add_argument("--bytes", type=int, default=64 * MIB)
    parser.add_argument("--rate", type=float, default=1e9, help="bytes/s of copies in each direction")
    parser.add_argument("--deaths", type=int, default=5, help="of each way")
    parser.add_argument("--out", default=str(FOLDER / "death.json"))
    options = parser.parse_args()
    rows = [measure(way, options.ranks, options.bytes, options.rate, options.deaths) for way in WAYS]
    setup = {"bytes": options.bytes, "bytes_per_s_of_copies": options.rate, "cores": os.cpu_count()}
    Path(options.out).write_text(json.dumps({**setup, "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(*(f"{key}={value}" for key, value in row.items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        store, rank, ranks, nbytes, rate = sys.argv[2:]
        be_a_rank(store, int(rank), int(ranks), int(nbytes), float(rate))
    else:
        main()
