# SPDX-License-Identifier: Apache-2.0
"""Lossy reductions for torch: ``braid.lossy_all_reduce``, and predictions of its time."""

from typing import TYPE_CHECKING, Any

from braid._torch import on_device
from braid._torch.group_backend import backend_of

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup, ReduceOp, Work


def lossy_all_reduce(
    tensor: "torch.Tensor",
    codec: Any,
    *,
    residual: "torch.Tensor | None" = None,
    op: "ReduceOp.RedOpType | None" = None,
    seed: int = 0,
    group: "ProcessGroup | None" = None,
    async_op: bool = False,
) -> "Work | None":
    """Sum or average a tensor over all ranks, in fewer bytes between hosts. All ranks get the same bits.

    Each part of the tensor is encoded where it leaves a host. The rank that owns the part adds it up in float32,
    and encodes the sum once more for all ranks. Within a host nothing is lost, nor if all ranks are on one host.

    Error feedback (Seide et al. 2014; Karimireddy et al. 2019): `residual` keeps the error of the messages. The
    next call adds it. Summed over ranks, inputs plus old residuals equal results plus new residuals. The error of
    rounding the result to 16 bits is kept, too; not that of sums within a host by ``BRAID_LOCAL_LEG``.

    Args:
        tensor: float32, float16 or bfloat16, any shape, on any device of the group. It holds the result
            afterwards. Floats of 16 bits are encoded and added up as float32, and rounded once, at the end.
        codec: ``"fp16"``, ``"bf16"``, ``"fp8_e4m3"``, ``"fp8_e5m2"``, ``"int8"``, ``"int4"``, ``"qsgd"``,
            ``"sign"``, ``"top_k:0.001"`` or ``"random_k:0.01"`` with the part of the elements that is sent; or
            an object whose ``str()`` is one of these. The same on all ranks. It must make the tensor smaller:
            ``"fp16"`` and ``"bf16"`` are for float32 alone.
        residual: float32, contiguous, as many elements as the tensor, on its device. It begins with zeros. Give
            the same residual for the same parameters in every step. None forgets the error. Training works
            without a residual only with codecs of 8 bits or more.
        op: ReduceOp.AVG or SUM. None stands for AVG.
        seed: for the random choices of ``qsgd`` and ``random_k``; the same on all ranks. It is mixed with the
            number of the operation, so it need not change.
        group: a group on braid; None for the default group.
        async_op: return a Work at once.

    Returns:
        A Work if `async_op`, else None. The value of the Work's future is a list with the tensor.

    Raises:
        ValueError, TypeError: an argument makes no sense; the message says what to do. The group stays usable.
        RuntimeError: the group is not on braid, or the operation failed.

    Example:
        >>> import braid, torch
        >>> grad, lost = torch.randn(1000), torch.zeros(1000)
        >>> braid.lossy_all_reduce(grad, "int8", residual=lost)  # doctest: +SKIP
    """
    from torch.distributed import AllreduceOptions, ReduceOp

    options = AllreduceOptions()
    options.reduceOp = ReduceOp.AVG if op is None else op
    options.asyncOp = async_op
    backend = backend_of(group, tensor.device)
    work: Work
    if coder := on_device.coder_for(tensor, str(codec), residual, options.reduceOp, backend):
        work = on_device.all_reduce(coder, tensor, str(codec), residual, options.reduceOp, backend)
    else:
        work = backend.lossy_allreduce(tensor, str(codec), residual, seed % 2**32, options)
    if async_op:
        return work
    work.wait()
    return None


def lossy_reduce_scatter(
    output: "torch.Tensor",
    input: "torch.Tensor",
    codec: Any,
    *,
    residual: "torch.Tensor | None" = None,
    op: "ReduceOp.RedOpType | None" = None,
    seed: int = 0,
    group: "ProcessGroup | None" = None,
    async_op: bool = False,
) -> "Work | None":
    """Sum or average a tensor over all ranks, in fewer bytes between hosts. Each rank gets one part of the result.

    The tensor is encoded once, where it leaves a host. Otherwise it works, and raises, as ``lossy_all_reduce``.

    Args:
        output: float32, float16 or bfloat16, contiguous, on any device of the group: this rank's part. All parts
            have the same number of elements.
        input: the same dtype and device: the parts of all ranks, one after the other.
        codec: as for ``lossy_all_reduce``.
        residual: float32, contiguous, as many elements as the input; or None.
        op: ReduceOp.AVG or SUM. None stands for AVG.
        seed: as for ``lossy_all_reduce``.
        group: a group on braid; None for the default group.
        async_op: return a Work at once.

    Returns:
        A Work if `async_op`, else None. The value of the Work's future is a list with the output.
    """
    from torch.distributed import ReduceOp, ReduceScatterOptions

    options = ReduceScatterOptions()
    options.reduceOp = ReduceOp.AVG if op is None else op
    options.asyncOp = async_op
    backend = backend_of(group, output.device)
    coder = on_device.coder_for(input, str(codec), residual, options.reduceOp, backend)
    work: Work
    if coder and on_device.is_part(output, input, group):
        work = on_device.reduce_scatter(coder, output, input, str(codec), residual, options.reduceOp, backend)
    else:
        work = backend.lossy_reduce_scatter(output, input, str(codec), residual, seed % 2**32, options)
    if async_op:
        return work
    work.wait()
    return None


def predict_all_reduce(
    elements: int,
    codec: Any = None,
    group: "ProcessGroup | None" = None,
    *,
    dtype: "torch.dtype | None" = None,
) -> float:
    """Return the seconds that the cost model predicts for an all_reduce. It asks no other rank.

    Args:
        elements: the number of elements.
        codec: as for ``lossy_all_reduce``; None for an exact all_reduce.
        group: a group on braid; None for the default group.
        dtype: the dtype of the elements; float32 unless given.

    Returns:
        Seconds, the same on all ranks, from the last measurement of the links. They may change when braid plans
        anew. All ranks plan anew between the same two operations. On one host every codec takes the exact time.

    Raises:
        ValueError: there is no such codec, it does not make the dtype smaller, or `elements` is negative.
        RuntimeError: the group is not on braid.
    """
    size, name = (4, "float32") if dtype is None else (dtype.itemsize, str(dtype).removeprefix("torch."))
    told = backend_of(group).explain(
        "all_reduce", size * elements, dtype=name, codec="" if codec is None else str(codec)
    )
    return float(told["predicted_s"])


def is_on_several_hosts(group: "ProcessGroup | None" = None) -> bool:
    """Return true if ranks of a group on braid are on more than one host. Otherwise codecs are not used."""
    return bool(backend_of(group).is_on_several_hosts)
