# SPDX-License-Identifier: Apache-2.0
"""The operations of docs/conformance.md that move tensors and change nothing in them."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from cells import COUNT, RANKS, part_of, same_bits


def _zeros(dtype: torch.dtype, count: int = COUNT) -> torch.Tensor:
    return torch.zeros(count).to(dtype)


def _parts(dtype: torch.dtype) -> list[torch.Tensor]:
    return [part_of(rank, COUNT, dtype) for rank in range(RANKS)]


def _block(source: int, target: int, dtype: torch.dtype) -> torch.Tensor:
    """Return what one rank has for another."""
    return part_of(source * RANKS + target, COUNT, dtype)


def _all_same(got: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
        same_bits(one, other, f"block {index}")


def broadcast(rank: int, dtype: torch.dtype) -> None:
    mine = part_of(rank, COUNT, dtype)
    dist.broadcast(mine, 1)
    same_bits(mine, part_of(1, COUNT, dtype), "broadcast")


def all_gather(rank: int, dtype: torch.dtype) -> None:
    got = [_zeros(dtype) for _ in range(RANKS)]
    dist.all_gather(got, part_of(rank, COUNT, dtype))
    _all_same(got, _parts(dtype))


def all_gather_into_tensor(rank: int, dtype: torch.dtype) -> None:
    got = _zeros(dtype, RANKS * COUNT)
    dist.all_gather_into_tensor(got, part_of(rank, COUNT, dtype))
    same_bits(got, torch.cat(_parts(dtype)), "all_gather_into_tensor")


def all_gather_coalesced(rank: int, dtype: torch.dtype) -> None:
    counts = (COUNT, 3)
    got = [[_zeros(dtype, count) for count in counts] for _ in range(RANKS)]
    dist.all_gather_coalesced(got, [part_of(rank, count, dtype) for count in counts])
    for source in range(RANKS):
        _all_same(got[source], [part_of(source, count, dtype) for count in counts])


def gather(rank: int, dtype: torch.dtype) -> None:
    got = [_zeros(dtype) for _ in range(RANKS)]
    dist.gather(part_of(rank, COUNT, dtype), got if rank == 1 else None, dst=1)
    _all_same(got, _parts(dtype) if rank == 1 else got)


def scatter(rank: int, dtype: torch.dtype) -> None:
    mine = _zeros(dtype)
    dist.scatter(mine, _parts(dtype) if rank == 1 else None, src=1)
    same_bits(mine, part_of(rank, COUNT, dtype), "scatter")


def all_to_all(rank: int, dtype: torch.dtype) -> None:
    got = [_zeros(dtype) for _ in range(RANKS)]
    dist.all_to_all(got, [_block(rank, target, dtype) for target in range(RANKS)])
    _all_same(got, [_block(source, rank, dtype) for source in range(RANKS)])


def all_to_all_single(rank: int, dtype: torch.dtype) -> None:
    got = _zeros(dtype, RANKS * COUNT)
    dist.all_to_all_single(got, torch.cat([_block(rank, target, dtype) for target in range(RANKS)]))
    same_bits(got, torch.cat([_block(source, rank, dtype) for source in range(RANKS)]), "all_to_all_single")


def send_recv(rank: int, dtype: torch.dtype) -> None:
    if rank == 0:
        dist.send(part_of(0, COUNT, dtype), 1)
    elif rank == 1:
        got = _zeros(dtype)
        dist.recv(got, 0)
        same_bits(got, part_of(0, COUNT, dtype), "recv")


def batch_isend_irecv(rank: int, dtype: torch.dtype) -> None:
    got = _zeros(dtype)
    before = (rank - 1) % RANKS
    ops = [
        dist.P2POp(dist.isend, part_of(rank, COUNT, dtype), (rank + 1) % RANKS),
        dist.P2POp(dist.irecv, got, before),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same_bits(got, part_of(before, COUNT, dtype), "irecv")


MOVING: dict[str, Callable[[int, torch.dtype], None]] = {
    function.__name__: function
    for function in (
        broadcast, all_gather, all_gather_into_tensor, all_gather_coalesced, gather, scatter,
        all_to_all, all_to_all_single, send_recv, batch_isend_irecv,
    )
}  # fmt: skip
