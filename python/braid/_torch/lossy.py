# SPDX-License-Identifier: Apache-2.0
"""Reductions in fewer bytes, for torch: ``braid.lossy_all_reduce``, and what it would take."""

from typing import TYPE_CHECKING, Any

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
    """Sum or average a tensor over all ranks, in fewer bytes between hosts; all ranks end with the same bits.

    Each part of the tensor is encoded where it leaves a host, added up in float32 by the rank that owns the part,
    and its sum is encoded once more for everybody. Within a host nothing is lost, so neither is on a single one.
    Error feedback (Seide et al. 2014; Karimireddy et al. 2019): what the messages lacked is kept in `residual`,
    and added the next time. Summed over ranks, what went in and the old residuals are what came out and the new
    ones. What is lost when the result is rounded to 16 bits is kept with the rest.

    Args:
        tensor: float32, float16 or bfloat16 on the CPU, any shape; holds the result afterwards. Floats of 16
            bits are encoded and added up as float32, and rounded once, at the end.
        codec: ``"fp16"``, ``"bf16"``, ``"fp8_e4m3"``, ``"fp8_e5m2"``, ``"int8"``, ``"int4"``, ``"qsgd"``,
            ``"sign"``, ``"top_k:0.001"`` or ``"random_k:0.01"`` with the part of the elements that is sent; or
            what ``str()`` turns into one of these. The same on all ranks. It must make the tensor smaller:
            ``"fp16"`` and ``"bf16"`` are for float32 alone.
        residual: float32, contiguous, as many elements; zeros to begin with, then one and the same tensor for the
            same parameters, step after step. None forgets what was lost, which only the codecs of 8 bits and more
            can bear.
        op: ReduceOp.AVG, which is meant by None, or SUM.
        seed: of what ``qsgd`` and ``random_k`` draw, the same on all ranks. It is mixed with the number of the
            operation, so it need not change.
        group: a group on braid; None for the default one.
        async_op: return at once, with a Work.

    Returns:
        A Work, whose future has the list of the tensor, if `async_op`; else None.

    Raises:
        ValueError, TypeError: an argument makes no sense; the message says what to do. No group is harmed.
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
    work: Work = _backend(group).lossy_allreduce(tensor, str(codec), residual, seed % 2**32, options)
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
    """Sum or average a tensor over all ranks, each of which gets its part, in fewer bytes between hosts.

    Encoded once, where it leaves a host; ``lossy_all_reduce`` says the rest, and what is raised.

    Args:
        output: float32, float16 or bfloat16 on the CPU, contiguous: a part of the input's elements, as many on all
            ranks.
        input: of the same dtype on the CPU, one part after the other.
        codec: as of ``lossy_all_reduce``.
        residual: float32, contiguous, with an element for each of the input; or None.
        op: ReduceOp.AVG, which is meant by None, or SUM.
        seed: as of ``lossy_all_reduce``.
        group: a group on braid; None for the default one.
        async_op: return at once, with a Work.

    Returns:
        A Work, whose future has the list of the output, if `async_op`; else None.
    """
    from torch.distributed import ReduceOp, ReduceScatterOptions

    options = ReduceScatterOptions()
    options.reduceOp = ReduceOp.AVG if op is None else op
    options.asyncOp = async_op
    work: Work = _backend(group).lossy_reduce_scatter(output, input, str(codec), residual, seed % 2**32, options)
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
    """Return the seconds that the cost model predicts for an all_reduce of so many floats; asks no other rank.

    Args:
        elements: of the dtype.
        codec: as of ``lossy_all_reduce``; None for an exact one.
        group: a group on braid; None for the default one.
        dtype: float32 unless given.

    Returns:
        The same on all ranks, from links as they were last measured: it may change when braid plans anew, which it
        does between the same two operations everywhere. On one host all codecs take the time of the exact one.

    Raises:
        ValueError: a codec that there is not, or that makes the dtype no smaller; a negative number.
        RuntimeError: the group is not on braid.
    """
    size, name = (4, "float32") if dtype is None else (dtype.itemsize, str(dtype).removeprefix("torch."))
    told = _backend(group).explain(
        "all_reduce", size * elements, dtype=name, codec="" if codec is None else str(codec)
    )
    return float(told["predicted_s"])


def is_on_several_hosts(group: "ProcessGroup | None" = None) -> bool:
    """Tell whether ranks of a group on braid are on more than one host, so that codecs have something to do."""
    return bool(_backend(group).is_on_several_hosts)


def _backend(group: "ProcessGroup | None") -> Any:
    import torch
    from torch.distributed import distributed_c10d as c10d

    backend: Any = (group or c10d._get_default_group())._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)
    if not hasattr(backend, "lossy_allreduce"):
        raise RuntimeError(
            f"this needs a group on braid, and this one is on {backend.name()}; make it with "
            'init_process_group("braid"), or start the script with `braid run`'
        )
    return backend
