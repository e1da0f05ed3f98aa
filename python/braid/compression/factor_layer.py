# SPDX-License-Identifier: Apache-2.0
"""One linear layer whose weight gradient is brought together here and not by DDP."""

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable
from torch.autograd.function import once_differentiable

from braid.compression.factor_cost import FactorCost
from braid.compression.operations import all_gather

_WHOLE = -1  # instead of a number of rows: this rank must send its gradient as it is


class FactorLayer:
    """Replaces forward() of a module. Its backward pass starts the exchange; the end of it waits and multiplies.

    Every synchronized call exchanges numbers of rows in its forward pass, so that they are there when its backward
    pass has to decide.
    """

    def __init__(self, module: Any, group: dist.ProcessGroup, cost: FactorCost) -> None:
        """Take a plain nn.Linear over, for as long as it lives."""
        self.module, self.group, self.cost = module, group, cost
        self.as_factors = self.as_matrix = 0
        self._holds_own = False  # weight.grad has what other ranks have not seen
        self._pending: list[_Exchange] = []
        module.forward = functools.partial(_forward, self)

    def announce(self, rows: int) -> "_Rows | None":
        """Start telling other ranks how many rows this call has; None if its gradient stays here for now."""
        if not _is_synchronized():
            return None
        return _Rows(_WHOLE if self._holds_own else rows, self.cost.ranks, self.group)

    def send(self, x: Tensor, g: Tensor, rows: "_Rows | None") -> None:
        """Bring together what the backward pass of one call found."""
        weight = self.module.weight
        if rows is None:
            own = _product(g, x, weight)
            weight.grad = own if weight.grad is None else weight.grad + own
            self._holds_own = True
            return
        Variable._execution_engine.queue_callback(self._finish)
        numbers = rows.wait()
        if _WHOLE not in numbers and self.cost.prefers_factors(numbers, *weight.shape):
            self._pending.append(_Factors(x, g, numbers, self.group))
            self.as_factors += 1
            return
        own = _product(g, x, weight)
        if self._holds_own and weight.grad is not None:
            own += weight.grad
            weight.grad = None
        self._holds_own = False
        self._pending.append(_Whole(own, self.group))
        self.as_matrix += 1

    def _finish(self) -> None:
        pending, self._pending = self._pending, []
        weight = self.module.weight
        mean = None
        for exchange in pending:
            one = exchange.finish(weight)
            mean = one if mean is None else mean.add_(one)
        if mean is not None:
            weight.grad = mean if weight.grad is None else weight.grad + mean


class _Rows:
    """Everybody's numbers of rows in one call, on their way."""

    def __init__(self, rows: int, ranks: int, group: dist.ProcessGroup) -> None:
        self._all = torch.empty(ranks, dtype=torch.int64)
        self._work = all_gather(self._all, torch.tensor([rows], dtype=torch.int64), group=group, async_op=True)

    def wait(self) -> list[int]:
        self._work.wait()
        numbers: list[int] = self._all.tolist()
        return numbers


class _Exchange:
    """A gradient on its way."""

    def finish(self, weight: Tensor) -> Tensor:
        raise NotImplementedError


class _Whole(_Exchange):
    """The gradient itself, averaged."""

    def __init__(self, own: Tensor, group: dist.ProcessGroup) -> None:
        self._mean = own
        self._work = dist.all_reduce(own, op=dist.ReduceOp.AVG, group=group, async_op=True)

    def finish(self, weight: Tensor) -> Tensor:
        self._work.wait()
        return self._mean


class _Factors(_Exchange):
    """Everybody's X and G side by side, rows of zeros below where a rank has fewer than another."""

    def __init__(self, x: Tensor, g: Tensor, rows: list[int], group: dist.ProcessGroup) -> None:
        self._out = g.shape[1]
        self._ranks = len(rows)
        own = torch.cat([g, x.to(g.dtype)], dim=1)
        if own.shape[0] < max(rows):
            own = nn.functional.pad(own, (0, 0, 0, max(rows) - own.shape[0]))
        self._own = own  # kept until it was sent
        self._all = own.new_empty(self._ranks * own.shape[0], own.shape[1])
        self._work = all_gather(self._all, own, group=group, async_op=True)

    def finish(self, weight: Tensor) -> Tensor:
        self._work.wait()
        # One product over all ranks' rows: the same numbers in the same order everywhere.
        g, x = self._all[:, : self._out], self._all[:, self._out :]
        return _product(g, x, weight).div_(self._ranks)


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    """A linear map whose backward pass gives the weight's gradient to its FactorLayer, and none to autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: FactorLayer) -> Tensor:
        ctx.layer = layer
        ctx.rows = layer.announce(x.numel() // x.shape[-1])
        ctx.save_for_backward(x, weight)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        g = grad.reshape(-1, grad.shape[-1])
        ctx.layer.send(x.reshape(-1, x.shape[-1]), g, ctx.rows)
        grad_x = (grad @ weight.to(grad.dtype)).to(x.dtype) if ctx.needs_input_grad[0] else None
        return grad_x, None, g.sum(0) if ctx.needs_input_grad[2] else None, None


def _forward(layer: FactorLayer, x: Tensor) -> Tensor:
    weight, bias = layer.module.weight, layer.module.bias
    if not torch.is_grad_enabled() or not weight.requires_grad or x.shape[-1] == 0:
        return nn.functional.linear(x, weight, bias)
    result: Tensor = _Linear.apply(x, weight, bias, layer)
    return result


def _is_synchronized() -> bool:
    from torch.nn.parallel import DistributedDataParallel

    # Set while DDP's forward() runs, which is when DDP decides it too.
    active = DistributedDataParallel._active_ddp_module
    return active is None or bool(active.require_backward_grad_sync)


def _product(g: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return torch.mm(g.T.to(weight.dtype), x.to(weight.dtype))
