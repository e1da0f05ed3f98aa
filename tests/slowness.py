# SPDX-License-Identifier: Apache-2.0
"""How much slower this machine is than a quiet one, and limits of time that grow with it.

`limit(5)` is 5 s on a quiet machine and 20 s on one that is four times slower. Deadlines, timeouts of operations
and limits of processes go through it. The factor is measured once for a run. BRAID_TEST_SLOWNESS hands it down, so
that all ranks have the same limits. `limit_now()` also sees the load of the moment; it ends what hangs.

Example:
    process.communicate(timeout=limit(200))
"""

import os
import statistics
import subprocess
import time
from collections.abc import Callable

VARIABLE = "BRAID_TEST_SLOWNESS"
MOST = 8.0

# On a quiet machine of two cores, in seconds.
QUIET_SLEEP_S = 0.0012
QUIET_LOOP_S = 0.010
QUIET_PROCESS_S = 0.004
# The tests themselves keep four processes for each core busy at times. Such a load is none of others.
OWN_LOAD = 4.0


def measure() -> float:
    """Return the factor, from 1 to MOST: the slowest of a short sleep, a fixed loop and the start of a process."""
    sleep = statistics.median(_timed(lambda: time.sleep(0.001)) for _ in range(15))
    loop = statistics.median(_timed(_loop) for _ in range(7))
    process = statistics.median(_timed(_process) for _ in range(7))
    found = max(sleep / QUIET_SLEEP_S, loop / QUIET_LOOP_S, process / QUIET_PROCESS_S)
    return min(MOST, max(1.0, found))


def factor() -> float:
    """Return the factor of this run."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = f"{measure():.2f}"
    return min(MOST, max(1.0, float(os.environ[VARIABLE])))


def limit(seconds: float) -> float:
    """Return a limit of time for this machine: `seconds` where it is quiet, more where it is slow."""
    return seconds * factor()


def limit_now(seconds: float) -> float:
    """Return limit(), or more while the load is higher than the tests themselves make it."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * min(MOST, max(factor(), load / OWN_LOAD))


def asserts_speed() -> bool:
    """Return whether tests also assert how fast something was. A busy machine changes that, so it gates nothing.

    `make timing` sets BRAID_TEST_TIMING=1, and runs the tests that ask this. They are marked `timing`.
    """
    return os.environ.get("BRAID_TEST_TIMING") == "1"


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _loop() -> int:
    total = 0
    for number in range(300_000):
        total += number * number
    return total


def _process() -> None:
    subprocess.run(["true"], check=True)


if __name__ == "__main__":
    print(f"{measure():.2f}")
