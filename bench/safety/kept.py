# SPDX-License-Identifier: Apache-2.0
"""What a rank keeps of small messages that nobody asks for, and how long they take once somebody does.

    python bench/safety/kept.py [--other /path/to/another/python]

Rank 1 starts 65,536 sends of 4 KiB, 256 MiB together. Rank 0 asks for none of them until its memory has been
looked at, and then receives all. One line of JSON: for this package and for that of the other interpreter, on both
wires.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

MESSAGES = 1 << 16
BYTES = 4096
SETTLE_S = 3.0


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def run(rank: int, folder: str, wire: str, answers: Any) -> None:
    os.environ |= {"BRAID_TRANSPORTS": wire, "BRAID_INTERFACE": "lo"}
    import braid
    import numpy as np

    with braid.Communicator(f"file://{folder}", rank=rank, size=2, timeout_s=300) as group:
        x = np.arange(BYTES // 8, dtype=np.int64)
        group.all_reduce(x.copy())
        group.barrier()
        before, begun = resident_mib(), time.perf_counter()
        if rank == 1:
            sends = [group.isend(x, 0) for _ in range(MESSAGES)]
            started_s = time.perf_counter() - begun
            for send in sends:
                send.wait()
            answers.put({"start_s": round(started_s, 2)})
        else:
            time.sleep(SETTLE_S)
            kept = resident_mib() - before
            begun, out = time.perf_counter(), np.empty_like(x)
            for _ in range(MESSAGES):
                group.recv(out, 1)
            assert (out == x).all()
            answers.put({"kept_mib": round(kept, 1), "receive_s": round(time.perf_counter() - begun, 2)})


def measure(wire: str) -> dict[str, Any]:
    context = get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=run, args=(rank, folder, wire, answers)) for rank in range(2)]
        for process in ranks:
            process.start()
        found = {"wire": wire, **answers.get(), **answers.get()}
        for process in ranks:
            process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="an interpreter with another braid, to compare with")
    options = parser.parse_args()
    result: dict[str, Any] = {"messages": MESSAGES, "bytes": BYTES}
    result["this"] = [measure(wire) for wire in ("shm", "tcp")]
    if options.other:
        done = subprocess.run([options.other, __file__], stdout=subprocess.PIPE, check=True, text=True)
        result["other"] = json.loads(done.stdout)["this"]
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
