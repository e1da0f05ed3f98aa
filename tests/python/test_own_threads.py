# SPDX-License-Identifier: Apache-2.0
"""What goes on beside a job's ranks does not end without a word: a lab's events, and aggregators."""

import subprocess
import sys
import threading
from typing import Any

import pytest
from braid.cli import lab
from braid.cli.own_servers import AGGREGATORS, OwnServers
from slowness import limit

pytestmark = pytest.mark.unit


def test_an_event_that_fails_keeps_no_other_from_happening(capfd: pytest.CaptureFixture[str]) -> None:
    happened = threading.Event()

    def fail(_: Any) -> None:
        raise ValueError("no good")

    events = [lab.Event(0.0, 0, "first", fail), lab.Event(0.0, 0, "second", lambda _: happened.set())]
    with lab._happening(None, events):  # type: ignore[arg-type]
        assert happened.wait(limit(10))
    assert capfd.readouterr().err == "braid: 0 s: first: ValueError: no good\nbraid: 0 s: second\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("", ""),
        ("import time; time.sleep(100)", ""),
    ],
)
def test_of_an_aggregator_that_ended_by_itself_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], code: str, said: str
) -> None:
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: popen([sys.executable, "-c", code], **options)
    )
    servers = OwnServers(1, "localhost:1", AGGREGATORS)
    if "sleep" not in code:
        servers._servers[0].wait()
    servers.close()
    err = capfd.readouterr().err
    assert (f"{said} before the job's end" in err) if said else err == ""
