# SPDX-License-Identifier: Apache-2.0
"""Stops a rank's process and presses Ctrl-C in another, so that tests see how long that takes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ranks import Rank

# 0.1 s on an idle machine.
SOON_S = 2.0


def stop_soon(rank: Rank, name: str) -> None:
    """Stop this process once the other rank has asked for it; the other lets it go on."""
    (rank.folder / f"pid.{rank.rank}").write_text(str(os.getpid()))
    rank.wait_for(name, 1 - rank.rank)
    os.kill(os.getpid(), signal.SIGSTOP)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


@contextmanager
def stopped(rank: Rank, name: str) -> Iterator[None]:
    """While this lasts the other rank, which calls stop_soon(), is stopped."""
    rank.mark(name)
    path = rank.folder / f"pid.{1 - rank.rank}"
    while not path.exists() or not path.read_text():
        time.sleep(0.002)
    pid = int(path.read_text())
    while not _is_stopped(pid):
        time.sleep(0.002)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def interrupted(call: Callable[[], Any], after_s: float = 0.3) -> float:
    """Press Ctrl-C while `call` waits; return after how many seconds KeyboardInterrupt came."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sent: list[float] = []

    def press() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after_s, press)
    timer.start()
    try:
        call()
    except KeyboardInterrupt:
        late = time.monotonic() - sent[0]
        assert late < SOON_S, f"Ctrl-C took {late:.2f} s"
        return late
    finally:
        timer.cancel()
    raise AssertionError("the call returned, though nobody came")


def start_script(script: Path, *arguments: object, **variables: str) -> "subprocess.Popen[str]":
    """Start a rank as a process that Ctrl-C reaches, even where the tests themselves ignore it."""
    return subprocess.Popen(
        [sys.executable, script, *map(str, arguments)],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
