# SPDX-License-Identifier: Apache-2.0
"""Every collective, dtype, ReduceOp and size, against what torch computes on one rank.

One group runs hundreds of cases: that is quick, and shows that operations do not disturb each other.
"""

from itertools import product

import pytest
import torch
import torch.distributed as dist
from expected import MOVED, OPS, REDUCED, SIZES, close, contribution, reduction, same
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

FEW = [1, 2, 3, pytest.param(4, marks=pytest.mark.long)]
MORE = [5, pytest.param(7, marks=pytest.mark.long)]


def check_reduction(actual: torch.Tensor, op: str, parts: list[torch.Tensor], what: str) -> None:
    compare = close if op == "AVG" else same
    compare(actual, reduction(op, parts), what)


def all_parts(rank: Rank, count: int, dtype: torch.dtype, salt: int = 0) -> list[torch.Tensor]:
    return [contribution(other, count, dtype, salt) for other in range(rank.size)]


def reduce_everything(rank: Rank, sizes: list[int]) -> None:
    for dtype, op, count in product(REDUCED, OPS, sizes):
        what = f"{op} of {count} x {dtype}"
        reduce_op = getattr(dist.ReduceOp, op)
        parts = all_parts(rank, count, dtype)

        tensor = parts[rank.rank].clone()
        dist.all_reduce(tensor, reduce_op)
        check_reduction(tensor, op, parts, f"all_reduce {what}")

        root = count % rank.size
        tensor = parts[rank.rank].clone()
        dist.reduce(tensor, root, reduce_op)
        if rank.rank == root:
            check_reduction(tensor, op, parts, f"reduce {what}")
        else:
            same(tensor, parts[rank.rank], f"reduce {what}: a rank that is not the root keeps its tensor")


def reduce_scatter_everything(rank: Rank, sizes: list[int]) -> None:
    for dtype, op, count in product(REDUCED, OPS, sizes):
        what = f"{op} of {count} x {dtype}"
        reduce_op = getattr(dist.ReduceOp, op)
        # Block b of rank r is contribution(r, salt=b).
        mine = [contribution(rank.rank, count, dtype, block) for block in range(rank.size)]
        for_me = all_parts(rank, count, dtype, salt=rank.rank)

        output = torch.empty(count, dtype=dtype)
        dist.reduce_scatter(output, mine, reduce_op)
        check_reduction(output, op, for_me, f"reduce_scatter {what}")

        output = torch.empty(count, dtype=dtype)
        dist.reduce_scatter_tensor(output, torch.cat(mine), reduce_op)
        check_reduction(output, op, for_me, f"reduce_scatter_tensor {what}")


def move_everything(rank: Rank, sizes: list[int]) -> None:
    for dtype, count in product(MOVED, sizes):
        what = f"{count} x {dtype}"
        parts = all_parts(rank, count, dtype)
        root = (count + 1) % rank.size
        mine = parts[rank.rank]

        tensor = mine.clone()
        dist.broadcast(tensor, root)
        same(tensor, parts[root], f"broadcast {what}")

        outputs = [torch.empty_like(mine) for _ in parts]
        dist.all_gather(outputs, mine)
        for source, output in enumerate(outputs):
            same(output, parts[source], f"all_gather {what}, block {source}")

        output = torch.empty(rank.size * count, dtype=dtype)
        dist.all_gather_into_tensor(output, mine)
        same(output, torch.cat(parts), f"all_gather_into_tensor {what}")

        outputs = [torch.empty_like(mine) for _ in parts]
        dist.gather(mine, outputs if rank.rank == root else None, dst=root)
        if rank.rank == root:
            for source, output in enumerate(outputs):
                same(output, parts[source], f"gather {what}, block {source}")

        output = torch.empty_like(mine)
        dist.scatter(output, parts if rank.rank == root else None, src=root)
        same(output, mine, f"scatter {what}")


def exchange_everything(rank: Rank, sizes: list[int]) -> None:
    for dtype, count in product(MOVED, sizes):
        what = f"{count} x {dtype}"
        # Rank r sends contribution(r, salt=d) to rank d.
        inputs = [contribution(rank.rank, count, dtype, to) for to in range(rank.size)]
        wanted = [contribution(source, count, dtype, rank.rank) for source in range(rank.size)]

        outputs = [torch.empty_like(block) for block in wanted]
        dist.all_to_all(outputs, inputs)
        for source, output in enumerate(outputs):
            same(output, wanted[source], f"all_to_all {what}, block {source}")

        output = torch.empty(rank.size * count, dtype=dtype)
        dist.all_to_all_single(output, torch.cat(inputs))
        same(output, torch.cat(wanted), f"all_to_all_single {what}")


