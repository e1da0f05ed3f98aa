# SPDX-License-Identifier: Apache-2.0
"""Aggregators: do they take load off the cards of the ranks, and do these get by when they come, leave or die?"""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from braid import cli
from braid.lab import Job, Lab, environments, unavailable
from braid.lab.namespaces import send_signal
from hosts_apart import SLOW
from ranks import SOON_S
from slowness import limit
from steps import Steps, start_server

pytestmark = pytest.mark.multiprocess

in_lab = pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}")
NBYTES = 4 << 20
RANKS = 4
# What of a full-sized frame of Ethernet is TCP's: 1448 of 1514 bytes.
PAYLOAD = 1448 / 1514


def stated(folder: Path) -> str:
    """Return a file of links, for tests of what is chosen: on a busy machine cards may be measured too slow."""
    path = folder / "links.toml"
    path.write_text(SLOW)
    return str(path)


@contextmanager
def servers(
    lab: Lab, store: str, hosts: slice = slice(RANKS, None), links: str = "measure"
) -> Iterator[list["subprocess.Popen[str]"]]:
    started = [start_server(host, store, links) for host in lab.hosts[hosts]]
    try:
        yield started
    finally:
        for server in started:
            send_signal(server, signal.SIGTERM)
            server.wait(limit(30))


def is_helped(steps: Steps, ranks: int = RANKS) -> bool:
    told = steps.told()
    return bool(told) and len(told[-1]["shares"]) > ranks


def has_gone_on_alone(steps: Steps) -> bool:
    told = steps.told()
    return bool(told) and len(told[-1]["shares"]) <= RANKS


@in_lab
@pytest.mark.alone
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.long)])
def test_cards_carry_what_the_shares_say(tmp_path: Path, count: int) -> None:
    repetitions = 4
    links = stated(tmp_path)
    with Lab(f"{RANKS + count}x100mbit") as lab:
        ranks = [1] * RANKS + [0] * count
        with (
            Steps(lab, ranks, tmp_path, NBYTES, BRAID_SERVERS=str(count), BRAID_LINKS=links) as steps,
            servers(lab, steps.store, links=links),
        ):
            steps.hold()
            before = [lab.sent_bytes(host) for host in lab.hosts]
            steps.release()
            steps.more(repetitions - 1)
            steps.hold()
            shares = steps.told()[-1]["shares"]
            done = len(steps.told())
            sent = [lab.sent_bytes(host) - was for host, was in zip(lab.hosts, before, strict=True)]
    assert len(shares) == RANKS + count, (steps.told(), steps.errors())
    assert min(shares[RANKS:]) > 0
    for host, share in enumerate(shares):
        vectors = 1 + (RANKS - 2) * share if host < RANKS else RANKS * share
        assert sent[host] == pytest.approx(vectors * NBYTES * done / PAYLOAD, rel=0.05), (host, shares)


def still_in_a_step(steps: Steps, done: int) -> None:
    if len(steps.told()) != done:
        raise TimeoutError("the step has ended before anybody was killed in it")


@pytest.mark.long
@in_lab
def test_a_killed_one_costs_a_step_some_time_and_nothing_else(tmp_path: Path) -> None:
    links = stated(tmp_path)
    with Lab(f"{RANKS + 1}x50mbit") as lab:
        with Steps(lab, [1] * RANKS + [0], tmp_path, 2 * NBYTES, BRAID_SERVERS="1", BRAID_LINKS=links) as steps:
            with servers(lab, steps.store, links=links) as (server,):
                steps.until(lambda: is_helped(steps))
                steps.hold()
                done = len(steps.told())
                steps.release()
                time.sleep(0.15)
                send_signal(server, signal.SIGKILL)
                still_in_a_step(steps, done)
                assert server.wait(limit(30)) == -signal.SIGKILL
            steps.more(1)
            assert has_gone_on_alone(steps)
            steps.more(2)
        assert sum("goes on without its 1 aggregator" in line for line in steps.errors()) == 1


# Through the aggregator, or when that has died in the same step and the ranks do it again by themselves.
@in_lab
@pytest.mark.parametrize(
    ("victim", "again"),
    [pytest.param(0, False, id="through it"), pytest.param(2, True, id="again", marks=pytest.mark.long)],
)
def test_a_rank_that_dies_in_a_step_fails_the_others(tmp_path: Path, victim: int, again: bool) -> None:
    ranks, links = 3, stated(tmp_path)
    with (
        Lab(f"{ranks + 1}x50mbit") as lab,
        Steps(lab, [1] * ranks + [0], tmp_path, 2 * NBYTES, BRAID_SERVERS="1", BRAID_LINKS=links) as steps,
    ):
        with servers(lab, steps.store, slice(ranks, None), links) as (server,):
            steps.until(lambda: is_helped(steps, ranks))
            steps.hold()
            done = len(steps.told())
            steps.release()
            time.sleep(0.3)
            if again:
                send_signal(server, signal.SIGKILL)
                steps.until(lambda: bool(steps.errors()))
                time.sleep(0.2)
            still_in_a_step(steps, done)
            died = time.monotonic()
            send_signal(steps.job.ranks[victim], signal.SIGKILL)
            codes = steps.fail()
            assert time.monotonic() - died < SOON_S + 3
        assert codes == [-signal.SIGKILL if rank == victim else 1 for rank in range(ranks)]
    lines = steps.errors()
    assert not [line for line in lines if "wrong sum" in line]
    assert len([line for line in lines if "goes on without its 1 aggregator" in line]) == again
    failures = [line for line in lines if line.startswith("braid.")]
    assert len(failures) == ranks - 1, lines
    for line in failures:
        assert line.startswith("braid.PeerLostError: "), line  # of the step, or of what comes before it
        assert f"rank {victim}" in line


