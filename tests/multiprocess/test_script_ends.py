# SPDX-License-Identifier: Apache-2.0
"""Scripts that end without close(), or with an exception: exit code 0 or 1, and nothing else in what they say."""

from pathlib import Path

import pytest
from ports import free_port
from slowness import limit, limit_now
from stopped import start_script

pytestmark = pytest.mark.multiprocess

SAYS_NOTHING_OF = ("terminate called", "Fatal Python error", "Exception ignored", "Exception in thread")

# Whoever needs the server in a rank that has ended gets an error. So ranks meet before they end.
TRAINING = """
import sys
import torch, torch.distributed as dist, braid.strategies as bs
from torch import nn
from torch.optim import SGD

kind, backend, fails = sys.argv[1], sys.argv[2], sys.argv[3] == "fails"
dist.init_process_group(backend)
model = nn.Linear(2000, 2000)
optimizer = SGD(model.parameters(), lr=1e-6)
if kind == "local":
    strategy = bs.LocalSGD(model, optimizer, sync_every=2)
elif kind == "local, servers":
    strategy = bs.LocalSGD(model, optimizer, sync_every=2, quorum=1, servers=[0])
elif kind == "diloco":
    strategy = bs.DiLoCo(model, optimizer, sync_every=2, fragment_sync_delay=1)
elif kind == "elastic_average":
    strategy = bs.ElasticAverage(model, optimizer, sync_every=1, schedule="sync3")
elif kind == "elastic_average, servers":
    strategy = bs.ElasticAverage(model, optimizer, sync_every=1)
elif kind == "gossip":
    strategy = bs.Gossip(model, optimizer)
elif kind == "parameter_server":
    strategy = optimizer = bs.ParameterServer(model, SGD, lr=1e-6)
elif kind == "hybrid":
    strategy = optimizer = bs.Hybrid(model, SGD, lr=1e-6, groups=[[0, 1]])
x = torch.ones(4, 2000)
for step in range(4):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.barrier()
if fails:
    raise ValueError("on purpose")
"""

KINDS = (
    *("local", "local, servers", "diloco", "elastic_average", "elastic_average, servers"),
    *("gossip", "parameter_server", "hybrid"),
)
QUICK = [("gossip", "braid", "fails")]


def outcome(script: Path, *arguments: str, ranks: int = 2) -> list[tuple[int, str]]:
    """Return the exit code and the output of each rank."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    processes = [start_script(script, *arguments, RANK=str(rank), **place) for rank in range(ranks)]
    try:
        said = [process.communicate(timeout=limit_now(100))[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


@pytest.mark.parametrize(
    ("kind", "backend", "how"),
    [
        pytest.param(kind, backend, how, marks=[] if (kind, backend, how) in QUICK else pytest.mark.long)
        for kind in KINDS
        for backend in ("braid", "gloo")
        for how in ("ends", "fails")
    ],
)
def test_a_strategy_that_nobody_closes(tmp_path: Path, kind: str, backend: str, how: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(TRAINING)
    for code, said in outcome(script, kind, backend, how):
        assert code == (how == "fails"), said
        assert not any(words in said for words in SAYS_NOTHING_OF), said


IN_TORCH = """
import threading, time
import torch
from braid.strategies.rounds.background import Background

large, begun = torch.ones(4_000_000), threading.Event()

def work():
    until = time.monotonic() + 2
    while time.monotonic() < until:
        large.zero_()
        begun.set()

thread = Background("test")
thread.start(work)
begun.wait()
"""

WAITING = """
import threading
import torch, torch.distributed as dist
from braid.strategies.rounds.background import Background
from braid.strategies.rounds.collectives import finish

begun = threading.Event()

class NeverDone:
    def is_completed(self):
        torch.ones(4_000_000).zero_()
        begun.set()
        return False

thread = Background("test")
thread.start(lambda: finish(NeverDone()))
begun.wait()
"""

IN_A_CHILD = """
import os, sys
import torch
from braid import _services
from braid.strategies.rounds.background import Background

class Service:
    name, member, workers = "test", 0, 1
    def abandon(self):
        print("abandoned by", "the parent" if os.getpid() == parent else "a child", flush=True)

parent, service, thread = os.getpid(), Service(), Background("test")
_services.register(service)
if os.fork() == 0:
    sys.exit(0)
assert os.wait()[1] == 0
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(IN_TORCH, "", id="in torch", marks=pytest.mark.long),
        pytest.param(WAITING, "", id="waiting for others"),
        pytest.param(IN_A_CHILD, "abandoned by the parent\n", id="in a forked child", marks=pytest.mark.long),
    ],
)
def test_threads_end_before_python(tmp_path: Path, text: str, says: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    process = start_script(script)
    try:
        said = process.communicate(timeout=limit(60))[0]
    finally:
        process.kill()
    assert (process.returncode, said) == (0, says)
