# SPDX-License-Identifier: Apache-2.0
"""Operations on tensors of many pieces, to run on CPU tensors and on tensors of a device, as cases.py has them."""

import torch
import torch.distributed as dist
from cases import Case, Put, Tensor, used, values

# With BRAID_PIECE_BYTES=512 and BRAID_CHUNK_BYTES=1024: some ten pieces and segments.
COUNT = 3001
SETTINGS = {"BRAID_PIECE_BYTES": "512", "BRAID_CHUNK_BYTES": "1024"}


def vectors(rank: int, size: int, put: Put) -> list[Tensor]:
    """All_reduce of several dtypes and operators, broadcast, reduce."""
    results = []
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.complex64):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)[: 1 if dtype == torch.int8 else 2]:
            # Not a division: a GPU multiplies by the reciprocal.
            tensor = values(put, rank, COUNT, dtype=dtype)
            tensor = tensor.div_(3, rounding_mode="floor") if dtype == torch.int8 else tensor.mul_(1 / 3)
            dist.all_reduce(tensor, op=op)
            results += used(tensor)
    for factor in (0.3, put(torch.tensor(0.7))):
        tensor = values(put, rank, COUNT)
        dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
        results += used(tensor)
    sent, summed = values(put, rank, 7, COUNT // 7), values(put, rank, COUNT)
    dist.broadcast(sent, size - 1)
    dist.reduce(summed, 0)
    # Other ranks than the root keep nothing that is defined.
    return [*results, *used(sent), *(used(summed) if rank == 0 else [])]


def blocks(rank: int, size: int, put: Put) -> list[Tensor]:
    """Gather and scatter blocks of equal and unequal sizes, as lists and as one tensor."""
    listed = [values(put, 9, COUNT // 2 + 600 * each) for each in range(size)]
    dist.all_gather(listed, values(put, rank, COUNT // 2 + 600 * rank))
    whole = values(put, 9, size * COUNT)
    dist.all_gather_into_tensor(whole, values(put, rank, COUNT))
    part = values(put, 9, COUNT)
    dist.reduce_scatter(part, [values(put, rank + each, COUNT).mul_(1 / 3) for each in range(size)])
    other = values(put, 9, COUNT)
    dist.reduce_scatter_tensor(other, values(put, rank, size * COUNT).mul_(1 / 3), op=dist.ReduceOp.AVG)
    single = values(put, 9, size * 600, 2)
    dist.all_to_all_single(single, values(put, rank, size * 600, 2))
    gathered = [values(put, 9, COUNT) for _ in range(size)] if rank == 0 else None
    scattered = [values(put, each, COUNT) for each in range(size)] if rank == 0 else None
    mine = values(put, 9, COUNT)
    dist.gather(values(put, rank, COUNT), gathered, 0)
    dist.scatter(mine, scattered, 0)
    return used(*listed, whole, part, other, single, mine, *(gathered or []))


def aliased(rank: int, size: int, put: Put) -> list[Tensor]:
    """Inputs inside outputs and the other way round, in place and not, and two operations on one tensor."""
    whole = values(put, rank, size * COUNT)
    dist.all_gather_into_tensor(whole, whole[rank * COUNT : (rank + 1) * COUNT])
    summed = values(put, rank, size * COUNT)
    dist.reduce_scatter_tensor(summed[rank * COUNT : (rank + 1) * COUNT], summed)
    shifted = values(put, rank, size * COUNT)
    dist.all_gather_into_tensor(shifted, shifted[COUNT // 2 : COUNT // 2 + COUNT])
    twice, read, written = (values(put, rank, COUNT) for _ in range(3))
    first, second = dist.all_reduce(twice, async_op=True), dist.all_reduce(twice, async_op=True)
    gathered = values(put, 9, size * COUNT)
    works = [
        first,
        second,
        dist.all_gather_into_tensor(gathered, read, async_op=True),
        dist.broadcast(read, 0, async_op=True),  # writes what the one before reads
        dist.all_reduce(written, async_op=True),
    ]
    for work in works:
        work.wait()
    return used(whole, summed, shifted, twice, gathered, read, written)


def strided(rank: int, size: int, put: Put) -> list[Tensor]:
    """Tensors with gaps, turned and negated."""
    turned, sparse = values(put, rank, 50, 60).t(), values(put, rank, 3 * COUNT)[::3]
    negated = values(put, rank, COUNT, dtype=torch.complex64).mul_(1 + 2j).conj().imag
    for tensor in (turned, sparse, negated):
        dist.all_reduce(tensor)
    listed = [values(put, 9, 60, 50).t() for _ in range(size)]
    dist.all_gather(listed, values(put, rank, 50, 60))
    return used(turned, sparse, negated.resolve_neg(), *listed)


PIPELINED: tuple[Case, ...] = (vectors, blocks, aliased, strided)
