# SPDX-License-Identifier: Apache-2.0
"""Hooks that take DDP's gradients over: the model must come out as on Gloo."""

import pytest
import torch
import torch.distributed as dist
from against_gloo import both_backends
from ranks import Rank
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess


def halve_the_bytes(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    # torch refuses its own hook by that name unless there is CUDA.
    return default_hooks.bf16_compress_hook(group, bucket)


def reduce_and_gather(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average, and have the callback start a second collective, which sends each rank's share once more."""
    n, me = dist.get_world_size(group), dist.get_rank(group)
    whole = bucket.buffer()
    padded = torch.cat([whole, whole.new_zeros(-whole.numel() % n)])

    def gather(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        mine = done.value()[0].chunk(n)[me] / n
        dist.all_gather_into_tensor(padded, mine, group=group)
        return whole.copy_(padded[: whole.numel()])

    return dist.all_reduce(padded, group=group, async_op=True).get_future().then(gather)


def train(rank: Rank) -> list[torch.Tensor]:
    results = []
    # A collective that a callback starts has no fixed place among those of other buckets, so there is one bucket.
    hooks = [(halve_the_bytes, 0.01), (default_hooks.fp16_compress_wrapper(reduce_and_gather), 25)]
    for hook, bucket_mb in hooks:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(9, 70), nn.Tanh(), nn.Linear(70, 70), nn.Tanh(), nn.Linear(70, 3))
        initial = net[0].weight.detach().clone()
        model = DistributedDataParallel(net, bucket_cap_mb=bucket_mb)
        model.register_comm_hook(dist.group.WORLD, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        data = torch.Generator().manual_seed(rank.rank)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 9, generator=data)).square().mean().backward()
            optimizer.step()
        assert not torch.equal(net[0].weight, initial)
        results += [parameter.detach().clone() for parameter in net.parameters()]
    return results


def broadcast_coalesced(rank: Rank) -> list[torch.Tensor]:
    """What DDP does with buffers: many tensors of several types, in blocks of a few bytes."""
    tensors = [
        torch.full((length,), rank.rank + length, dtype=dtype)
        for length in (1, 30, 7, 0, 100)
        for dtype in (torch.float32, torch.int64, torch.float32)
    ]
    dist._broadcast_coalesced(dist.group.WORLD, tensors, 200, 1)
    assert all((tensor == 1 + len(tensor)).all() for tensor in tensors)
    return tensors


def use_all(rank: Rank) -> list[list[torch.Tensor]]:
    return [train(rank), broadcast_coalesced(rank)]


def test_hooks(wire: str) -> None:
    ours, theirs = both_backends(use_all, 2, wire=wire)
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(ours[0], ours[1], rtol=0, atol=0)
