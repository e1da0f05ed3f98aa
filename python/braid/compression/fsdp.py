# SPDX-License-Identifier: Apache-2.0
"""A reduce_scatter with a codec for FSDP2, which is fully_shard()."""

import sys
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from braid._torch.lossy import lossy_reduce_scatter
from braid.compression import codecs
from braid.compression.operations import is_on_one_host, reduce_scatter

_MOST_CALLERS = 8  # stack frames searched for the FSDP module's; with torch 2.13 it is the fifth


class ReduceScatterByCodec:
    """The argument of FSDPModule.set_custom_reduce_scatter(). It keeps one module's residual: make one per module.

    The residual has one float32 per unsharded element of the module. The plain reduce_scatter is used instead:

    - if all ranks are on one host;
    - for gradients that are not on the CPU, or that the codec does not make smaller;
    - for other operations than AVG and SUM;
    - in a step that leaves some of the module's parameters unused.
    """

    def __init__(self, codec: str) -> None:
        """Use a codec of braid.lossy_all_reduce(); ValueError if the codec is not one."""
        self.codec = codecs.checked(codec)
        if self.codec in (codecs.EXACT, codecs.AUTO) or codecs.low_rank(self.codec):
            raise ValueError(f"codec {codec!r}: FSDP's gradients need a codec of braid.lossy_all_reduce()")
        self._residual: Tensor | None = None
        self._is_lossy: bool | None = None  # not known before the first call
        self._owner: weakref.ref[Any] | None = None  # the module's object that the residual belongs to

    def allocate(
        self, size: "torch.Size | tuple[int, ...]", *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Make memory for FSDP."""
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> "dist.Work | None":
        """Reduce, and scatter the result."""
        is_fit = codecs.shrinks(self.codec, input_tensor.dtype)
        is_fit = is_fit and op in (dist.ReduceOp.AVG, dist.ReduceOp.SUM)
        if is_fit and self._is_lossy is None:
            self._is_lossy = not is_on_one_host(group)
        if not is_fit or not self._is_lossy:
            return self._plain(output_tensor, input_tensor, group, op, async_op)
        elements = input_tensor.numel()
        if self._residual is None:
            self._residual = torch.zeros(elements, dtype=torch.float32, device=input_tensor.device)
        self._check_owner(elements, self._residual.numel())
        if elements < self._residual.numel():
            return self._plain(output_tensor, input_tensor, group, op, async_op)
        if elements > self._residual.numel():  # earlier steps left some parameters unused
            self._residual = torch.zeros(elements, dtype=torch.float32, device=input_tensor.device)
        return lossy_reduce_scatter(
            output_tensor, input_tensor, self.codec, residual=self._residual, op=op, group=group, async_op=async_op
        )

    def _plain(
        self, output: Tensor, given: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool
    ) -> "dist.Work | None":
        work: dist.Work | None = reduce_scatter(output, given, op=op, group=group, async_op=async_op)
        return work

    def _check_owner(self, elements: int, before: int) -> None:
        """Raise RuntimeError if a second module uses this: the residual of one would be added to the other."""
        owner = self._caller()
        known = None if self._owner is None else self._owner()
        if known is None and owner is not None:
            self._owner = weakref.ref(owner)
        if owner is not None and owner is known:
            return  # the number of elements may change: it counts the parameters that the step used
        if elements == before and (known is None or owner is None):
            return
        raise RuntimeError(
            f"a reduce_scatter by {self.codec} got gradients of two modules, of {before} and {elements} elements: "
            "give each module its own, as braid.hooks.compress_fsdp() does"
        )

    def _caller(self) -> Any:
        """Return FSDP2's object of the calling module, found on the stack; None if it is not there.

        torch does not pass the module.
        """
        frame = sys._getframe(1)
        for _ in range(_MOST_CALLERS):
            caller = frame.f_locals.get("self")
            if caller is not self and getattr(caller, "_reduce_scatter_comm", None) is self:
                return caller
            if frame.f_back is None:
                break
            frame = frame.f_back
        return None


def compress_fsdp(model: nn.Module, codec: str) -> list[str]:
    """Give every FSDP2 module of a model its own reduce_scatter with a codec, and its own residual.

    If a step leaves some of a module's parameters unused, the step is exact for that module. Its residual stays.

    Args:
        model: after all calls of fully_shard().
        codec: as for ``braid.lossy_all_reduce``.

    Returns:
        The names of the FSDP2 modules.

    Raises:
        ValueError: there is no such codec, or the model has no FSDP2 module.
    """
    from torch.distributed.fsdp import FSDPModule

    found = {name: module for name, module in model.named_modules() if isinstance(module, FSDPModule)}
    if not found:
        raise ValueError("the model has no module of FSDP2: call fully_shard() first")
    for module in found.values():
        module.set_custom_reduce_scatter(fsdp_reduce_scatter(codec))
    return list(found)


def fsdp_reduce_scatter(codec: str) -> ReduceScatterByCodec:
    """Return the argument of ``module.set_custom_reduce_scatter()`` for one FSDP2 module. Never share it::

        for module in (*model.layers, model):
            module.set_custom_reduce_scatter(braid.hooks.fsdp_reduce_scatter("int8"))

    compress_fsdp() does that for all modules of a model.

    Args:
        codec: as for ``braid.lossy_all_reduce``.

    Raises:
        ValueError: there is no such codec.
    """
    return ReduceScatterByCodec(codec)