@pytest.mark.long
@in_lab
@pytest.mark.alone
def test_one_may_come_later_leave_and_come_again(tmp_path: Path) -> None:
    with (
        Lab(f"{RANKS + 1}x100mbit") as lab,
        Steps(lab, [1] * RANKS + [0], tmp_path, NBYTES, BRAID_SERVERS="0") as steps,
    ):
        steps.more(1)
        assert has_gone_on_alone(steps)
        for time_round in (1, 2):
            with servers(lab, steps.store) as (server,):
                steps.until(lambda: is_helped(steps))
                steps.hold()
                send_signal(server, signal.SIGTERM)
                assert server.wait(limit(30)) == 0
                assert server.stderr is not None
                lines = server.stderr.read()
            assert lines.startswith(f"braid aggregator: aggregator 1 of 1 for {RANKS} ranks\n")
            steps.release()
            steps.until(lambda: has_gone_on_alone(steps))
            assert len(steps.errors()) == time_round


TRAIN = """
import os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("braid")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
alone, together = torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024)
together.load_state_dict(alone.state_dict())
ddp = DistributedDataParallel(together)
models = [(alone, alone, slice(None)), (ddp, together, slice(rank, rank + 1))]
for step in range(3):
    batch = torch.randn(size, 1024)
    for model, module, mine in models:
        model(batch[mine]).square().mean().backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    torch.testing.assert_close(together.weight, alone.weight)
rows = dist.group.WORLD._get_backend(torch.device("cpu")).stats()
algorithms = {row["algorithm"] for row in rows if row["collective"] == "all_reduce" and row["bytes"] > 1e6}
assert algorithms == {"direct with 1 aggregator"}, rows
dist.destroy_process_group()
"""


@pytest.mark.long
@in_lab
@pytest.mark.alone
def test_gradients_of_torch_go_through_one(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    with Lab(f"{RANKS + 1}x100mbit") as lab:
        links = stated(tmp_path)
        places = [(host, own | {"BRAID_LINKS": links}) for host, own in environments(lab, [1] * RANKS + [0])]
        own = places[0][1]
        with (
            servers(lab, f"{own['MASTER_ADDR']}:{own['MASTER_PORT']}", links=links) as (server,),
            Job(places, [sys.executable, str(script)], env={**os.environ, "BRAID_SERVERS": "1"}) as job,
        ):
            assert job.wait(limit(120)) == [0] * RANKS
            assert server.wait(limit(20)) == 0
            assert server.stderr is not None
            assert "aggregator 1 of 1" in server.stderr.read()


@pytest.mark.long
@in_lab
def test_the_job_starts_without_those_who_do_not_come(tmp_path: Path) -> None:
    code = """
        import sys, braid, numpy as np
        with braid.Communicator("env://", timeout_s=20) as comm:
            comm.all_reduce(np.ones(1 << 20, np.float32))
    """
    with Lab("2x100mbit") as lab, (tmp_path / "errors").open("w") as errors:
        command = [sys.executable, "-c", textwrap.dedent(code)]
        environment = {**os.environ, "BRAID_SERVERS": "1"}
        with Job(environments(lab, [1, 1]), command, env=environment, stderr=errors) as job:
            assert job.wait(limit(100)) == [0, 0]
    (line,) = (tmp_path / "errors").read_text().splitlines()
    assert "0 of 1 aggregator came; going on without the rest" in line


@pytest.mark.parametrize(
    ("store", "code", "complaint"),
    [
        ("nowhere", 2, "expected a host and a port"),
        ("node0:none", 2, "node0:none"),
        ("node0:70000", 2, "Port out of range"),
        ("http://node0:1", 2, "is no job's store"),
        ("file://folder", 2, "expected three slashes"),
        ("file://{file}", 1, "File exists"),
        ("nowhere.invalid:29500", 1, "nobody listens there after 1 s ("),
        ("localhost:1", 1, "nobody listens there after 1 s (Connection refused)"),
        ("tcp://localhost:1", 1, "nobody listens there after 1 s (Connection refused)"),
    ],
)
def test_a_wrong_store_is_one_line(
    store: str, code: int, complaint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert cli.main(["aggregator", "--timeout", "1", "--join", store.format(file=file)]) == code
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("braid: --join")
    assert complaint in err
    assert err.count("\n") == 1
