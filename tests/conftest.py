# SPDX-License-Identifier: Apache-2.0
"""Lets several workers of pytest-xdist run tests side by side, but those that measure time alone.

The workers begin with the tests that run alone. In the middle of a run each would wait until all others rest.
Then come those that take long: such a test at the end would leave the other workers idle.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

# Before anything imports torch or NumPy, and for all processes that tests start. Threads of OpenMP spin while they
# wait for each other. Where more of them run than there are cores, a tiny training took ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@contextmanager
def _lock(name: str, how: int) -> Iterator[None]:
    run = os.environ["PYTEST_XDIST_TESTRUNUID"]
    with (Path(tempfile.gettempdir()) / f"braid-tests-{run}.{name}").open("w") as file:
        fcntl.flock(file, how)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    how = fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH
    with ExitStack() as room:
        # Whoever waits for the others holds the door, so that no new test slips in before it.
        with _lock("door", fcntl.LOCK_EX):
            room.enter_context(_lock("room", how))
        return (yield)


def _turn(item: pytest.Item) -> int:
    return 0 if item.get_closest_marker("alone") else 1 if item.get_closest_marker("slow") else 2


@pytest.hookimpl(trylast=True)  # after tests were deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    early = sorted((item for item in items if _turn(item) < 2), key=_turn)
    others = [item for item in items if _turn(item) == 2]
    # A worker begins with its part of the list. Where parts are not equal, the later ones are longer. Tests that
    # are neither alone nor slow stay beside those of their file, for the sake of its fixtures.
    dealt = []
    for left in range(workers, 0, -1):
        size = (len(early) + len(others)) // left
        mine, early = early[::left], [item for place, item in enumerate(early) if place % left]
        room = max(0, size - len(mine))
        dealt += mine + others[:room]
        del others[:room]
    items[:] = dealt
