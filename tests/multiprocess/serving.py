# SPDX-License-Identifier: Apache-2.0
"""Starts processes of ``braid serve`` beside the ranks of a test."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from slowness import limit

LIMIT_S = limit(150.0)


def start(store: str, *options: str, name: str = "helper") -> "subprocess.Popen[str]":
    """Start one process for the job whose store this is."""
    # Ranks may need a minute for their imports.
    command = [sys.executable, "-m", "braid.cli", "serve", "--rendezvous", store, "--timeout", "300"]
    command += ["--name", name, *options]
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def said_by(process: "subprocess.Popen[str]") -> str:
    """Return what a process that has ended wrote to standard error."""
    assert process.stderr is not None
    return process.stderr.read()


@contextmanager
def serving(store: str, count: int, *options: str) -> Iterator[list["subprocess.Popen[str]"]]:
    """Start some processes; they must end by themselves when the ranks have."""
    started = [start(store, *options, name=f"helper{i}") for i in range(count)]
    try:
        yield started
    finally:
        for process in started:
            has_failed = sys.exc_info()[0] is not None
            if has_failed:
                process.kill()
            process.wait(LIMIT_S)
            if has_failed:
                sys.stderr.write(said_by(process))
