# SPDX-License-Identifier: Apache-2.0
"""Parameter servers in processes without a rank: `braid serve`, with workers in real ranks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import braid
import braid.strategies as bs
import numpy as np
import pytest
import torch
import torch.distributed as dist
from braid import cli
from braid._array import rendezvous
from ports import free_port
from ranks import Rank, run_ranks
from serving import LIMIT_S, said_by, serving
from slowness import limit
from torch import nn
from torch.optim import SGD
from waiting import eventually

pytestmark = pytest.mark.multiprocess

STEPS = 10
RUN_S = 250.0


def here(port: int) -> str:
    """Return the place of a job's store, as `braid serve` takes it."""
    return f"127.0.0.1:{port}"


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 33), nn.BatchNorm1d(33), nn.Tanh(), nn.Linear(33, 3))


def gradient_step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    data = torch.Generator().manual_seed(1000 * step + rank)
    optimizer.zero_grad()
    model(torch.randn(6, 8, generator=data)).square().mean().backward()
    optimizer.step()


def train(rank: Rank, servers: Any, steps: int = STEPS) -> tuple[list[float], dict[str, Any]]:
    """Return the values at the end, and what the strategy counted."""
    model = net()
    with bs.ParameterServer(
        model, SGD, lr=0.05, momentum=0.9, mode="sync", servers=servers, timeout=LIMIT_S
    ) as optimizer:
        for step in range(steps):
            gradient_step(model, optimizer, rank.rank, step)
        counted = optimizer.stats()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).tolist(), counted


def compare_places(rank: Rank, port: int) -> list[list[float]]:
    rank.meet_at(port, LIMIT_S)
    found = []
    for servers in ("serve:2", [0, 2], "1+serve:1", "serve:2"):
        values, counted = train(rank, servers)
        found.append(values)
        assert len(counted["homes"]) == 2
    os.environ["BRAID_PARAMETER_SERVERS"] = "2"
    values, counted = train(rank, None)
    assert counted["bytes"] == 0, "no shard lies in a rank"
    os.environ["BRAID_PARAMETER_SERVERS"] = "many"
    with pytest.raises(ValueError, match="BRAID_PARAMETER_SERVERS=many: expected a whole number from 0 to 64"):
        train(rank, None)
    return [*found, values]


@pytest.mark.long
def test_servers_alone_compute_what_servers_in_ranks_do() -> None:
    port = free_port()
    with serving(here(port), 2) as processes:
        for found in run_ranks(compare_places, 3, port, join=False, timeout_s=RUN_S):
            assert all(values == found[0] for values in found[1:])
    for process in processes:
        assert process.returncode == 0
        said = said_by(process)
        assert said.count(" is over after 30 updates") >= 3, said
        assert "Traceback" not in said


def go_on(rank: Rank, port: int, victim: int) -> tuple[int, int]:
    """Train while a server dies."""
    rank.meet_at(port, LIMIT_S)
    model = net()
    with bs.ParameterServer(model, SGD, lr=0.01, servers="serve:2", timeout=LIMIT_S) as optimizer:
        for step in range(60):
            if step == 20:
                dist.barrier()
                if rank.rank == 0:
                    os.kill(victim, signal.SIGKILL)
                dist.barrier()
            gradient_step(model, optimizer, rank.rank, step)
        assert all(np.isfinite(value).all() for value in (p.detach().numpy() for p in model.parameters()))
        counted = optimizer.stats()
        return counted["steps"], len(set(counted["homes"]))


def test_the_other_server_goes_on_when_one_is_killed() -> None:
    port = free_port()
    with serving(here(port), 2) as processes:
        assert run_ranks(go_on, 3, port, processes[1].pid, join=False, timeout_s=RUN_S) == [(60, 1)] * 3
    assert [process.returncode for process in processes] == [0, -signal.SIGKILL]


