# SPDX-License-Identifier: Apache-2.0
"""FSDP2's reduce_scatter by a codec, for fully_shard()."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from braid._lossy import lossy_reduce_scatter
from braid.compression import codecs
from braid.compression.operations import is_on_one_host, reduce_scatter


class ReduceScatterByCodec:
    """What FSDPModule.set_custom_reduce_scatter() takes: one for each module, for it keeps that module's residual.

    The residual is a float for each unsharded element of the module. Within a host, and for gradients that are not
    float32 on the CPU, it is the plain reduce_scatter.
    """

    def __init__(self, codec: str) -> None:
        """Use a codec of braid.lossy_all_reduce(); ValueError for what is none."""
        self.codec = codecs.checked(codec)
        if self.codec in (codecs.EXACT, codecs.AUTO) or codecs.low_rank(self.codec):
            raise ValueError(f"codec {codec!r}: FSDP's gradients need a codec of braid.lossy_all_reduce()")
        self._residual: Tensor | None = None
        self._is_lossy: bool | None = None  # not known before the first call

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
        if self._is_lossy is None:
            self._is_lossy = not is_on_one_host(group)
        is_fit = input_tensor.dtype == torch.float32 and input_tensor.device.type == "cpu"
        if not self._is_lossy or not is_fit or op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            work: dist.Work | None = reduce_scatter(
                output_tensor, input_tensor, op=op, group=group, async_op=async_op
            )
            return work
        if self._residual is None or self._residual.numel() != input_tensor.numel():
            self._residual = torch.zeros(input_tensor.numel())
        return lossy_reduce_scatter(
            output_tensor, input_tensor, self.codec, residual=self._residual, op=op, group=group, async_op=async_op
        )


def fsdp_reduce_scatter(codec: str) -> ReduceScatterByCodec:
    """Return what ``module.set_custom_reduce_scatter()`` takes, for one module of FSDP2::

        for module in (*model.layers, model):
            module.set_custom_reduce_scatter(braid.hooks.fsdp_reduce_scatter("int8"))

    Args:
        codec: as of ``braid.lossy_all_reduce``.

    Raises:
        ValueError: there is no such codec.
    """
    return ReduceScatterByCodec(codec)
