# SPDX-License-Identifier: Apache-2.0
"""Runs pytest, and stops random ranks of its tests for a moment, again and again.

Ranks then go on at speeds of their own, as on a busy machine. A test that fails presumes an order for which nobody
waits, or braid does. Tests of rates and of measured links, marked `alone`, may fail; so may those that stop ranks.

Example:
    python tests/multiprocess/pauses.py -- -n 4 -m "not long" tests/multiprocess tests/device
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description="Stop random ranks of tests for a moment, again and again.")
    parser.add_argument("--longest", type=float, default=0.5, metavar="S", help="a stop takes 0.05 s to this")
    parser.add_argument("--every", type=float, default=0.2, metavar="S", help="mean time between stops")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="chooses ranks and times")
    parser.add_argument("pytest", nargs="*", metavar="ARG", help="what pytest is given")
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    tests = subprocess.Popen([sys.executable, "-m", "pytest", *options.pytest])
    stops = 0
    try:
        while tests.poll() is None:
            ranks = ranks_below(tests.pid)
            for pid in chosen.sample(ranks, min(len(ranks), chosen.randint(1, 3))):
                stop(pid, chosen.uniform(0.05, options.longest))
                stops += 1
            with suppress(subprocess.TimeoutExpired):
                tests.wait(chosen.uniform(0, 2 * options.every))
    finally:
        tests.terminate()
    print(f"{stops} stops", flush=True)
    return tests.wait()


def ranks_below(pid: int) -> list[int]:
    """Return the Python processes that pytest's workers have started and that have no children."""
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            children[int((folder / "stat").read_text().rpartition(")")[2].split()[1])].append(int(folder.name))
    found, below = [], [each for worker in children[pid] for each in children[worker]]
    while below:
        each = below.pop()
        below += children[each]
        with suppress(OSError):
            command = Path(f"/proc/{each}/cmdline").read_bytes()
            if not children[each] and b"python" in command and b"resource_tracker" not in command:
                found.append(each)
    return sorted(found)


def stop(pid: int, seconds: float) -> None:
    """Stop a process, and let a thread wake it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(seconds, wake, (pid,)).start()


def wake(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main())
