# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.nn: collectives that gradients flow through, backwards by other collectives."""

import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn as distributed
from against_gloo import both_backends
from ranks import Rank

pytestmark = pytest.mark.multiprocess


def differentiate(rank: Rank) -> dict[str, list[torch.Tensor]]:
    """Return the value and the gradients of each function."""
    warnings.simplefilter("ignore")  # they are to be replaced by functional collectives one day
    n, me = rank.size, rank.rank
    torch.manual_seed(me)

    def leaf() -> torch.Tensor:
        return torch.randn(n * 2, 3, requires_grad=True)

    x, parts, like = leaf(), [leaf() for _ in range(n)], torch.empty(n * 2, 3)
    calls = {
        "broadcast": lambda: distributed.broadcast(x, 1),
        "gather": lambda: distributed.gather(x, 1),
        "scatter": lambda: distributed.scatter(parts, 1),
        "reduce": lambda: distributed.reduce(x, 1),
        "reduce_scatter": lambda: distributed.reduce_scatter(like.clone(), parts),
        "all_gather": lambda: distributed.all_gather(x),
        "all_to_all": lambda: distributed.all_to_all([like.clone() for _ in range(n)], parts),
        "all_to_all_single": lambda: distributed.all_to_all_single(like.clone(), x),
        "all_reduce": lambda: distributed.all_reduce(x),
        "maximum": lambda: distributed.all_reduce(x, op=dist.ReduceOp.MAX),
    }
    results = {}
    for name, call in calls.items():
        for tensor in (x, *parts):
            tensor.grad = None
        y = call()
        pieces = list(y) if isinstance(y, (list, tuple)) else [y]
        # Each rank weighs each piece differently, so that no gradient could come from elsewhere.
        sum((piece * (me + 1 + i)).sum() for i, piece in enumerate(pieces)).backward()
        if name == "reduce" and me != 1:
            pieces = []  # only the root gets a result; Gloo leaves intermediate sums with the others
        gradients = [tensor.grad for tensor in (x, *parts) if tensor.grad is not None]
        assert gradients
        results[name] = [piece.detach() for piece in pieces] + gradients
    return results


def test_gradients_of_collectives(wire: str) -> None:
    ours, theirs = both_backends(differentiate, 2, wire=wire)
    torch.testing.assert_close(ours, theirs)
    # The ranks had different inputs, so the results that are each rank's own differ.
    assert not torch.equal(ours[0]["all_gather"][-1], ours[1]["all_gather"][-1])
    assert not torch.equal(ours[0]["scatter"][0], ours[1]["scatter"][0])


def test_gradients_on_three_ranks() -> None:
    ours, theirs = both_backends(differentiate, 3)
    torch.testing.assert_close(ours, theirs)
