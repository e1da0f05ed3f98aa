# SPDX-License-Identifier: Apache-2.0
"""The all-reduce of sparse tensors, against that of dense ones."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks
from slowness import limit
from waiting import eventually

pytestmark = pytest.mark.multiprocess

LATE_S = limit(20.0)


def sparse(rank: int, shape: tuple[int, ...], dtype: torch.dtype, elements: int, sparse_dims: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    indices = torch.stack(
        [torch.randint(0, size, (elements,), generator=generator) for size in shape[:sparse_dims]]
    )
    values = torch.randint(1, 9, (elements, *shape[sparse_dims:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape)


def equal_dense(rank: Rank) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.complex64):
        for shape, sparse_dims in (((50,), 1), ((7, 9), 2), ((6, 4, 3), 1)):
            # Duplicates, nothing at all, and different numbers on every rank.
            mine = sparse(rank.rank, shape, dtype, 12 * rank.rank, sparse_dims)
            dense = mine.to_dense()
            before = mine.clone()
            dist.all_reduce(dense)
            # torch's own function would take complex numbers for pairs.
            work = dist.group.WORLD.allreduce([mine])
            held = work.get_future().wait()
            assert held[0].is_sparse
            work.wait()
            assert torch.equal(mine.to_dense(), dense), (dtype, shape)
            assert rank.size == 1 or mine._nnz() != before.coalesce()._nnz() or rank.rank > 0
            everywhere = [torch.zeros_like(dense) for _ in range(rank.size)]
            dist.all_gather(everywhere, mine.to_dense())
            assert all(torch.equal(other, dense) for other in everywhere)


def average(rank: Rank) -> None:
    mine = torch.sparse_coo_tensor(torch.tensor([[rank.rank, 7]]), torch.tensor([1.0, 2.0]), (8,))
    dist.all_reduce(mine, dist.ReduceOp.AVG)
    expected = [1 / rank.size if index < rank.size else 0.0 for index in range(7)] + [2.0]
    torch.testing.assert_close(mine.to_dense(), torch.tensor(expected))


def refuse_other_shapes(rank: Rank) -> None:
    mine = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (4 + rank.rank,))
    with pytest.raises(ValueError, match="differ in shape"):
        dist.all_reduce(mine)
    total = torch.ones(2)
    dist.all_reduce(total)  # nobody is harmed
    assert total.tolist() == [rank.size] * 2


def time_out(rank: Rank) -> None:
    if rank.rank == 0:
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=1)
        begun = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="timed out after its timeout of 1 s"):
            dist.group.WORLD.allreduce([torch.ones(4).to_sparse()], options).wait()
        assert time.monotonic() - begun < LATE_S  # the group's is 60
        (rank.folder / "has timed out").touch()
        return
    eventually((rank.folder / "has timed out").exists)


@pytest.mark.long_over_tcp
@pytest.mark.long_over_tcp
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("function", [equal_dense, average])
def test_sparse_tensors(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, wire=wire)


def test_sparse_tensors_of_different_shapes() -> None:
    run_ranks(refuse_other_shapes, 3)


def test_an_operations_own_timeout_holds() -> None:
    run_ranks(time_out, 2)
