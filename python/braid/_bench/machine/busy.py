# SPDX-License-Identifier: Apache-2.0
"""Processes that compute for ever, as other jobs of a shared machine do."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from braid._bench.workload import UsageError

MOST_BUSY = 256

# Ends with its parent, even one that was killed.
_PROGRAM = """
import os
parent = os.getppid()
print("computing", flush=True)
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""


def check_busy(count: int) -> None:
    """Refuse a number of --busy that makes no sense; raises UsageError."""
    if not 0 <= count <= MOST_BUSY:
        raise UsageError(f"--busy: expected 0 to {MOST_BUSY}, got {count}")


@contextmanager
def busy_beside(count: int) -> Iterator[None]:
    """Keep `count` processes computing while the block runs, of one thread each."""
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
    quiet = subprocess.DEVNULL  # Ctrl-C reaches them too
    processes: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count):
            processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=quiet, text=True
                )
            )
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()
