# SPDX-License-Identifier: Apache-2.0
"""Lets several workers of pytest-xdist run tests side by side, but those that measure time alone."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest


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
