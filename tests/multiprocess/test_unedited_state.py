# SPDX-License-Identifier: Apache-2.0
"""BRAID_STRATEGY shares the tensors that DistributedDataParallel shares, and leaves alone what that ignores."""

import pytest
import torch
import torch.distributed as dist
from odd_model import Odd
from ranks import Rank, run_ranks
from test_model_state import STEPS
from test_unedited import begin
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer

pytestmark = pytest.mark.multiprocess


def trained(rank: Rank, text: str, apart: bool) -> dict[str, Tensor]:
    """Train a model with an expert of each rank's own, `apart`: by an optimizer of its own. Return its tensors."""
    begin(rank, text)
    model = Odd(rank.rank)
    ddp = DistributedDataParallel(model)
    shared = [each for each in model.parameters() if each.requires_grad and each is not model.expert]
    optimizers: list[Optimizer] = [SGD(shared if apart else [*shared, model.expert], lr=0.1)]
    if apart:
        optimizers.insert(0, SGD([model.expert], lr=0.1))
    expert = model.expert.detach().clone()
    for step in range(STEPS):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * step + rank.rank)) + 10 * rank.rank
        for optimizer in optimizers:
            optimizer.zero_grad()
        ddp(x).backward()
        assert model.expert.grad is not None
        expert -= 0.1 * model.expert.grad
        for optimizer in optimizers:
            optimizer.step()
            ddp(x[:2])  # also between the first steps, when the strategy has not begun yet
        dist.barrier()
    dist.destroy_process_group()
    torch.testing.assert_close(model.expert.detach(), expert)
    return {name: each.detach().clone() for name, each in (*model.named_parameters(), *model.named_buffers())}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    "text", ["local:sync_every=2", "elastic:sync_every=2,schedule=sync1", "parameter_server:mode=sync"]
)
def test_what_is_ignored_stays_alone(text: str, apart: bool) -> None:
    states = run_ranks(trained, 2, text, apart, join=False)
    for rank, state in enumerate(states):
        assert torch.equal(state["mine"], torch.full((2,), float(rank)))
        assert not torch.equal(state["expert"], states[1 - rank]["expert"])
        for name in ("inside.weight", "norm.running_var", "mean", "frozen", "mask"):
            torch.testing.assert_close(state[name], states[1 - rank][name], msg=name)
