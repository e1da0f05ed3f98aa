# SPDX-License-Identifier: Apache-2.0
"""How commands that serve hear of Ctrl-C."""

import signal
import subprocess
import sys

import pytest
from slowness import limit

# With a threading.Event, one of thirty such signals came while the wait held the lock that set() needs.
MANY = """
import os, signal, threading
from braid.cli.signals import Ending
for _ in range(500):
    with Ending() as ending:
        threading.Timer(0.0003, os.kill, (os.getpid(), signal.SIGINT)).start()
        while not ending.wait(0.0):
            pass
"""
TWICE = """
import os, signal
from braid.cli.signals import Ending
with Ending() as ending:
    os.kill(os.getpid(), signal.SIGTERM)
    assert ending.wait(0.0) and ending.has_come()
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(("script", "status"), [(MANY, 0), (TWICE, -signal.SIGTERM)])
def test_a_signal_is_noted_wherever_it_interrupts_the_wait(script: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=limit(60), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (status, "")
