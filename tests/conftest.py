# SPDX-License-Identifier: Apache-2.0
"""What all tests share: limits that suit the machine, second tries, and the order in which tests run.

Several workers of pytest-xdist run tests side by side, but those that measure time alone. The workers begin with
the tests that run alone. In the middle of a run each would wait until all others rest. Then come those that take
long: such a test at the end would leave the other workers idle.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from parts import is_in_part
from reruns import Reruns
from slowness import factor, limit_now

# Before anything imports torch or NumPy, and for all processes that tests start. Threads of OpenMP spin while they
# wait for each other. Where more of them run than there are cores, a tiny training took ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--flaky-most", type=int, metavar="N", help="run late tests again; so many may pass only then"
    )
    parser.addoption("--part", metavar="K/N", help="of the long tests, run part K of N")


def pytest_configure(config: pytest.Config) -> None:
    factor()  # all processes of the run inherit it
    if not hasattr(config, "workerinput") and config.getoption("flaky_most") is not None:
        config.pluginmanager.register(Reruns(config), "reruns")


def pytest_report_header() -> str:
    return f"limits of time: times {factor():.2f}"


@contextmanager
def _lock(name: str, how: int) -> Iterator[None]:
    run = os.environ["PYTEST_XDIST_TESTRUNUID"]
    with (Path(tempfile.gettempdir()) / f"braid-tests-{run}.{name}").open("w") as file:
        fcntl.flock(file, how)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with ExitStack() as room:
        if "PYTEST_XDIST_WORKER" in os.environ:
            how = fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH
            # Whoever waits for the others holds the door, so that no new test slips in before it.
            with _lock("door", fcntl.LOCK_EX):
                room.enter_context(_lock("room", how))
        _give_time(item)
        return (yield)


def _give_time(item: pytest.Item) -> None:
    """Let pytest-timeout take a limit that suits the machine at this moment."""
    given = item.get_closest_marker("timeout")
    seconds = float(given.args[0] if given and given.args else item.config.getini("timeout"))
    item.add_marker(pytest.mark.timeout(limit_now(seconds)), append=False)


def _turn(item: pytest.Item) -> int:
    return 0 if item.get_closest_marker("alone") else 1 if item.get_closest_marker("slow") else 2


def _keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("part")
    if part is None:
        return
    kept = [item for item in items if not item.get_closest_marker("long") or is_in_part(item.nodeid, part)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


@pytest.hookimpl(trylast=True)  # after tests were deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _keep_part(config, items)
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