def has_ended(pid: int) -> bool:
    """Whether a process is over; its parent may not have noticed yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def outlive(rank: Rank, port: int, pids: list[int], mode: str) -> tuple[list[float], list[int], int]:
    """Train while servers are interrupted; return the values, how many updates are in them, and lost parts."""
    rank.meet_at(port, LIMIT_S)
    model = net()
    options: dict[str, Any] = {"servers": "serve:2", "mode": mode, "timeout": LIMIT_S}
    with bs.ParameterServer(model, SGD, lr=0.05, momentum=0.9, **options) as optimizer:
        for step in range(3 * STEPS):
            if step == STEPS:
                dist.barrier()
                if rank.rank == 0:
                    for pid in pids:
                        os.kill(pid, signal.SIGINT)
            gradient_step(model, optimizer, rank.rank, step)
            time.sleep(0.01 if step < 2 * STEPS else 0.1)  # the server goes once all have made a step more
        # Before the strategy's end, as all have made steps.
        eventually(lambda: len(pids) > 1 or has_ended(pids[0]), "the end of the server", 150)
        counted = optimizer.stats()
        assert len(pids) == 2 or len(set(counted["homes"])) == 1
        dist.barrier()
    found = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).tolist()
    return found, counted["last_versions"], counted["lost_parts"]


def undisturbed(rank: Rank) -> list[float]:
    return train(rank, None, 3 * STEPS)[0]


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_ctrl_c_hands_values_and_momentum_over(mode: str) -> None:
    port = free_port()
    with serving(here(port), 2) as processes:
        found = run_ranks(outlive, 3, port, [processes[1].pid], mode, join=False, timeout_s=RUN_S)
        assert processes[1].wait(LIMIT_S) == 0
        said = said_by(processes[1])
        assert "gives its shards to other servers" in said
        assert "strategy 'parameters.0' goes on with other servers, after " in said
        assert "Traceback" not in said
    assert [lost for _, _, lost in found] == [0, 0, 0]
    pushes = 3 * STEPS * (1 if mode == "sync" else 3)
    for shard in range(2):
        assert max(versions[shard] for _, versions, _ in found) == pushes
    if mode == "sync":
        expected = run_ranks(undisturbed, 3)[0]
        assert all(values == expected for values, _, _ in found)


@pytest.mark.long
def test_the_last_servers_stay_until_the_workers_have_left() -> None:
    port = free_port()
    with serving(here(port), 2) as processes:
        pids = [process.pid for process in processes]
        found = run_ranks(outlive, 3, port, pids, "sync", join=False, timeout_s=RUN_S)
    assert [lost for _, _, lost in found] == [0, 0, 0]
    assert [versions for _, versions, _ in found] == [[3 * STEPS] * 2] * 3
    assert [process.returncode for process in processes] == [0, 0]
    assert any("no other server is left for strategy" in said_by(process) for process in processes)


def be_refused(rank: Rank, port: int) -> tuple[str, str]:
    """Return what a worker hears of a server that is too small, and of one that never comes."""
    rank.meet_at(port, LIMIT_S)
    large = nn.Linear(1000, 200)
    begun = time.monotonic()
    with pytest.raises(ValueError, match="memory") as small:
        bs.ParameterServer(large, SGD, lr=0.1, servers="serve:1", timeout=LIMIT_S)
    assert time.monotonic() - begun < LIMIT_S / 2
    with bs.ParameterServer(nn.Linear(2, 2), SGD, lr=0.1, servers="serve:1", timeout=LIMIT_S):
        pass  # it still takes what fits
    with pytest.raises(braid.CommunicatorTimeoutError) as missing:
        bs.ParameterServer(nn.Linear(2, 2), SGD, lr=0.1, servers="serve:2", timeout=10.0)
    rank.mark("heard")
    for other in range(rank.size):  # rank 0 has the store
        rank.wait_for("heard", other)
    return str(small.value), str(missing.value)


def test_too_little_memory_and_a_server_that_never_comes() -> None:
    port = free_port()
    with serving(here(port), 1, "--memory", "1M"):
        (small, missing), *others = run_ranks(be_refused, 2, port, join=False, timeout_s=RUN_S)
    assert others == [(small, missing)]
    assert small == (
        "strategy 'parameters.0': the parameter server helper0 has 1 MiB of memory, and its part of this strategy "
        "needs 6.159 MiB: give it more with --memory, or start more servers"
    )
    assert missing == (
        "strategy 'parameters.2' waits for 2 parameter servers, and 1 came within 10 s; start them with "
        f"`braid serve --rendezvous 127.0.0.1:{port}`"
    )


SCRIPT = """
import sys
import torch, torch.distributed as dist, braid.strategies as bs
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
with bs.ParameterServer(model, torch.optim.SGD, lr=0.1, timeout=150) as optimizer:
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    sys.stdout.write(f"{len(optimizer.stats()['homes'])} {optimizer.stats()['bytes']}\\n")
dist.destroy_process_group()
"""


@pytest.mark.long
def test_braid_run_starts_them(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "braid.cli", "run", "--takeover", "", "--nproc", "2", "--servers", "2"]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=limit(200), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 0", "2 0"]
    assert done.stderr.count("braid serve: server ") == 2
    assert "Traceback" not in done.stderr


def test_a_wait_for_the_store_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(rendezvous, "_TOLD_AFTER_S", -1.0)  # at the first look
    assert cli.main(["serve", "--rendezvous", "127.0.0.1:9", "--timeout", "5"]) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first == "braid: waiting for the job's store at 127.0.0.1:9 (Connection refused), for 5 s in all"
    assert "nobody listens there after 5 s" in last


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (["--rendezvous", "nowhere"], 2, "--rendezvous: 'nowhere': expected a host and a port"),
        (["--rendezvous", "127.0.0.1:9", "--timeout", "0.2"], 1, "nobody listens there after 0.2 s"),
        (
            ["--rendezvous", "127.0.0.1:9", "--memory", "lots"],
            2,
            "--memory: 'lots' is no size; give one such as 8G",
        ),
        ([], 2, "--rendezvous"),
    ],
)
def test_what_cannot_be_is_one_line(
    options: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", *options]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("braid: ")
    assert complaint in err
    assert err.count("\n") == 1
