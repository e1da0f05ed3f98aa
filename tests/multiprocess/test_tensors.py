# SPDX-License-Identifier: Apache-2.0
"""Tensors of awkward shape and layout, and arguments that are wrong: those harm nobody."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from expected import contribution, reduction, same
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess


def parts_of(rank: Rank, count: int) -> list[torch.Tensor]:
    return [contribution(other, count, torch.float32) for other in range(rank.size)]


def use_views(rank: Rank) -> None:
    parts = parts_of(rank, 60)
    total = reduction("SUM", parts)
    mine = parts[rank.rank]

    transposed = mine.reshape(6, 10).t().contiguous().t()
    assert not transposed.is_contiguous()
    dist.all_reduce(transposed)
    same(transposed.reshape(-1), total, "all_reduce of a transposed tensor")

    backing = torch.full((60, 3), -7.0)
    backing[:, 1] = mine
    dist.all_reduce(backing[:, 1])
    same(backing[:, 1], total, "all_reduce of a column")
    assert (backing[:, 0] == -7).all(), "the columns beside it stay as they are"
    assert (backing[:, 2] == -7).all(), "the columns beside it stay as they are"

    # The same shape, laid out differently on each rank: elements, not bytes, are combined.
    image = mine.reshape(1, 3, 4, 5)
    if rank.rank % 2:
        image = image.contiguous(memory_format=torch.channels_last)
    else:
        image = image.clone()
    dist.all_reduce(image)
    same(image.reshape(-1), total, "all_reduce of mixed memory formats")

    strided = torch.zeros(120)[::2]
    strided.copy_(mine)
    dist.broadcast(strided, rank.size - 1)
    same(strided.contiguous(), parts[-1], "broadcast of a strided tensor")

    outputs = [torch.zeros(60, 2)[:, 0] for _ in parts]
    dist.all_gather(outputs, mine.reshape(10, 6).t().contiguous().t().reshape(-1))
    for source, output in enumerate(outputs):
        same(output.contiguous(), parts[source], f"all_gather into strided blocks, block {source}")

    whole = torch.zeros(rank.size, 60, 2)[:, :, 1]
    dist.all_gather_into_tensor(whole, mine)
    same(whole.contiguous(), torch.stack(parts), "all_gather_into_tensor into a strided tensor")

    negative = torch.complex(mine, mine).conj().imag  # a view with the negative bit
    assert negative.is_neg()
    outputs = [torch.zeros(60) for _ in parts]
    dist.all_gather(outputs, negative)
    same(outputs[0], -parts[0], "all_gather of a negated view")


def use_async_views(rank: Rank) -> None:
    # The copy back happens before anybody can see the operation as done, whoever asks first.
    parts = parts_of(rank, 5000)
    total = reduction("SUM", parts)
    works = []
    for turn in range(30):
        backing = torch.zeros(5000, 2)
        backing[:, 0] = parts[rank.rank]
        work = dist.all_reduce(backing[:, 0], async_op=True)
        works.append((turn, work, backing))
    for turn, work, backing in works:
        if turn % 3 == 0:
            work.wait()
        elif turn % 3 == 1:
            while not work.is_completed():
                pass
        else:
            work.get_future().wait()
        same(backing[:, 0].contiguous(), total, f"asynchronous all_reduce of a column, turn {turn}")


def use_scalars(rank: Rank) -> None:
    scalar = torch.tensor(float(rank.rank + 1))
    dist.all_reduce(scalar)
    assert scalar.shape == ()
    assert scalar.item() == rank.size * (rank.size + 1) / 2

    outputs = [torch.tensor(0) for _ in range(rank.size)]
    dist.all_gather(outputs, torch.tensor(rank.rank))
    assert [output.item() for output in outputs] == list(range(rank.size))

    whole = torch.zeros(rank.size, dtype=torch.int64)
    dist.all_gather_into_tensor(whole, torch.tensor(rank.rank))
    assert whole.tolist() == list(range(rank.size))

    for shape in [(0,), (3, 0), (0, 4, 5)]:
        empty = torch.empty(shape)
        dist.all_reduce(empty)
        dist.broadcast(empty, 0)
        assert empty.shape == shape


def use_aliases(rank: Rank) -> None:
    parts = parts_of(rank, 100)

    whole = torch.zeros(rank.size, 100)
    whole[rank.rank] = parts[rank.rank]
    dist.all_gather_into_tensor(whole, whole[rank.rank])
    same(whole, torch.stack(parts), "all_gather in place")

    # Overlaps that are not in place: the input lies across two output blocks.
    whole = torch.zeros(rank.size * 100 + 50)
    source = whole[50:150]
    source.copy_(parts[rank.rank])
    dist.all_gather_into_tensor(whole[: rank.size * 100], source)
    same(whole[: rank.size * 100], torch.cat(parts), "all_gather across blocks")

    blocks = torch.cat([contribution(rank.rank, 100, torch.float32, to) for to in range(rank.size)])
    wanted = reduction("SUM", [contribution(other, 100, torch.float32, rank.rank) for other in range(rank.size)])
    inside = blocks.clone()
    own = inside[rank.rank * 100 : rank.rank * 100 + 100]
    dist.reduce_scatter_tensor(own, inside)
    same(own, wanted, "reduce_scatter in place")

    inside = torch.cat([blocks, torch.zeros(50)])
    crooked = inside[-100:]
    dist.reduce_scatter_tensor(crooked, inside[:-50])
    same(crooked, wanted, "reduce_scatter across blocks")

    exchanged = blocks.clone()
    dist.all_to_all_single(exchanged, exchanged)
    from_all = [contribution(other, 100, torch.float32, rank.rank) for other in range(rank.size)]
    same(exchanged, torch.cat(from_all), "all_to_all in place")

    reduced = parts[rank.rank].clone()
    twins = [reduced, reduced]
    for tensor in twins:
        dist.all_reduce(tensor)
    same(reduced, reduction("SUM", parts) * rank.size, "all_reduce of one tensor twice")


def use_autograd_modes(rank: Rank) -> None:
    leaf = torch.zeros(4, 2, requires_grad=True)
    dist.all_reduce(leaf.detach()[:, 0])
    with torch.inference_mode():
        strided = torch.ones(4, 2)[:, 0]
        work = dist.all_reduce(strided, async_op=True)
        work.wait()
        assert strided.tolist() == [float(rank.size)] * 4


Wrong = tuple[str, Callable[[Rank], object], type[Exception], str]


def wrong_calls(rank: Rank) -> list[Wrong]:
    """List calls that must be refused: a name, the call, the kind of error, and what it must mention."""
    n = rank.size
    group = dist.group.WORLD
    f4, f5, i4 = torch.zeros(4), torch.zeros(5), torch.zeros(4, dtype=torch.int64)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (4,))
    expanded = torch.zeros(1).expand(4)
    complex4 = torch.zeros(4, dtype=torch.complex64)
    float8 = torch.zeros(4).to(torch.float8_e4m3fnuz)

    def reduce_with(op: object, tensor: torch.Tensor) -> object:
        options = dist.AllreduceOptions()
        options.reduceOp = op
        return group.allreduce([tensor], options)

    def broadcast_from(root: int) -> object:
        options = dist.BroadcastOptions()
        options.rootRank = root
        return group.broadcast([f4], options)

    return [
        ("BAND", lambda _: reduce_with(dist.ReduceOp.BAND, f4), ValueError, "band is not defined for float32"),
        ("complex MAX", lambda _: reduce_with(dist.ReduceOp.MAX, complex4), ValueError, "sum, avg"),
        ("another float8", lambda _: reduce_with(dist.ReduceOp.SUM, float8), TypeError, "cannot reduce"),
        ("PREMUL_SUM", lambda _: reduce_with(dist._make_nccl_premul_sum(2.0), i4), TypeError, "floating-point"),
        ("sparse MAX", lambda _: reduce_with(dist.ReduceOp.MAX, sparse), ValueError, "only SUM and AVG"),
        ("sparse", lambda _: group.broadcast([sparse]), Exception, "parse"),
        ("expanded", lambda _: dist.all_reduce(expanded), ValueError, "share memory"),
        ("two tensors", lambda _: group.allreduce([f4, f5]), ValueError, "exactly one"),
        ("no tensor", lambda _: group.allreduce([]), Exception, ""),
        ("root", lambda _: broadcast_from(n), ValueError, "root"),
        ("short list", lambda _: group.allgather([[f4] * (n - 1)], [f4]), ValueError, "one per rank"),
        ("dtypes", lambda _: group.allgather([[i4.clone() for _ in range(n)]], [f4]), TypeError, "dtype"),
        ("own block", lambda _: group.allgather([[torch.zeros(5) for _ in range(n)]], [f4]), ValueError, "shape"),
        (
            "output too small",
            lambda _: dist.all_gather_into_tensor(torch.zeros(4 * n - 1), f4),
            ValueError,
            "elements",
        ),
        (
            "input too large",
            lambda _: dist.reduce_scatter_tensor(torch.zeros(4), torch.zeros(4 * n + 1)),
            ValueError,
            "elements",
        ),
        (
            "splits do not sum up",
            lambda _: dist.all_to_all_single(torch.zeros(n), torch.zeros(n), [1] * n, [2] * n),
            ValueError,
            "sum to",
        ),
        (
            "rows do not divide",
            lambda _: dist.all_to_all_single(torch.zeros(n + 1), torch.zeros(n + 1)),
            ValueError,
            "",
        ),
        ("negative tag", lambda _: dist.isend(f4, (rank.rank + 1) % n, tag=-1), ValueError, "tag"),
    ]


def refuse(rank: Rank) -> None:
    for name, call, error_type, mention in wrong_calls(rank):
        try:
            call(rank)
        except Exception as error:
            assert isinstance(error, error_type), f"{name}: {type(error).__name__}: {error}"
            assert mention in str(error), f"{name}: {error}"
        else:
            raise AssertionError(f"{name}: was not refused")
        # Nothing has happened to the group: the others did not even notice.
        total = torch.ones(3)
        dist.all_reduce(total)
        assert total.tolist() == [rank.size] * 3


def refuse_on_one_rank(rank: Rank) -> None:
    if rank.rank == 0:
        with pytest.raises(ValueError, match="elements"):
            dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(4))
    tensor = torch.full((10,), float(rank.rank))
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    assert tensor.tolist() == [rank.size - 1.0] * 10


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("function", [use_views, use_async_views, use_scalars, use_aliases, use_autograd_modes])
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_layouts(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, wire=wire)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("function", [refuse, refuse_on_one_rank])
def test_wrong_arguments_harm_nobody(function: object, wire: str) -> None:
    run_ranks(function, 3, wire=wire)


def test_one_rank_alone(wire: str) -> None:
    for function in (use_views, use_async_views, use_scalars, use_aliases):
        run_ranks(function, 1, wire=wire)
