# SPDX-License-Identifier: Apache-2.0
"""Processes of `braid serve` that come to a job that runs, and take over shards."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ports import free_port
from ranks import Rank, run_ranks
from serving import LIMIT_S, said_by, serving, start

pytestmark = pytest.mark.multiprocess

ELEMENTS = 1 << 20  # a server without a rank has several shards of 1 MiB
BEFORE = 5
AFTER = 40


def minimise(rank: Rank, where: str, servers: str, ends: str, options: dict[str, Any]) -> dict[str, Any]:
    """Minimise |x - target|^2 / 2 while a server comes, and after that is killed, interrupted or stays."""
    import braid

    target = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    place = int(servers.partition(":")[2])  # of the newcomer
    late = None
    with braid.Parameters(
        where,
        elements=ELEMENTS,
        rank=rank.rank,
        size=rank.size,
        rule="sgd:momentum",
        servers=servers,
        timeout_s=LIMIT_S,
        **options,
    ) as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))

        def step() -> None:
            parameters.push_pull(values - target, values, rate=0.1, momentum=0.3).wait()

        def until(condition: Callable[[], bool]) -> None:
            deadline = time.monotonic() + LIMIT_S
            while not condition():
                assert time.monotonic() < deadline, parameters.stats()
                step()

        for _ in range(BEFORE):
            step()
        if rank.rank == 0:
            late = start(where, name="late")
        until(lambda: place in parameters.stats()["homes"])
        held = parameters.stats()["homes"].count(place)
        rank.mark("held")
        until(lambda: all((rank.folder / f"held.{other}").exists() for other in range(rank.size)))
        if late is not None and ends != "stays":
            os.kill(late.pid, signal.SIGKILL if ends == "is killed" else signal.SIGINT)
        if ends != "stays":
            until(lambda: place not in parameters.stats()["homes"])
        for _ in range(AFTER):
            step()
        distance = float(np.abs(values - target).max())
        counted = parameters.stats()
    said = ""
    if late is not None:
        late.wait(LIMIT_S)
        said = said_by(late)
    return {"held": held, "distance": distance, "lost": counted["lost_parts"], "said": said}


@pytest.mark.parametrize(
    ("servers", "ends", "options"),
    [
        pytest.param("serve:1", "stays", {}, marks=pytest.mark.long),
        ("serve:2", "is interrupted", {}),
        pytest.param("serve:2", "is killed", {"replicas": 1}, marks=pytest.mark.long),
    ],
    ids=["stays", "is interrupted", "is killed"],
)
def test_a_late_server_takes_shards(servers: str, ends: str, options: dict[str, Any]) -> None:
    where = f"tcp://127.0.0.1:{free_port()}"
    with serving(where, int(servers.partition(":")[2])) as processes:
        found = run_ranks(minimise, 2, where, servers, ends, options, join=False, timeout_s=300.0)
    for told in found:
        assert told["held"] >= 1
        assert told["distance"] < 1e-3
        assert told["lost"] == 0 or ends == "is killed"
    said = found[0]["said"]
    assert "has come late to strategy 'parameters', and takes shards" in said or ends == "is killed"
    assert "Traceback" not in said
    for process in processes:
        assert process.returncode == 0, said_by(process)