def exchange_unequal(rank: Rank) -> None:
    def rows(source: int, to: int) -> int:
        return (source * 3 + to * 2) % 5  # some are zero

    inputs = [contribution(rank.rank, rows(rank.rank, to) * 6, torch.float32, to) for to in range(rank.size)]
    wanted = [
        contribution(source, rows(source, rank.rank) * 6, torch.float32, rank.rank) for source in range(rank.size)
    ]

    outputs = [torch.empty_like(block) for block in wanted]
    dist.all_to_all(outputs, inputs)
    for source, output in enumerate(outputs):
        same(output, wanted[source], f"all_to_all, block {source}")

    output = torch.empty_like(torch.cat(wanted)).reshape(-1, 2, 3)
    dist.all_to_all_single(
        output,
        torch.cat(inputs).reshape(-1, 2, 3),
        output_split_sizes=[rows(source, rank.rank) for source in range(rank.size)],
        input_split_sizes=[rows(rank.rank, to) for to in range(rank.size)],
    )
    same(output.reshape(-1), torch.cat(wanted), "all_to_all_single with splits")


def gather_unequal(rank: Rank) -> None:
    counts = [(3 * other + 2) % 7 for other in range(rank.size)]
    parts = [contribution(other, counts[other], torch.int64) for other in range(rank.size)]
    outputs = [torch.empty_like(part) for part in parts]
    dist.all_gather(outputs, parts[rank.rank])
    for source, output in enumerate(outputs):
        same(output, parts[source], f"all_gather of unequal blocks, block {source}")

    blocks = [contribution(rank.rank, counts[other], torch.float32, other) for other in range(rank.size)]
    output = torch.empty(counts[rank.rank])
    dist.reduce_scatter(output, blocks)
    for_me = [contribution(other, counts[rank.rank], torch.float32, rank.rank) for other in range(rank.size)]
    same(output, reduction("SUM", for_me), "reduce_scatter of unequal blocks")


