# SPDX-License-Identifier: Apache-2.0
"""One linear layer whose weight gradient is averaged here and not by DDP."""

from collections.abc import Callable
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
    """Replaces forward() of a module. The layer's backward pass starts the exchange.

    The end of the whole backward pass waits for the exchange and multiplies the factors.

    A synchronized call exchanges numbers of rows in its forward pass. So they are known when its backward pass
    decides between factors and gradient. Calls outside of DDP's forward pass are local, as calls under no_sync().
    Calls within a backward pass may be repeats by checkpoint(). They are allowed, but their backward pass raises.
    """

    def __init__(
        self, module: Any, group: dist.ProcessGroup, cost: FactorCost, begin: Callable[[], None] = lambda: None
    ) -> None:
        """Replace the forward() of a plain nn.Linear for ever. `begin` is called before a call may communicate."""
        self.module, self.group, self.cost = module, group, cost
        self._begin = begin
        self._guarded: Tensor | None = None
        # Makes autograd call backward() for any input.
        self._anchor = torch.zeros((), dtype=torch.float32, requires_grad=True)
        self.as_factors = self.as_matrix = 0
        self._holds_own = False  # weight.grad has gradients of this rank alone
        self._pending: list[_Exchange] = []
        module.forward = self

    def __call__(self, input: Tensor) -> Tensor:
        """Do what nn.Linear's forward() does."""
        weight, bias = self.module.weight, self.module.bias
        if not torch.is_grad_enabled() or not weight.requires_grad or input.shape[-1] == 0:
            return nn.functional.linear(input, weight, bias)
        self._guard(weight)
        result: Tensor = _Linear.apply(input, weight.detach(), bias, self._anchor, self)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out the group: a copied or saved module computes the same, but exchanges nothing."""
        return CopiedForward, (self.module,)

    def announce(self, rows: int) -> "_Rows | None":
        """Start to tell the other ranks how many rows this call has. None: its gradient stays here for now."""
        ddp = _active_ddp()
        if ddp is None:
            return None if torch._C._current_graph_task_id() == -1 else _NoRows()
        self._begin()
        if not ddp.require_backward_grad_sync:
            return None
        return _Rows(_WHOLE if self._holds_own else rows, self.cost.ranks, self.group)

    def send(self, x: Tensor, g: Tensor, rows: "_Rows | None") -> None:
        """Start the exchange of one call's gradient, `g` transposed times `x`; without `rows` keep it here."""
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
        if pending and self._holds_own:
            # Other ranks do not have these gradients: the replicas would differ.
            raise RuntimeError(
                "a backward pass joined calls of a layer of sufficient_factors() made under no_sync(), or outside "
                "of DDP's forward(), with a synchronized one made before their gradients were there: call "
                "backward() for each of them, the synchronized one last, or make all of them synchronized"
            )
        weight = self.module.weight
        mean = None
        for exchange in pending:
            one = exchange.finish(weight)
            mean = one if mean is None else mean.add_(one)
        if mean is not None:
            weight.grad = mean if weight.grad is None else weight.grad + mean

    def _guard(self, weight: Tensor) -> None:
        if weight is self._guarded:
            return
        if not isinstance(weight, nn.Parameter):
            raise RuntimeError(
                "the weight of a layer of sufficient_factors() is no parameter any more, but computed from others "
                "(a weight norm, pruning): call sufficient_factors() after that, and it leaves such layers alone"
            )
        # Autograd has a gradient for this weight only if other code than this layer has used the weight.
        weight.register_post_accumulate_grad_hook(_refuse_other_use)
        self._guarded = weight


class CopiedForward:
    """The forward() of a copied layer. It exchanges nothing."""

    def __init__(self, module: Any) -> None:
        """Take the copied module."""
        self._module = module

    def __call__(self, input: Tensor) -> Tensor:
        """Do what nn.Linear's forward() does. Within DDP it raises: nobody would average the gradients."""
        weight = self._module.weight
        if torch.is_grad_enabled() and weight.requires_grad and _active_ddp() is not None:
            raise RuntimeError(
                "a layer of sufficient_factors() was copied, or saved and loaded: call sufficient_factors() on "
                "the new model too, before DistributedDataParallel is around it"
            )
        return nn.functional.linear(input, weight, self._module.bias)


class _Rows:
    """The exchange of one call's number of rows between all ranks."""

    def __init__(self, rows: int, ranks: int, group: dist.ProcessGroup) -> None:
        self._all = torch.empty(ranks, dtype=torch.int64)
        self._work = all_gather(self._all, torch.tensor([rows], dtype=torch.int64), group=group, async_op=True)

    def wait(self) -> list[int]:
        self._work.wait()
        numbers: list[int] = self._all.tolist()
        return numbers


class _NoRows(_Rows):
    """Stands for a call within a backward pass. Whether it repeats a call of DDP's forward pass is unknown."""

    def __init__(self) -> None:
        pass

    def wait(self) -> list[int]:
        raise RuntimeError(
            "a layer of sufficient_factors() was called within a backward pass, as by checkpoint() with "
            "use_reentrant=True, so its gradient would stay on this rank: use checkpoint(..., use_reentrant=False)"
        )


class _Exchange:
    """The exchange of one gradient, under way."""

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
    """G and X of all ranks, side by side. Ranks with fewer rows add rows of zeros."""

    def __init__(self, x: Tensor, g: Tensor, rows: list[int], group: dist.ProcessGroup) -> None:
        self._out = g.shape[1]
        self._ranks = len(rows)
        own = torch.cat([g, x.to(g.dtype)], dim=1)
        if own.shape[0] < max(rows):
            own = nn.functional.pad(own, (0, 0, 0, max(rows) - own.shape[0]))
        self._own = own  # must live until it was sent
        self._all = own.new_empty(self._ranks * own.shape[0], own.shape[1])
        self._work = all_gather(self._all, own, group=group, async_op=True)

    def finish(self, weight: Tensor) -> Tensor:
        self._work.wait()
        # One product over all ranks' rows: every rank adds the same numbers in the same order.
        g, x = self._all[:, : self._out], self._all[:, self._out :]
        return _product(g, x, weight).div_(self._ranks)


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    """A linear map. Its backward pass gives the weight's gradient to the FactorLayer, and not to autograd."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, anchor: Tensor, layer: FactorLayer
    ) -> Tensor:
        del anchor
        ctx.layer = layer
        ctx.rows = layer.announce(x.numel() // x.shape[-1])
        ctx.save_for_backward(x, weight)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        g = grad.reshape(-1, grad.shape[-1])
        ctx.layer.send(x.reshape(-1, x.shape[-1]), g, ctx.rows)
        grad_x = (grad @ weight.to(grad.dtype)).to(x.dtype) if ctx.needs_input_grad[0] else None
        return grad_x, None, g.sum(0) if ctx.needs_input_grad[2] else None, None, None


def _refuse_other_use(weight: Tensor) -> None:
    weight.grad = None
    raise RuntimeError(
        "the weight of a layer of sufficient_factors() was used otherwise than by calling the layer, and that "
        "part of its gradient would stay on this rank: leave the layer out, with layers=[...]"
    )


def _active_ddp() -> Any:
    from torch.nn.parallel import DistributedDataParallel

    # Set while DDP's forward() runs. DDP, too, decides there whether to synchronize.
    return DistributedDataParallel._active_ddp_module


def _product(g: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast(weight.device.type, enabled=False):  # it is on if backward() was called within autocast
        return torch.mm(g.T.to(weight.dtype), x.to(weight.dtype))
