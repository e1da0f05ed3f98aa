# SPDX-License-Identifier: Apache-2.0
"""Gradients that nobody can cut out of a bucket, sparse or complex: hooks leave them exact, or refuse them."""

import pickle

import braid.hooks
import pytest
import torch
from hooked import attach, must_be_equal_everywhere
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess

OPAQUE = {"table.weight": "gradients are sparse", "turn": "gradients are complex64"}


class Mixed(nn.Module):
    """Matrices for a codec before, between and after what is sparse and what is complex."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(500, 32, sparse=True)
        self.first = nn.Linear(32, 300)
        self.second = nn.Linear(300, 200)
        self.turn = nn.Parameter(0.01 * torch.randn(200, 200, dtype=torch.complex64))
        self.shift = nn.Parameter(0.01 * torch.randn(200, dtype=torch.complex64))
        self.last = nn.Linear(200, 200)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.last(torch.tanh(self.second(self.first(self.table(x)))))
        return (x.to(torch.complex64) @ self.turn + self.shift).abs().square().mean()


def make(policy: str) -> tuple[DistributedDataParallel, braid.hooks.AutoState]:
    torch.manual_seed(0)
    model = DistributedDataParallel(Mixed(), bucket_cap_mb=0.2)
    return model, attach(model, policy)


def gradients(rank: Rank, model: nn.Module) -> dict[str, torch.Tensor]:
    """Return those of the sixth step, seen as real; parameters stay as they are."""
    data = torch.Generator().manual_seed(rank.rank)
    for _ in range(6):
        model.zero_grad()
        model(torch.randint(500, (8,), generator=data)).backward()
    return {name: real(one.grad.to_dense()) for name, one in model.module.named_parameters()}


def real(gradient: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(gradient) if gradient.is_complex() else gradient


def train_mixed(rank: Rank) -> None:
    join_apart(rank)
    expected = gradients(rank, make("*=exact")[0])
    for policy in ("*=int8,warmup:1", "*=power_sgd:2,warmup:1", "auto,warmup:1,trial:8"):
        model, state = make(policy)
        found = gradients(rank, model)
        rows = {row.parameter: row for row in state.report()}
        assert rows.keys() == found.keys()
        for name, why in OPAQUE.items():
            assert torch.equal(found[name], expected[name]), (policy, name)
            assert (rows[name].codec, rows[name].reason) == ("exact", why)
            assert rows[name].sent_bytes == rows[name].exact_bytes == expected[name].nbytes
        assert torch.equal(found["shift"], expected["shift"])
        assert not torch.equal(found["second.weight"], expected["second.weight"]), policy
        assert rows["second.weight"].codec != "exact"
        must_be_equal_everywhere(rank, nn.ParameterList(found.values()))
        assert state.predict().exact_s > 0
        _, copied = pickle.loads(pickle.dumps((model.module, state)))
        assert copied._parameters.opaque.items() >= OPAQUE.items()


@pytest.mark.parametrize("size", [2, 3])
def test_they_stay_exact(size: int) -> None:
    run_ranks(train_mixed, size, wire="tcp", join=False)


def refuse_for_dgc(rank: Rank) -> None:
    model = Mixed()
    with pytest.raises(ValueError, match=r"of turn, whose gradients are complex64: use braid\.hooks\.auto"):
        braid.hooks.DGCState(model)
    for frozen in (model.turn, model.shift):
        frozen.requires_grad_(False)
    with pytest.raises(ValueError, match=r"momentum of table\.weight, whose gradients are sparse"):
        braid.hooks.DGCState(model)
    model.table.requires_grad_(False)
    braid.hooks.DGCState(model)


def test_dgc_refuses_them() -> None:
    run_ranks(refuse_for_dgc, 2)
