# SPDX-License-Identifier: Apache-2.0
"""Several operations as one: the coalescing manager, batches of messages, and the coalesced collectives."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

CPU = torch.device("cpu")


def full(size: int, value: float) -> torch.Tensor:
    return torch.full((size,), float(value))


def use_the_manager(rank: Rank) -> None:
    n, me = rank.size, rank.rank
    for device in (CPU, None):
        a, b = full(3, 1), full(4, 2)
        with dist._coalescing_manager(device=device, async_ops=True) as manager:
            dist.all_reduce(a)
            dist.all_reduce(b)
        manager.wait()
        assert (a[0].item(), b[0].item()) == (n, 2 * n)

        gathered = [torch.zeros(n * 2), torch.zeros(n * 3)]
        with dist._coalescing_manager(device=device):
            for size, output in zip((2, 3), gathered, strict=True):
                dist.all_gather_into_tensor(output, full(size, me))
        for output in gathered:
            assert output.view(n, -1)[:, 0].tolist() == list(range(n))

        shards = [torch.zeros(2), torch.zeros(3)]
        with dist._coalescing_manager(device=device):
            for shard in shards:
                dist.reduce_scatter_tensor(shard, full(n * len(shard), me + 1))
        for shard in shards:
            assert shard[0].item() == n * (n + 1) / 2


def end_without_operations(rank: Rank) -> None:
    backend = dist.group.WORLD._get_backend(CPU)
    backend._start_coalescing()
    work = backend._end_coalescing()
    work.wait()
    assert work.is_completed()
    with pytest.raises(RuntimeError, match="without startCoalescing"):
        backend._end_coalescing()


def drop_what_an_error_left_open(rank: Rank) -> None:
    tensor = full(3, 1)
    dist.group.WORLD._get_backend(CPU)._start_coalescing()
    dist.all_reduce(tensor)
    with dist._coalescing_manager(device=CPU, async_ops=True) as manager:
        dist.all_reduce(tensor)
    manager.wait()
    assert tensor[0].item() == rank.size**2


def leave_a_block(rank: Rank, call: Callable[[], object], device: torch.device | None, async_ops: bool) -> None:
    with dist._coalescing_manager(device=device, async_ops=async_ops):
        if rank.size > 1:  # these are started, and go on
            dist.irecv(torch.zeros(2), (rank.rank - 1) % rank.size)
            dist.isend(full(2, 1), (rank.rank + 1) % rank.size)
        dist.all_reduce(full(2, 1))
        call()


def go_on_after_what_is_refused(rank: Rank) -> None:
    """An exception leaves a block, whoever raised it. The next operations compute what they should."""
    n, me = rank.size, rank.rank
    refused = {
        "a message to itself": lambda: dist.isend(full(3, 1), me),
        "a sparse tensor": lambda: dist.irecv(torch.eye(3).to_sparse(), (me + 1) % n),
        "a rank that is not there": lambda: dist.isend(full(3, 1), n + 5),
        "another kind of operation": lambda: dist.all_gather_into_tensor(torch.zeros(n * 3), full(3, 1)),
        "an error of the script": lambda: {}["missing"],
    }
    for (name, call), device, async_ops in product(refused.items(), (CPU, None), (False, True)):
        with pytest.raises((RuntimeError, ValueError, KeyError)):
            leave_a_block(rank, call, device, async_ops)
        total = full(1, me + 1)
        dist.all_reduce(total)
        assert total.item() == n * (n + 1) / 2, (name, device, async_ops)
        gathered = torch.zeros(n)
        dist.all_gather_into_tensor(gathered, full(1, me))
        assert gathered.tolist() == list(range(n))
    with pytest.raises(ValueError, match="another rank"):
        dist.batch_isend_irecv([dist.P2POp(dist.isend, full(3, 1), me)])
    use_the_manager(rank)
    send_batches(rank)


def a_block_inside_a_block(rank: Rank) -> None:
    """The inner one is refused; the outer one stays."""
    tensor = full(3, 1)
    with dist._coalescing_manager(device=CPU):
        dist.all_reduce(tensor)
        with pytest.raises(ValueError, match="non-empty op list"), dist._coalescing_manager():
            pass
    assert tensor[0].item() == rank.size


def send_batches(rank: Rank) -> None:
    n, me = rank.size, rank.rank
    for _ in range(3):
        received = [torch.zeros(10 + other) for other in range(n)]
        operations = []
        for other in range(n):
            if other != me:
                operations.append(dist.P2POp(dist.irecv, received[other], other))
                operations.append(dist.P2POp(dist.isend, full(10 + me, me), other))
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
        for other in range(n):
            if other != me:
                assert received[other].tolist() == [other] * (10 + other)


def gather_lists(rank: Rank) -> None:
    n, me = rank.size, rank.rank
    inputs = [full(2, me), torch.zeros(0), full(3, 10 + me).view(3, 1)]
    outputs = [[torch.zeros_like(part) for part in inputs] for _ in range(n)]
    dist.all_gather_coalesced(outputs, inputs)
    for other in range(n):
        assert outputs[other][0].tolist() == [other] * 2
        assert outputs[other][2].flatten().tolist() == [10 + other] * 3
    with pytest.raises(ValueError, match="one per rank"):
        dist.group.WORLD._get_backend(CPU).allgather_coalesced(outputs + outputs, inputs)
    with pytest.raises(ValueError, match="got 2 outputs for 3 inputs"):
        dist.group.WORLD._get_backend(CPU).allgather_coalesced([row[:2] for row in outputs], inputs)


def have_futures(rank: Rank) -> None:
    a, b = full(3, 1), full(4, 1)
    work = dist.group.WORLD._get_backend(CPU).allreduce_coalesced([a, b])
    held = work.get_future().wait()
    assert [t.data_ptr() for t in held] == [a.data_ptr(), b.data_ptr()]
    assert work.get_future_result().wait() == 0
    assert [t.data_ptr() for t in work.result()] == [a.data_ptr(), b.data_ptr()]
    assert work._get_duration() >= 0
    assert (a[0].item(), b[0].item()) == (rank.size, rank.size)


def reduce_lists(rank: Rank) -> None:
    """Small ones of a dtype travel as one, large ones by themselves, and nobody can tell."""
    n, me = rank.size, rank.rank
    shapes = [(5,), (0,), (100_000,), (3, 7), (), (8192,), (8191,), (8193,), (2, 2)]
    dtypes = [torch.float32, torch.bfloat16, torch.float32, torch.int64, torch.float32]
    for op, expected in (
        (dist.ReduceOp.SUM, n * (n - 1) / 2 + n),
        (dist.ReduceOp.MAX, n),
        (dist.ReduceOp.AVG, None),
    ):
        tensors = [torch.full(shape, float(me + 1)).to(dtypes[i % 5]) for i, shape in enumerate(shapes)]
        strided = torch.full((6, 8), float(me + 1))
        tensors.insert(2, strided.t()[::2])
        alone = [tensor.clone() for tensor in tensors]
        options = dist.AllreduceCoalescedOptions()
        options.reduceOp = op
        before = group_calls()
        work = dist.group.WORLD._get_backend(CPU).allreduce_coalesced(tensors, options)
        work.wait()
        assert [t.data_ptr() for t in work.result()] == [t.data_ptr() for t in tensors]
        assert [t.data_ptr() for t in work.get_future().wait()] == [t.data_ptr() for t in tensors]
        if n > 1:
            assert 3 <= group_calls() - before <= 6 < len(tensors)
        for tensor, single in zip(tensors, alone, strict=True):
            dist.all_reduce(single, op)
            assert torch.equal(tensor, single)
            if expected is not None:
                assert (tensor == expected).all()
        assert (strided[:, 1::2] == me + 1).all()  # between what was reduced
    factor = dist._make_nccl_premul_sum(0.5)
    halves = [full(3, 1), full(4, 2)]
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = factor
    dist.group.WORLD._get_backend(CPU).allreduce_coalesced(halves, options).wait()
    assert [half[0].item() for half in halves] == [0.5 * n, n]
    options.reduceOp = dist.ReduceOp.BOR
    mixed = [torch.ones(2, dtype=torch.int32), full(3, 1)]
    with pytest.raises(ValueError, match="bor"):
        dist.group.WORLD._get_backend(CPU).allreduce_coalesced(mixed, options)


SHAPES = [(5,), (0,), (100_000,), (3, 7), (), (8192,), (2, 2), (5, 1, 3)]


def several(rank: int, dtypes: list[torch.dtype]) -> list[torch.Tensor]:
    """Return tensors of many shapes, and one that is no piece of memory, with numbers that tell rank and place."""
    tensors = [
        ((torch.arange(torch.Size(shape).numel()) % 7) + rank + 1).view(shape).to(dtypes[i % len(dtypes)])
        for i, shape in enumerate(SHAPES)
    ]
    tensors.insert(2, (torch.arange(48.0).view(6, 8) + rank).t()[::2])
    return tensors


def gather_many(rank: Rank) -> None:
    """As gathered one by one, in fewer operations; from ranks that give more and less, too."""
    n, me = rank.size, rank.rank
    group = dist.group.WORLD
    dtypes = [torch.float32, torch.bool, torch.float32, torch.int64, torch.float8_e5m2]
    inputs = several(me, dtypes)
    outputs = [torch.empty(n, *each.shape, dtype=each.dtype) for each in inputs]
    before = group_calls("all_gather")
    work = group.allgather_into_tensor_coalesced(outputs, inputs)
    work.wait()
    # One of each dtype, and what is large by itself.
    assert group_calls("all_gather") - before <= 6 < len(inputs)
    for held in (work.result(), work.get_future().wait()):
        assert [t.data_ptr() for t in held] == [t.data_ptr() for t in outputs]
    for output, others in zip(outputs, zip(*(several(r, dtypes) for r in range(n)), strict=True), strict=True):
        for row, other in zip(output, others, strict=True):
            assert torch.equal(row.double(), other.double())

    def of(r: int) -> list[torch.Tensor]:
        return [torch.full((2 + r, 3), float(r)), torch.full((5 * r,), 10.0 + r), torch.full((), 20.0 + r)]

    lists = [[torch.empty_like(each) for each in of(r)] for r in range(n)]
    lists[0][0] = torch.empty(3, 2).t()
    before = group_calls("all_gather")
    group.allgather_coalesced(lists, of(me)).wait()
    assert group_calls("all_gather") - before == 1
    for r in range(n):
        assert all(torch.equal(got, sent) for got, sent in zip(lists[r], of(r), strict=True)), r

    # Where the input is a part of the output.
    whole = [torch.zeros(n, 3), torch.zeros(n, 2)]
    for each in whole:
        each[me] = me + 1
    group.allgather_into_tensor_coalesced(whole, [each[me] for each in whole]).wait()
    assert all((each == torch.arange(1.0, n + 1).view(n, 1)).all() for each in whole)


def scatter_many(rank: Rank) -> None:
    """As reduced one by one, in fewer operations."""
    n, me = rank.size, rank.rank
    group = dist.group.WORLD
    dtypes = [torch.float32, torch.bfloat16, torch.float32, torch.int64]
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG, dist._make_nccl_premul_sum(0.5)):
        used = dtypes[:1] if op not in (dist.ReduceOp.SUM, dist.ReduceOp.MAX) else dtypes
        inputs = [torch.stack([each * (r + 1) for r in range(n)]) for each in several(me, used)]
        inputs[1] = inputs[1].expand(n, 0)
        kept = [each.clone() for each in inputs]
        options = dist.ReduceScatterOptions()
        options.reduceOp = op
        outputs = [torch.empty_like(each[0]) for each in inputs]
        alone = [each.clone() for each in outputs]
        before = group_calls("reduce_scatter")
        work = group.reduce_scatter_tensor_coalesced(outputs, inputs, options)
        work.wait()
        assert group_calls("reduce_scatter") - before <= 5 < len(inputs)
        for held in (work.result(), work.get_future().wait()):
            assert [t.data_ptr() for t in held] == [t.data_ptr() for t in outputs]
        for output, single, source, old in zip(outputs, alone, inputs, kept, strict=True):
            assert torch.equal(source, old)
            dist.reduce_scatter_tensor(single, source, op)
            assert torch.equal(output, single)
    shards = [torch.ones(n, 4), torch.ones(n, 2)]
    group.reduce_scatter_tensor_coalesced([each[me] for each in shards], shards).wait()  # in place
    assert all((each[me] == n).all() for each in shards)


def group_calls(collective: str = "all_reduce") -> int:
    rows = dist.group.WORLD._get_backend(CPU).stats()
    return sum(row["calls"] for row in rows if row["collective"] == collective)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("size", [1, 2, 3, *(pytest.param(n, marks=pytest.mark.long) for n in (4, 5))])
@pytest.mark.parametrize(
    "function",
    [
        use_the_manager,
        end_without_operations,
        drop_what_an_error_left_open,
        go_on_after_what_is_refused,
        a_block_inside_a_block,
        send_batches,
        gather_lists,
        have_futures,
        reduce_lists,
        gather_many,
        scatter_many,
    ],
)
def test_coalescing(function: object, size: int) -> None:
    run_ranks(function, size)


@pytest.mark.parametrize("function", [send_batches, gather_many, scatter_many])
def test_over_tcp(function: object) -> None:
    run_ranks(function, 3, wire="tcp")


def reduce_other_lists(rank: Rank) -> None:
    tensors = [full(5, 1), full(6 + rank.rank, 1)]
    with pytest.raises(RuntimeError, match="rank"):
        dist.group.WORLD._get_backend(CPU).allreduce_coalesced(tensors).wait()


def test_ranks_with_other_lists_are_told() -> None:
    run_ranks(reduce_other_lists, 2)
