# SPDX-License-Identifier: Apache-2.0
"""What people train with, on braid and on gloo: the parameters must come out the same."""

import functools
import gc
import threading
import weakref

import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks
from slowness import limit
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from waiting import eventually

pytestmark = pytest.mark.multiprocess

STEPS = 5


class Net(nn.Module):
    """Small, but of several buckets, with a buffer, and with a branch that not every step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(20, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 100))
        self.branch = nn.Linear(100, 100)
        self.outer = nn.Linear(100, 3)

    def forward(self, x: torch.Tensor, use_branch: bool) -> torch.Tensor:
        x = self.inner(x)
        return self.outer(self.branch(x) if use_branch else x)


def train(
    rank: Rank,
    group: dist.ProcessGroup,
    *,
    hook: object = None,
    sharded: bool = False,
    static: bool = False,
    accumulate: bool = False,
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = DistributedDataParallel(
        Net(),
        process_group=group,
        bucket_cap_mb=0.05,
        find_unused_parameters=not static,
        static_graph=static,
        gradient_as_bucket_view=sharded,
    )
    if hook is not None:
        model.register_comm_hook(group, hook)
    if sharded:
        optimizer: torch.optim.Optimizer = ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.Adam, process_group=group, lr=0.01
        )
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(rank.rank)
    for step in range(STEPS):
        batches = 2 if accumulate else 1
        for batch in range(batches):
            x = torch.randn(16, 20, generator=data)
            y = torch.randint(3, (16,), generator=data)
            use_branch = static or step % 2 == 0
            if batch < batches - 1:
                with model.no_sync():
                    nn.functional.cross_entropy(model(x, use_branch), y).backward()
            else:
                nn.functional.cross_entropy(model(x, use_branch), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    if sharded:
        optimizer.consolidate_state_dict(to=0)
    return [value.detach().clone() for value in model.state_dict().values()]


def compare_training(rank: Rank, kwargs: dict[str, object], tolerance: float) -> None:
    gloo = dist.new_group(backend="gloo")
    ours = train(rank, dist.group.WORLD, **kwargs)
    theirs = train(rank, gloo, **kwargs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
    # All replicas are one: to the last bit.
    for mine in ours:
        everywhere = [torch.empty_like(mine) for _ in range(rank.size)]
        dist.all_gather(everywhere, mine)
        if mine.dtype.is_floating_point and mine.dim() == 2:
            for other in everywhere:
                assert torch.equal(other, mine)


def train_plain(rank: Rank) -> None:
    compare_training(rank, {}, 1e-4)


def train_static(rank: Rank) -> None:
    compare_training(rank, {"static": True}, 1e-4)


def train_accumulating(rank: Rank) -> None:
    compare_training(rank, {"accumulate": True}, 1e-4)


def train_sharded(rank: Rank) -> None:
    compare_training(rank, {"sharded": True}, 1e-3)


def train_fp16_hook(rank: Rank) -> None:
    compare_training(rank, {"hook": default_hooks.fp16_compress_hook}, 2e-2)


def train_python_hook(rank: Rank) -> None:
    compare_training(rank, {"hook": default_hooks.allreduce_hook}, 1e-4)


class CompressorState(powerSGD_hook.PowerSGDState):
    """One that can be referred to weakly: torch's own has slots."""


def train_with_power_sgd(
    rank: Rank, group: dist.ProcessGroup
) -> tuple[torch.Tensor, "weakref.ref[CompressorState]"]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 64, bias=False), process_group=group)
    state = CompressorState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(rank.rank)
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 64, generator=data)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.detach(), weakref.ref(state)


def train_power_sgd(rank: Rank) -> None:
    losses = []
    for group in (dist.group.WORLD, dist.new_group(backend="gloo")):
        loss, state = train_with_power_sgd(rank, group)
        losses.append(loss)
        # The hook's callbacks hold state and group, and are let go of some time after the training. Were one of
        # them the last to hold Gloo's group, it would destroy it on the thread that the destructor joins: abort.
        eventually(lambda state=state: state() is None, "the end of callbacks with the state", 30, gc.collect)
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=1e-4)


def destroy_while_a_callback_holds(rank: Rank, known: "weakref.ref[dist.ProcessGroup]") -> None:
    begun, destroyed, seen = threading.Event(), threading.Event(), []

    def answer(held: dist.ProcessGroup, done: torch.futures.Future) -> None:
        begun.set()
        destroyed.wait(limit(30))
        seen.append(held.size())

    # All ranks receive before any sends, so that the future is not done yet, and no callback runs on this thread.
    work = dist.irecv(torch.zeros(3), (rank.rank - 1) % rank.size, group=known())
    future = work.get_future().then(functools.partial(answer, known()))
    dist.barrier(group=known())
    dist.send(torch.ones(3), (rank.rank + 1) % rank.size, group=known())
    assert begun.wait(limit(30))
    dist.destroy_process_group(known())
    assert not future.done()
    destroyed.set()
    future.wait()
    assert seen == [rank.size]


