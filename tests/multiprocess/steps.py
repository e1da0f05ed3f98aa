# SPDX-License-Identifier: Apache-2.0
"""A job in a lab that all-reduces one step after another, while a test changes the network or the aggregators."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from braid.lab import Host, Job, Lab, environments
from slowness import limit

# Every rank checks every sum. Rank 0 tells the others before a step whether to go on, and the test what was done.
RANK = """
import json, os, sys, time
from pathlib import Path
import braid, numpy as np
folder, values = Path(sys.argv[1]), int(sys.argv[2])
told = open(folder / "told", "a", buffering=1)
with braid.Communicator(f"file://{folder}/meet", timeout_s=60) as comm:
    base = (np.arange(values) % 1000).astype(np.float32)
    right = base * comm.size + sum(range(comm.size))
    go = np.ones(1)
    while True:
        if comm.rank == 0:
            while (folder / "hold").exists():
                (folder / "held").touch()
                time.sleep(0.005)
            (folder / "held").unlink(missing_ok=True)
            go[0] = not (folder / "end").exists()
        comm.broadcast(go)
        if not go[0]:
            break
        x = base + np.float32(comm.rank)
        began = time.monotonic()
        comm.all_reduce(x)
        took_s = time.monotonic() - began
        assert np.array_equal(x, right), f"rank {comm.rank}: wrong sum"
        if comm.rank == 0:
            chosen = comm.explain("all_reduce", x.nbytes)
            kept = {key: chosen[key] for key in ("shares", "algorithm")}
            told.write(json.dumps({"s": took_s, **kept}) + "\\n")
"""
PATIENCE_S = limit(60.0)


class Steps:
    """The job; it ends with the block, and every rank has to end well, unless fail() was called."""

    def __init__(self, lab: Lab, ranks_per_host: list[int], folder: Path, nbytes: int, **variables: str) -> None:
        """Start it. The variables are added to the ranks' environment."""
        self._folder = folder
        self._told, self._errors = folder / "told", folder / "errors"
        self._held, self._hold = folder / "held", folder / "hold"
        self._may_fail = False
        self._told.touch()
        self.nbytes = nbytes
        with self._errors.open("w") as errors:
            self.job = Job(
                [(host, own | variables) for host, own in environments(lab, ranks_per_host)],
                [sys.executable, "-c", RANK, str(folder), str(nbytes // 4)],
                env=dict(os.environ),
                stderr=errors,
            )

    @property
    def store(self) -> str:
        """Where its ranks meet."""
        return f"file://{self._folder}/meet"

    def told(self) -> list[dict[str, Any]]:
        """Return what rank 0 said of every step so far."""
        return [json.loads(line) for line in self._told.read_text().split("\n")[:-1]]

    def errors(self) -> list[str]:
        """Return the lines on the ranks' standard errors."""
        return self._errors.read_text().splitlines()

    def until(self, is_so: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Wait while the ranks work; AssertionError when one ends, TimeoutError when it takes too long."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert self.job.poll() == [None] * len(self.job.ranks), self.errors()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"it did not come within {timeout_s:.0f} s: {self.told()[-3:]}, {self.errors()}"
                )
            time.sleep(0.005)

    def hold(self) -> None:
        """Stop before the next step."""
        self._hold.touch()
        self.until(self._held.exists)

    def release(self) -> None:
        """Go on."""
        self._hold.unlink()

    def more(self, count: int) -> list[dict[str, Any]]:
        """Wait for so many more steps, and return what was said of them."""
        before = len(self.told())
        self.until(lambda: len(self.told()) >= before + count)
        return self.told()[before : before + count]

    def fail(self, timeout_s: float = PATIENCE_S) -> list[int]:
        """Wait until all ranks have ended by themselves, and return their exit codes: they need not end well."""
        self._may_fail = True
        return self.job.wait(timeout_s)

    def __enter__(self) -> Self:
        """Return the job."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        """End it."""
        try:
            if kind is None and not self._may_fail:
                (self._folder / "end").touch()
                self._hold.unlink(missing_ok=True)
                codes = self.job.wait(PATIENCE_S)
                assert not any(codes), (codes, self.errors())
        finally:
            self.job.close()


def start_server(host: Host, store: str, links: str = "measure") -> "subprocess.Popen[str]":
    """Start an aggregator on a host of a lab, with BRAID_LINKS; its lines are in `stderr`."""
    return host.start(
        [sys.executable, "-m", "braid.cli", "aggregator", "--join", store],
        env={**os.environ, "BRAID_INTERFACE": "eth0", "BRAID_LINKS": links},
        stderr=subprocess.PIPE,
        text=True,
    )
