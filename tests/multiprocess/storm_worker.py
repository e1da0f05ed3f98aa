# SPDX-License-Identifier: Apache-2.0
"""A worker of storm.py: ``python storm_worker.py FOLDER NUMBER MODE``."""

import contextlib
import sys
from pathlib import Path

import numpy as np
from slowness import limit
from sockets import cut_connections_to

WORKERS, SERVERS = 3, 2
ELEMENTS = 60_000
SILENCE_S = limit(3.0)  # BRAID_PEER_TIMEOUT
GIVES_UP_S = max(30.0, 2 * SILENCE_S)  # who alone has lost a server
BEGUN, ANSWERED, LOST, LEAST, MOST, STATE = range(6)
RUNS, OVER = 1, 2


class Ledger:
    """What each worker has done so far, in a file that all map."""

    def __init__(self, folder: Path) -> None:
        path = folder / "ledger"
        if not path.exists():
            np.zeros((256, 8), np.int64).tofile(path)
        self.rows = np.memmap(path, np.int64, "r+", shape=(256, 8))


def work(folder: Path, number: int, mode: str) -> None:
    """Push until the folder has a file `stop`; the worker that it names goes on until all others have ended."""
    import braid

    row = Ledger(folder).rows[number]
    with braid.Parameters(
        f"file://{folder}/meeting",
        elements=ELEMENTS,
        rule="add",
        mode=mode,
        staleness=2,
        rank=number,
        size=WORKERS,
        servers=f"serve:{SERVERS}",
        late=number >= WORKERS,
        timeout_s=GIVES_UP_S + limit(60),
    ) as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        ends = parameters._core.ends()
        update = np.ones(ELEMENTS, np.float32)
        row[STATE] = RUNS
        stop, cut = folder / "stop", folder / f"cut.{number}"
        while True:
            if cut.exists():
                with contextlib.suppress(AssertionError):  # that server may be gone
                    cut_connections_to(int(cut.read_text()))
                cut.unlink()
            if stop.exists() and (int(stop.read_text()) != number or _are_over(folder, number)):
                break
            row[BEGUN] += 1
            parameters.push_pull(update, values).wait()
            row[ANSWERED] += 1
            note(row, values, ends)
        parameters.pull(values).wait()
        note(row, values, ends)
        row[LOST] = parameters.stats()["lost_parts"]
        row[STATE] = OVER


def _are_over(folder: Path, keeper: int) -> bool:
    states = Ledger(folder).rows[:, STATE]
    return not any(states[number] == RUNS for number in range(len(states)) if number != keeper)


def note(row: np.ndarray, values: np.ndarray, ends: list[int]) -> None:
    """Write the least and the largest value down; those of a shard must be equal."""
    firsts = []
    for begin, end in zip([0, *ends], ends, strict=False):
        if end > begin:
            part = values[begin:end]
            if part.min() != part.max():
                raise ValueError(f"numbers {begin} to {end} are not whole: {part.min()} to {part.max()}")
            firsts.append(int(part[0]))
    row[LEAST], row[MOST] = min(firsts), max(firsts)


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
