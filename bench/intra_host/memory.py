# SPDX-License-Identifier: Apache-2.0
"""What a group holds in shared memory after operations of all sizes: a Markdown table."""

import argparse
import tempfile
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

SEGMENTS = ("braid-inbox", "braid-board", "braid-doorbell")


def held() -> dict[str, tuple[int, int]]:
    """Return bytes mapped and bytes used of this process's own segments and its peers', by kind."""
    found = {name: [0, 0] for name in SEGMENTS}
    kind = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            kind = next((name for name in SEGMENTS if f"memfd:{name}" in line), "")
        elif kind and line.startswith(("Size:", "Pss:")):
            found[kind][line.startswith("Pss:")] += int(line.split()[1]) << 10
    return {name: (mapped, used) for name, (mapped, used) in found.items()}


def run_rank(
    folder: str, rank: int, ranks: int, largest: int, results: "Queue[dict[str, tuple[int, int]]]"
) -> None:
    import braid
    import numpy as np

    with braid.Communicator(f"file://{folder}/meeting", rank=rank, size=ranks) as comm:
        size = 8
        while size <= largest:
            comm.all_reduce(np.zeros(size, np.uint8))
            size *= 8
        comm.barrier()
        results.put(held())
        comm.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--largest", type=int, default=64 << 20)
    arguments = parser.parse_args()
    spawn = get_context("spawn")
    print("| ranks | per rank, KiB: inboxes | boards | doorbells | all ranks, KiB |")
    print("|---" * 5 + "|")
    for ranks in arguments.ranks:
        results: Queue[dict[str, tuple[int, int]]] = spawn.Queue()
        with tempfile.TemporaryDirectory() as folder:
            processes = [
                spawn.Process(target=run_rank, args=(folder, r, ranks, arguments.largest, results))
                for r in range(ranks)
            ]
            for process in processes:
                process.start()
            rows = [results.get() for _ in processes]
            for process in processes:
                process.join()
        used = [[row[name][1] / 1024 for name in SEGMENTS] for row in rows]
        means = " | ".join(f"{sum(column) / ranks:.0f}" for column in zip(*used, strict=True))
        print(f"| {ranks} | {means} | {sum(map(sum, used)):.0f} |")


if __name__ == "__main__":
    main()
