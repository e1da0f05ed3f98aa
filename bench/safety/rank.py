# SPDX-License-Identifier: Apache-2.0
"""One rank: does what lines on standard input tell, and answers each with a line of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import braid
import numpy as np

BATCH = 8


class Worker:
    """The groups of this rank, by name."""

    def __init__(self, folder: str, rank: int, size: int) -> None:
        self.where, self.rank, self.size = f"file://{folder}", rank, size
        self.groups: dict[str, braid.Communicator] = {}

    def form(self, name: str) -> dict[str, Any]:
        """Make a group, and use it once, since connections are made then."""
        begin = time.perf_counter()
        try:
            group = braid.Communicator(self.where, rank=self.rank, size=self.size, name=name, timeout_s=60)
            self.groups[name] = group
            x = np.full(1 << 18, self.rank, np.float32)
            group.all_reduce(x)
            assert x[0] == sum(range(self.size))
        except braid.CommunicatorError as error:
            return {"s": time.perf_counter() - begin, "error": str(error)}
        return {"s": time.perf_counter() - begin, "wires": group.wires()}

    def leave(self, name: str) -> dict[str, Any]:
        if name in self.groups:
            self.groups.pop(name).close()
        return {}

    def time(self, name: str, nbytes: int, seconds: float) -> dict[str, Any]:
        """All-reduce for so long; rank 0 says when it is enough."""
        group, x, go_on = self.groups[name], np.zeros(nbytes // 4, np.float32), np.ones(1)
        calls, spent_s, cpu_s = 0, 0.0, -time.process_time()
        while go_on[0]:
            begin = time.perf_counter()
            for _ in range(BATCH):
                group.all_reduce(x)
            spent_s += time.perf_counter() - begin
            calls += BATCH
            go_on[0] = spent_s < seconds
            group.broadcast(go_on)
        cpu_s += time.process_time()
        return {"us": 1e6 * spent_s / calls, "cpu_us": 1e6 * cpu_s / calls}

    def look(self) -> dict[str, Any]:
        """What the process has, and has used."""
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {
            "resident_bytes": resident,
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            "cpu_s": time.process_time(),
        }


def main() -> None:
    folder, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    worker = Worker(folder, rank, size)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        print(json.dumps(getattr(worker, what)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
