# SPDX-License-Identifier: Apache-2.0
"""Operations to run on CPU tensors and on tensors of a device, which must give the same bits.

Each case is a function of the rank, the number of ranks and `put`, which moves a tensor to the device. It returns
the tensors that the operations have changed. Every input is computed on the device just before, and every result
is used just after, so that a missing wait shows.
"""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

Tensor = torch.Tensor
Put = Callable[[Tensor], Tensor]
Case = Callable[[int, int, Put], list[Tensor]]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def values(put: Put, rank: int, *sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return values of this rank. The last step of computing them is on the device."""
    count = torch.Size(sizes).numel()
    base = (torch.arange(count) * 7 + rank * 3) % 11 + 1
    if dtype == torch.bool:
        return put((base % 2 == 0).reshape(sizes)).logical_not_().logical_not_()
    return put(base.reshape(sizes).to(dtype)).mul_(1).add_(0)


def used(*tensors: Tensor) -> list[Tensor]:
    """Return what a later operation on the caller's stream sees."""
    return [tensor.clone() for tensor in tensors]


def reductions(rank: int, size: int, put: Put) -> list[Tensor]:
    """Reduce every dtype with every operator that it has."""
    results = []
    for dtype in (*FLOATS, *INTEGERS, torch.bool):
        ops = [dist.ReduceOp.SUM]
        ops += [] if dtype.is_complex else [dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
        ops += [dist.ReduceOp.BXOR] if dtype in INTEGERS else [dist.ReduceOp.AVG] if dtype in FLOATS else []
        for op in ops:
            tensor = values(put, rank, 5, dtype=dtype)
            dist.all_reduce(tensor, op=op, async_op=True).wait()
            results += used(tensor)
    return results


def scaled(rank: int, size: int, put: Put) -> list[Tensor]:
    """PREMUL_SUM with a number and with a tensor on the device."""
    results = []
    for factor in (0.3, put(torch.tensor(0.7))):
        op = dist._make_nccl_premul_sum(factor)
        for dtype in (torch.float32, torch.bfloat16):
            tensor = values(put, rank, 9, dtype=dtype)
            dist.all_reduce(tensor, op=op)
            results += used(tensor)
    return results


def rooted(rank: int, size: int, put: Put) -> list[Tensor]:
    """Broadcast, reduce, gather, scatter."""
    root = size - 1
    sent, summed = values(put, rank, 3, 4), values(put, rank, 8)
    gathered = [values(put, 9, 4) for _ in range(size)] if rank == root else None
    scattered = [values(put, each, 4) for each in range(size)] if rank == root else None
    part = values(put, 9, 4)
    dist.broadcast(sent, root)
    dist.reduce(summed, root)
    dist.gather(values(put, rank, 4), gathered, root)
    dist.scatter(part, scattered, root)
    return used(sent, summed, part, *(gathered or []))


def blocks(rank: int, size: int, put: Put) -> list[Tensor]:
    """Gather and scatter blocks of all ranks, as lists and as one tensor, of equal and unequal sizes."""
    listed = [values(put, 9, 2 + each) for each in range(size)]
    dist.all_gather(listed, values(put, rank, 2 + rank))
    whole = values(put, 9, size * 3)
    dist.all_gather_into_tensor(whole, values(put, rank, 3))
    part = values(put, 9, 3)
    dist.reduce_scatter(part, [values(put, rank + each, 3) for each in range(size)])
    other = values(put, 9, 3)
    dist.reduce_scatter_tensor(other, values(put, rank, size * 3), op=dist.ReduceOp.AVG)
    received = [values(put, 9, 1 + rank) for _ in range(size)]
    dist.all_to_all(received, [values(put, rank, 1 + each) for each in range(size)])
    single = values(put, 9, size * 2, 2)
    dist.all_to_all_single(single, values(put, rank, size * 2, 2))
    return used(*listed, whole, part, other, *received, single)


def aliased(rank: int, size: int, put: Put) -> list[Tensor]:
    """An input that is a part of the output, and an output that is a part of the input."""
    whole = values(put, rank, size * 4)
    dist.all_gather_into_tensor(whole, whole[rank * 4 : rank * 4 + 4])
    summed = values(put, rank, size * 4)
    dist.reduce_scatter_tensor(summed[rank * 4 : rank * 4 + 4], summed)
    twice = values(put, rank, 6)
    works = [dist.all_reduce(twice, async_op=True) for _ in range(2)]
    for work in works:
        work.wait()
    return used(whole, summed, twice)


def unusual(rank: int, size: int, put: Put) -> list[Tensor]:
    """Empty, zero-dimensional, transposed, strided, negated and 8-bit tensors."""
    empty, scalar = values(put, rank, 0), values(put, rank, 1).reshape(())
    turned, sparse = values(put, rank, 4, 3).t(), values(put, rank, 12)[::3]
    negated = values(put, rank, 4, dtype=torch.complex64).mul_(1 + 2j).conj().imag
    assert negated.is_neg()
    for tensor in (empty, scalar, turned, sparse, negated):
        dist.all_reduce(tensor)
    small = values(put, rank, 4).to(torch.float8_e4m3fn)
    dist.broadcast(small, 0)
    listed = [values(put, 9, 3, 2).t() for _ in range(size)]
    dist.all_gather(listed, values(put, rank, 2, 3))
    return used(empty, scalar, turned, sparse, negated.resolve_neg(), small.view(torch.uint8), *listed)


def messages(rank: int, size: int, put: Put) -> list[Tensor]:
    """Messages round the ring, with tags in another order, from any rank, and in a batch."""
    after, before = (rank + 1) % size, (rank - 1) % size
    first, second, batch = (values(put, 9, 6) for _ in range(3))
    works = [
        dist.isend(values(put, rank, 6), after, tag=1),
        dist.isend(values(put, rank + 20, 6), after, tag=2),
        dist.irecv(second, before, tag=2),
        dist.irecv(first, before, tag=1),
    ]
    for work in works:
        assert work is not None
        work.wait()
    ops = [dist.P2POp(dist.irecv, batch, before), dist.P2POp(dist.isend, values(put, rank, 6), after)]
    for each in dist.batch_isend_irecv(ops):
        each.wait()
    any_rank = values(put, 9, 6)
    if rank == 0:
        dist.recv(any_rank, tag=3)  # a rank may be in the next case, and has sent a message of its batch
    if rank == 1:
        dist.send(values(put, rank, 6), 0, tag=3)
    return used(first, second, batch, any_rank)


def coalesced(rank: int, size: int, put: Put) -> list[Tensor]:
    """Several operations that torch makes one of."""
    summed = [values(put, rank + i, 3 + i) for i in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in summed:
            dist.all_reduce(tensor)
    manager.wait()
    wholes = [values(put, 9, size * 2) for _ in range(2)]
    with dist._coalescing_manager():
        for tensor in wholes:
            dist.all_gather_into_tensor(tensor, values(put, rank, 2))
    parts = [values(put, 9, 2) for _ in range(2)]
    with dist._coalescing_manager():
        for tensor in parts:
            dist.reduce_scatter_tensor(tensor, values(put, rank, size * 2))
    return used(*summed, *wholes, *parts)


def futures(rank: int, size: int, put: Put) -> list[Tensor]:
    """A wait for a future, a callback that uses the result, and a callback of a callback."""
    plain, chained = values(put, rank, 5), values(put, rank, 7)
    dist.all_reduce(plain, async_op=True).get_future().wait()
    results = used(plain)
    future = dist.all_reduce(chained, async_op=True).get_future()
    results.append(future.then(lambda done: done.value()[0] * 2).then(lambda done: done.value() + 1).wait())
    return [*used(*results), *used(chained)]


def mixed(rank: int, size: int, put: Put) -> list[Tensor]:
    """Operations on CPU tensors and on tensors of the device, in one order, with barriers between them."""
    tensors = [values(put if i % 2 else Tensor.clone, rank + i, 6) for i in range(6)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dist.barrier()
    for work in works:
        work.wait()
    return [tensor.cpu() for tensor in used(*tensors)]


def lossy(rank: int, size: int, put: Put) -> list[Tensor]:
    """Lossy reductions, with a residual on the device. On one host they are exact."""
    import braid

    tensor, residual = values(put, rank, 64), put(torch.zeros(64))
    braid.lossy_all_reduce(tensor, "int8", residual=residual)
    part, kept = values(put, 9, 16), put(torch.zeros(16 * size))
    braid.lossy_reduce_scatter(part, values(put, rank, 16 * size), "fp16", residual=kept)
    return used(tensor, residual, part, kept)


CASES: tuple[Case, ...] = (
    reductions, scaled, rooted, blocks, aliased, unusual, messages, coalesced, futures, mixed, lossy,
)  # fmt: skip


def bits(tensors: list[Tensor]) -> Iterator[bytes]:
    """Yield the bytes of each tensor, as the host sees them."""
    for tensor in tensors:
        yield bytes(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
