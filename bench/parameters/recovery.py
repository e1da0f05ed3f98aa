# SPDX-License-Identifier: Apache-2.0
"""How long a death holds up the others: a worker, or a server, is killed, and the others' step rate is watched.

Four ranks push and pull; two of them hold shards. A step sleeps for 5 ms. Where the successor computes, the rank
whose server takes the shard over makes no call from 0.5 s before the death on. The rate has recovered at the end
of the first window of 0.1 s from which on it stays at 80 % of the rate before.
"""

import argparse
import os
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import LIMIT_S, Row, on_members, report

RANKS, SERVERS = 4, [0, 1]
STEP_S, WINDOW_S, SHARE = 0.005, 0.1, 0.8
GOAL_S = 1.0
# Who is killed, and who computes meanwhile.
DEATHS: dict[str, tuple[int, int | None]] = {
    "a worker": (3, None),
    "a server": (1, None),
    "a server whose successor computes": (1, 0),
}
COMPUTES_S = 0.5


def member(rank: int, folder: str, elements: int, wire: str, seconds: float, computing: int | None) -> list[float]:
    """Train; return the times at which steps ended."""
    os.environ["BRAID_TRANSPORTS"] = wire
    import braid

    with braid.Parameters(
        f"file://{folder}/meeting", elements=elements, rank=rank, size=RANKS, servers=SERVERS, timeout_s=LIMIT_S
    ) as parameters:
        values = parameters.start(np.zeros(elements, np.float32))
        update = np.ones(elements, np.float32)
        (Path(folder) / f"begun.{rank}").touch()
        ends: list[float] = []
        until = time.monotonic() + 2 * seconds
        computes_at = until - seconds - COMPUTES_S
        while time.monotonic() < until:
            if rank == computing and time.monotonic() > computes_at:
                time.sleep(until - time.monotonic())
                break
            time.sleep(STEP_S)
            parameters.push_pull(update, values, rate=1e-3).wait()
            ends.append(time.monotonic())
        if not np.isfinite(values).all():
            raise RuntimeError("a value is not finite")
        return ends


def recovered_s(ends: list[float], killed_at: float) -> tuple[float, float, float]:
    """Return the seconds until the rate has recovered, the longest step after the death, and the rate before."""
    before = [end for end in ends if end < killed_at]
    rate = len(before) / (before[-1] - before[0])
    windows = range(int((ends[-1] - killed_at) / WINDOW_S))
    counts = [sum(killed_at + i * WINDOW_S <= end < killed_at + (i + 1) * WINDOW_S for end in ends)
              for i in windows]  # fmt: skip
    slow = [i for i, count in enumerate(counts) if count < SHARE * rate * WINDOW_S]
    # A slow window long after the death has another reason, if those around it are not slow.
    last = 0
    for i in slow:
        if i <= last + 1:
            last = i
    recovered = (last + 1) * WINDOW_S if slow and slow[0] <= 1 else 0.0
    after = [end for end in ends if end >= killed_at]
    longest = max(b - a for a, b in zip([killed_at, *after], after, strict=False))
    return recovered, longest, rate


def measure(
    victim: int, computing: int | None, elements: int, wire: str, seconds: float
) -> list[tuple[float, float, float]]:
    """Return what each survivor that makes steps saw of one death."""
    killed_at = 0.0

    def kill(members: list[Any], folder: Path) -> None:
        nonlocal killed_at
        while len(list(folder.glob("begun.*"))) < RANKS:
            time.sleep(0.01)
        time.sleep(seconds)
        os.kill(members[victim].pid, signal.SIGKILL)
        killed_at = time.monotonic()

    found = on_members(RANKS, member, elements, wire, seconds, computing, killed=(victim,), at=kill)
    return [recovered_s(ends, killed_at) for rank, ends in found.items() if rank != computing]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="before and after the death")
    parser.add_argument("--times", type=int, default=3, help="deaths of each kind")
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    given = parser.parse_args()
    rows = []
    for wire in ("shm", "tcp"):
        for what, (victim, computing) in DEATHS.items():
            seen = [one for _ in range(given.times)
                    for one in measure(victim, computing, given.elements, wire, given.seconds)]  # fmt: skip
            worst = max(recovered for recovered, _, _ in seen)
            longest = max(step for _, step, _ in seen)
            rate = statistics.median(rate for _, _, rate in seen)
            beside = f"longest step {longest:.3f} s; {rate:.0f} steps/s before; worst of {len(seen)}"
            rows.append(Row(f"{wire}: {what} is killed", worst, "s", GOAL_S, beside=beside))
    report(rows, given.json)


if __name__ == "__main__":
    main()
