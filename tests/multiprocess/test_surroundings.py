# SPDX-License-Identifier: Apache-2.0
"""The surroundings of a job fail: its store dies, descriptors run out, worker processes outlive their rank."""

import os
import resource
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ports import free_port
from ranks import SOON_S, Rank, error_of, run_ranks
from slowness import limit
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.multiprocess

STORE_S = limit(10.0)

STORE = """
import sys, time
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", int(sys.argv[1]), None, is_master=True, wait_for_workers=False)
print("listening", flush=True)
time.sleep(600)
"""


def lose_the_store(rank: Rank, port: int, pid: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, None, is_master=False, timeout=timedelta(seconds=40))
    dist.init_process_group(
        "braid", store=store, rank=rank.rank, world_size=rank.size, timeout=timedelta(seconds=STORE_S)
    )
    dist.barrier()
    if rank.rank == 0:
        os.kill(pid, signal.SIGKILL)
        rank.mark("killed")
    rank.wait_for("killed", 0)
    # What the group does needs no store.
    for count in (1, 1000, 1 << 20):
        total = torch.ones(count)
        dist.all_reduce(total)
        assert total[-1].item() == rank.size
    started = time.monotonic()
    with pytest.raises((dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError)) as caught:
        dist.new_group()
    assert time.monotonic() - started < STORE_S + SOON_S, caught.value
    dist.all_reduce(total)
    assert total[-1].item() == rank.size**2
    started = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - started < SOON_S


@pytest.mark.long_over_tcp
def test_the_store_of_torch_dies(wire: str) -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", STORE, str(port)], stdout=subprocess.PIPE, text=True) as store:
        assert store.stdout is not None
        assert store.stdout.readline() == "listening\n"
        try:
            run_ranks(lose_the_store, 3, port, store.pid, wire=wire, join=False)
        finally:
            store.kill()


def run_out_of_descriptors(rank: Rank) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for free in (1, 2, 3):  # too few, each time for something else
        name = f"without {free}"
        if rank.rank == 1:
            used = max(int(number) for number in os.listdir("/proc/self/fd")) + 1
            spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(used)]  # fills the gaps below
            top = max(spare) + 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (top, before[1]))
            for fd in spare[:free]:
                os.close(fd)
        text = error_of(lambda name=name: rank.join(prefix=name, timeout_s=limit(4)))
        if rank.rank == 1:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for fd in spare[free:]:
                os.close(fd)
            assert "Too many open files" in text, text
        rank.mark(name)
        for other in range(rank.size):
            rank.wait_for(name, other)
    rank.join(prefix="with all")
    total = torch.ones(1000)
    dist.all_reduce(total)
    assert total[-1].item() == rank.size


@pytest.mark.long_over_tcp
def test_descriptors_run_out_while_a_group_forms(wire: str) -> None:
    run_ranks(run_out_of_descriptors, 2, wire=wire, join=False)


def die_with_workers(rank: Rank) -> None:
    data = TensorDataset(torch.arange(1000))
    if rank.rank == 1:
        batches = iter(DataLoader(data, batch_size=1, num_workers=2, multiprocessing_context="fork"))
        next(batches)
        (rank.folder / "workers").write_text(" ".join(str(worker.pid) for worker in batches._workers))
    dist.barrier()
    if rank.rank == 1:
        rank.wait_for("waiting", 0)
        time.sleep(0.2)
        (rank.folder / "time of death").write_text(repr(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    workers = [int(pid) for pid in (rank.folder / "workers").read_text().split()]
    for pid in workers:  # they look for their parent now and then; so they do not before we have
        os.kill(pid, signal.SIGSTOP)
    try:
        rank.mark("waiting")
        text = error_of(lambda: dist.all_reduce(torch.ones(1000)))
        late = time.monotonic() - float((rank.folder / "time of death").read_text())
        assert late < SOON_S, f"noticed only after {late:.1f} s: {text}"
        assert "rank 1" in text, text
        assert all(Path(f"/proc/{pid}").exists() for pid in workers)
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)


def test_a_rank_is_killed_whose_data_workers_live_on(wire: str) -> None:
    run_ranks(die_with_workers, 2, wire=wire, killed=[1])