def let_a_callback_hold_the_group(rank: Rank) -> None:
    """The last to let go of a group may be a callback, on a thread that the group has; Gloo joins itself then."""
    for known in (weakref.ref(dist.new_group()), weakref.ref(dist.group.WORLD)):
        destroy_while_a_callback_holds(rank, known)
        eventually(lambda known=known: known() is None, "the end of whoever holds the group", 30)


def exchange_objects(rank: Rank) -> None:
    mine = {"rank": rank.rank, "text": "x" * (100 * rank.rank), "tensor": torch.full((3,), float(rank.rank))}

    everybody: list[object] = [None] * rank.size
    dist.all_gather_object(everybody, mine)
    assert [each["rank"] for each in everybody] == list(range(rank.size))
    assert [len(each["text"]) for each in everybody] == [100 * other for other in range(rank.size)]

    received: list[object] = [mine if rank.rank == 0 else None, rank.rank]
    dist.broadcast_object_list(received, src=0)
    assert received[0]["rank"] == 0
    assert received[1] == 0

    gathered = [None] * rank.size if rank.rank == 0 else None
    dist.gather_object(mine, gathered, dst=0)
    if gathered is not None:
        assert [each["rank"] for each in gathered] == list(range(rank.size))

    scattered: list[object] = [None]
    dist.scatter_object_list(scattered, [f"for {other}" for other in range(rank.size)], src=0)
    assert scattered == [f"for {rank.rank}"]

    if rank.size > 1:
        message: list[object] = [mine if rank.rank == 0 else None]
        if rank.rank == 0:
            dist.send_object_list(message, dst=1)
        elif rank.rank == 1:
            dist.recv_object_list(message, src=0)
            assert message[0]["rank"] == 0


def make_subgroups(rank: Rank) -> None:
    even = dist.new_group(list(range(0, rank.size, 2)))
    odd = dist.new_group(list(range(1, rank.size, 2)))
    mine, members = (even, range(0, rank.size, 2)) if rank.rank % 2 == 0 else (odd, range(1, rank.size, 2))
    tensor = torch.tensor([float(rank.rank)])
    dist.all_reduce(tensor, group=mine)
    assert tensor.item() == sum(members)
    tensor = torch.tensor([float(rank.rank)])
    dist.broadcast(tensor, src=members[-1], group=mine)
    assert tensor.item() == members[-1]

    mesh = init_device_mesh("cpu", (2, rank.size // 2), mesh_dim_names=("outer", "inner"))
    row, column = mesh.get_group("inner"), mesh.get_group("outer")
    assert dist.get_backend(row) == "braid"
    tensor = torch.tensor([float(rank.rank)])
    dist.all_reduce(tensor, group=row)
    dist.all_reduce(tensor, group=column)
    assert tensor.item() == sum(range(rank.size))


def use_functional_collectives(rank: Rank) -> None:
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    tensor = torch.ones(6) * (rank.rank + 1)
    total = functional.all_reduce(tensor, "sum", group)
    assert total[0].item() == rank.size * (rank.size + 1) / 2
    both = functional.all_reduce_coalesced([tensor, tensor * 2], "sum", group)
    assert both[1][0].item() == rank.size * (rank.size + 1)
    gathered = functional.all_gather_tensor(tensor, 0, group)
    assert gathered.shape == (6 * rank.size,)
    shard = functional.reduce_scatter_tensor(torch.ones(2 * rank.size), "avg", 0, group)
    assert shard.tolist() == [1.0, 1.0]
    exchanged = functional.all_to_all_single(torch.full((rank.size,), float(rank.rank)), None, None, group)
    assert exchanged.tolist() == [float(other) for other in range(rank.size)]


def debug_in_detail(rank: Rank) -> None:
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    assert tensor[0].item() == rank.size
    dist.barrier()


@pytest.mark.long_over_tcp
@pytest.mark.parametrize(
    "function",
    [
        train_plain,
        train_static,
        train_accumulating,
        train_sharded,
        train_fp16_hook,
        train_python_hook,
        train_power_sgd,
    ],
)
def test_training_equals_gloo(function: object, wire: str) -> None:
    run_ranks(function, 2, wire=wire)


def test_a_callback_may_be_the_last_to_hold_the_group(wire: str) -> None:
    run_ranks(let_a_callback_hold_the_group, 2, wire=wire)


def test_training_on_three_ranks(wire: str) -> None:
    run_ranks(train_plain, 3, wire=wire)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("function", [exchange_objects, use_functional_collectives])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_conveniences(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, wire=wire)


def test_subgroups_and_mesh(wire: str) -> None:
    run_ranks(make_subgroups, 4, wire=wire)


@pytest.mark.long_over_tcp
def test_debug_wrapper(wire: str) -> None:
    run_ranks(debug_in_detail, 2, wire=wire, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
