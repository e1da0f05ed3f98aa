# SPDX-License-Identifier: Apache-2.0
"""Messages received from whoever sends first."""

import signal
import time

import pytest
import torch
import torch.distributed as dist
from ranks import SOON_S, Rank, error_of, run_ranks

pytestmark = pytest.mark.multiprocess


def take_from_anybody(rank: Rank) -> None:
    rounds = 4
    for tag, size in enumerate((1, 1009, 100_000)):
        if rank.rank != 0:
            for _ in range(rounds):
                dist.send(torch.full((size,), float(rank.rank)), 0, tag=tag)
            continue
        sources = []
        for _ in range(rounds * (rank.size - 1)):
            tensor = torch.zeros(size)
            sources.append(dist.recv(tensor, tag=tag))
            assert tensor.tolist() == [sources[-1]] * size
        assert sorted(sources) == sorted(list(range(1, rank.size)) * rounds)


def know_the_source(rank: Rank) -> None:
    """In a group whose ranks are not the global ones."""
    group = dist.new_group(list(range(1, rank.size)))
    tensor = torch.zeros(3)
    for sender in (2, 3):
        if rank.rank == 1:
            work = dist.irecv(tensor, group=group, tag=4)
            with pytest.raises(RuntimeError, match="wait"):
                work._source_rank()
        dist.barrier()
        if rank.rank == sender:
            dist.send(torch.full((3,), float(sender)), 1, group=group, tag=4)
        if rank.rank == 1:
            work.wait()
            assert work._source_rank() == sender - 1
            assert tensor[0].item() == sender
    if rank.rank == 1:
        assert dist.recv(tensor, group=group, tag=5) == 3  # this one tells the global rank
    elif rank.rank == 3:
        dist.send(tensor, 1, group=group, tag=5)


def leave_meanwhile(rank: Rank) -> None:
    """Who leaves in good order, and never had a word for the receiver, is no reason to give up."""
    last = rank.size - 1
    rank.join()
    dist.barrier()
    if rank.rank == 1:
        tensor = torch.zeros(3)
        work = dist.irecv(tensor)
    dist.barrier()
    if rank.rank > 1:
        dist.destroy_process_group()
        rank.mark("left")
        return
    for other in range(2, last + 1):
        rank.wait_for("left", other)
    time.sleep(0.3)  # to hear of it
    if rank.rank == 0:
        dist.send(torch.ones(3), 1)
    else:
        work.wait()
        assert work._source_rank() == 0
        assert tensor.tolist() == [1, 1, 1]
    dist.destroy_process_group()


def die(rank: Rank) -> str:
    if rank.rank == 1:
        rank.meet("waiting")
        signal.raise_signal(signal.SIGKILL)
    work = dist.irecv(torch.zeros(3))
    rank.meet("waiting")
    begun = time.monotonic()
    text = error_of(work.wait)
    assert time.monotonic() - begun < SOON_S
    rank.meet("heard", (0, 2))  # else the end of the other could be heard of first
    return text


@pytest.mark.parametrize("size", [2, 3, 5])
def test_messages_from_anybody(wire: str, size: int) -> None:
    run_ranks(take_from_anybody, size, wire=wire)


def test_the_source_is_told(wire: str) -> None:
    run_ranks(know_the_source, 4, wire=wire)


@pytest.mark.parametrize("size", [3, 5])
def test_who_leaves_ends_no_wait_for_others(wire: str, size: int) -> None:
    run_ranks(leave_meanwhile, size, wire=wire, join=False)


def test_who_was_only_listened_to_says_farewell() -> None:
    # Of five ranks some never have a word for the receiver then, and no connection of their own to it.
    environment = {"BRAID_ALGORITHM": "doubling"}
    run_ranks(leave_meanwhile, 5, wire="tcp", join=False, environment=environment)


def test_a_dead_rank_ends_the_wait(wire: str) -> None:
    results = run_ranks(die, 3, wire=wire, killed=[1])
    for survivor in (0, 2):
        assert "rank 1" in results[survivor]
        assert "recv from any rank" in results[survivor]
