# SPDX-License-Identifier: Apache-2.0
"""A model whose layers are cut across ranks trains as it does on Gloo, and as it does uncut."""

import pytest
import torch
from against_gloo import both_backends
from ranks import Rank
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

pytestmark = pytest.mark.multiprocess

STEPS = 3


class Block(nn.Module):
    """The part of a transformer that all kinds of cuts meet in."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 24)
        self.down = nn.Linear(24, 16)
        self.head = nn.Linear(16, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        x = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return self.head(x)


def make_block() -> Block:
    torch.manual_seed(0)
    return Block()


TENSOR_PARALLEL: dict[str, ParallelStyle] = {
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}
# Between the cut layers the sequence is cut; and the loss is computed from logits that are cut.
SEQUENCE_PARALLEL: dict[str, ParallelStyle] = {
    "table": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=True),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
}


def train(model: Block, data: torch.Generator, cut_loss: bool = False) -> list[torch.Tensor]:
    """Return the losses, then the parameters, whole."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, foreach=False)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        tokens = torch.randint(11, (4, 9), generator=data)
        logits = model(tokens[:, :-1])
        flat, target = logits.flatten(0, 1), tokens[:, 1:].flatten()
        if cut_loss:
            with loss_parallel():
                loss = nn.functional.cross_entropy(flat, target)
                loss.backward()
        else:
            loss = nn.functional.cross_entropy(flat, target)
            loss.backward()
        optimizer.step()
        losses.append(loss.full_tensor() if isinstance(loss, DTensor) else loss)
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return [value.detach() for value in (*losses, *whole)]


def train_cut(rank: Rank) -> dict[str, list[torch.Tensor]]:
    mesh = init_device_mesh("cpu", (rank.size,))
    uncut = train(make_block(), torch.Generator().manual_seed(7))
    assert not torch.equal(uncut[-1], make_block().head.bias)
    results = {}
    for name, plan in (("tensor", TENSOR_PARALLEL), ("sequence", SEQUENCE_PARALLEL)):
        model = parallelize_module(make_block(), mesh, plan)
        assert model.up.weight.to_local().shape == (24 // rank.size, 16)
        results[name] = train(model, torch.Generator().manual_seed(7), cut_loss=name == "sequence")
        torch.testing.assert_close(results[name], uncut, rtol=1e-4, atol=1e-5)
    results["prepared"] = [prepare(rank)]
    return results


def prepare(rank: Rank) -> torch.Tensor:
    """Gather a cut input for a module that knows nothing of cuts, and cut its output elsewhere."""
    mesh = init_device_mesh("cpu", (rank.size,))
    layout = {
        "input_layouts": (Shard(0),),
        "desired_input_layouts": (Replicate(),),
        "use_local_output": True,
    }
    model = nn.Sequential(nn.Softmax(dim=0))
    parallelize_module(model, mesh, PrepareModuleInput(**layout))
    cut_again = PrepareModuleOutput(output_layouts=(Replicate(),), desired_output_layouts=(Shard(1),))
    parallelize_module(model, mesh, cut_again)
    local = torch.arange(12.0).reshape(3, 4) * (rank.rank + 1)
    y = model(local)
    assert y.shape == (3 * rank.size, 4 // rank.size)
    torch.testing.assert_close(y.sum(0), torch.ones(y.shape[1]))
    return y


def train_cut_and_sharded(rank: Rank) -> list[torch.Tensor]:
    """Cut the layers across two ranks, and shard what remains across two others."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "layers"))
    model = parallelize_module(make_block(), mesh["layers"], TENSOR_PARALLEL)
    fully_shard(model, mesh=mesh["data"])
    assert model.up.weight.to_local().numel() == model.up.weight.numel() // 4
    return train(model, torch.Generator().manual_seed(mesh["data"].get_local_rank()))


def test_tensor_parallel() -> None:
    ours, theirs = both_backends(train_cut, 2)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_tensor_parallel_and_fsdp() -> None:
    ours, theirs = both_backends(train_cut_and_sharded, 4)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    # The two halves of the data differ, the model does not.
    assert ours[0][0] == ours[1][0] != ours[2][0]
    torch.testing.assert_close(ours[0][STEPS:], ours[3][STEPS:], rtol=0, atol=0)