def send_around(rank: Rank, sizes: list[int]) -> None:
    after, before = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    for dtype, count in product(MOVED, sizes):
        received = torch.empty(count, dtype=dtype)
        work = dist.irecv(received, before, tag=5)
        dist.send(contribution(rank.rank, count, dtype), after, tag=5)
        work.wait()
        same(received, contribution(before, count, dtype), f"send and recv of {count} x {dtype}")

    # Tags are independent of each other; messages of one tag keep their order.
    sent = [contribution(rank.rank, 50, torch.int32, salt) for salt in range(4)]
    works = [dist.isend(tensor, after, tag=salt // 2) for salt, tensor in enumerate(sent)]
    for tag in (1, 0):
        for salt in (2 * tag, 2 * tag + 1):
            received = torch.empty(50, dtype=torch.int32)
            dist.recv(received, before, tag=tag)
            same(received, contribution(before, 50, torch.int32, salt), f"message {salt} with tag {tag}")
    for work in works:
        work.wait()


def batch_messages(rank: Rank) -> None:
    received = {other: torch.empty(1000) for other in range(rank.size) if other != rank.rank}
    sent = contribution(rank.rank, 1000, torch.float32)
    messages = [dist.P2POp(dist.isend, sent, other) for other in received]
    messages += [dist.P2POp(dist.irecv, tensor, other) for other, tensor in received.items()]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    for other, tensor in received.items():
        same(tensor, contribution(other, 1000, torch.float32), f"message of rank {other}")


def coalesce(rank: Rank) -> None:
    counts = [5, 0, 1000]
    tensors = [contribution(rank.rank, count, torch.float32, salt) for salt, count in enumerate(counts)]
    group = dist.group.WORLD
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = dist.ReduceOp.SUM
    work = group.allreduce_coalesced(tensors, options)
    work.wait()
    for salt, count in enumerate(counts):
        wanted = reduction("SUM", all_parts(rank, count, torch.float32, salt))
        same(tensors[salt], wanted, f"allreduce_coalesced, tensor {salt}")
    flat = work.get_future().wait()
    assert [tensor.data_ptr() for tensor in flat] == [tensor.data_ptr() for tensor in tensors]

    inputs = [contribution(rank.rank, count, torch.int32, salt) for salt, count in enumerate(counts)]
    outputs = [torch.empty(count * rank.size, dtype=torch.int32) for count in counts]
    group.allgather_into_tensor_coalesced(outputs, inputs).wait()
    for salt, count in enumerate(counts):
        wanted = torch.cat(all_parts(rank, count, torch.int32, salt))
        same(outputs[salt], wanted, f"allgather_into_tensor_coalesced, tensor {salt}")

    blocks = [
        torch.cat([contribution(rank.rank, count, torch.float64, salt + to) for to in range(rank.size)])
        for salt, count in enumerate(counts)
    ]
    shards = [torch.empty(count, dtype=torch.float64) for count in counts]
    group.reduce_scatter_tensor_coalesced(shards, blocks).wait()
    for salt, count in enumerate(counts):
        wanted = reduction("SUM", all_parts(rank, count, torch.float64, salt + rank.rank))
        same(shards[salt], wanted, f"reduce_scatter_tensor_coalesced, tensor {salt}")

    lists = [[torch.empty(count, dtype=torch.int32) for count in counts] for _ in range(rank.size)]
    group.allgather_coalesced(lists, inputs).wait()
    for source, received in enumerate(lists):
        for salt, count in enumerate(counts):
            wanted = contribution(source, count, torch.int32, salt)
            same(received[salt], wanted, f"allgather_coalesced, tensor {salt}")


def agree_on_bits(rank: Rank) -> None:
    # Sums that round: right within the dtype's precision, and the same bits on every rank.
    for dtype, count in product([torch.float32, torch.float16, torch.bfloat16], [3, 1000, 100_003]):
        parts = [
            torch.randn(count, generator=torch.Generator().manual_seed(other)).to(dtype)
            for other in range(rank.size)
        ]
        tensor = parts[rank.rank].clone()
        dist.all_reduce(tensor)
        exact = torch.stack([part.double() for part in parts]).sum(0)
        step = torch.finfo(dtype).eps * rank.size
        torch.testing.assert_close(tensor.double(), exact, rtol=step, atol=step * 4)
        everywhere = [torch.empty_like(tensor) for _ in range(rank.size)]
        dist.all_gather(everywhere, tensor)
        for other, result in enumerate(everywhere):
            same(result, tensor, f"{count} x {dtype} on rank {other}")


def overlap_operations(rank: Rank) -> None:
    # Many operations of different kinds in flight at once, waited for in another order than started.
    started = []
    for salt in range(40):
        count = 1 + 997 * (salt % 5)
        tensor = contribution(rank.rank, count, torch.float32, salt)
        if salt % 3 == 0:
            work = dist.broadcast(tensor, salt % rank.size, async_op=True)
            wanted = contribution(salt % rank.size, count, torch.float32, salt)
        else:
            work = dist.all_reduce(tensor, async_op=True)
            wanted = reduction("SUM", all_parts(rank, count, torch.float32, salt))
        started.append((work, tensor, wanted))
    dist.barrier()
    for number, (work, tensor, wanted) in reversed(list(enumerate(started))):
        work.wait()
        same(tensor, wanted, f"operation {number} of many")


@pytest.mark.parametrize("size", FEW)
def test_reductions(wire: str, size: int) -> None:
    run_ranks(reduce_everything, size, SIZES, wire=wire)


@pytest.mark.parametrize("size", FEW)
def test_reduce_scatter(wire: str, size: int) -> None:
    run_ranks(reduce_scatter_everything, size, SIZES, wire=wire)


@pytest.mark.parametrize("size", FEW)
def test_data_movement(wire: str, size: int) -> None:
    run_ranks(move_everything, size, SIZES, wire=wire)


@pytest.mark.parametrize("size", FEW)
def test_all_to_all(wire: str, size: int) -> None:
    run_ranks(exchange_everything, size, SIZES, wire=wire)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("size", MORE)
@pytest.mark.parametrize(
    "function", [reduce_everything, reduce_scatter_everything, move_everything, exchange_everything]
)
def test_odd_sizes_of_group(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, [1, 1000], wire=wire)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("size", [1, 2, 4, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "function", [exchange_unequal, gather_unequal, coalesce, agree_on_bits, overlap_operations]
)
def test_unequal_coalesced_and_many(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, wire=wire)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("size", [2, 3, 5])
def test_messages(wire: str, size: int) -> None:
    run_ranks(send_around, size, SIZES, wire=wire)
    run_ranks(batch_messages, size, wire=wire)
