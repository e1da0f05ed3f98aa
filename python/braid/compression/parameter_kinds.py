# SPDX-License-Identifier: Apache-2.0
"""Tells which parameters are better left exact: norms, biases, embeddings, and small ones; and which must be."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

PLAIN = ""
_EMBEDDING_NAMES = ("wte", "wpe")


def kind_of(name: str, dimensions: int, module: "nn.Module") -> str:
    """Return "norm", "bias", "embedding", or PLAIN for what may lose some precision.

    Norms and biases are few bytes and steer whole channels. Rows of an embedding that a batch does not use have
    a gradient of zero, which a block's scale or a sign would not leave at zero.

    Args:
        name: of the parameter, as named_parameters() has it.
        dimensions: of the parameter.
        module: that owns it.
    """
    type_name = type(module).__name__.lower()
    *path, last = name.lower().split(".")
    owner = path[-1] if path else ""
    if "norm" in type_name:
        return "norm"
    if "embedding" in type_name or "embed" in owner or owner in _EMBEDDING_NAMES or "embed" in last:
        return "embedding"
    if last.endswith("bias") or dimensions < 2:
        return "bias"
    return PLAIN


def opacity(parameter: "Tensor", module: "nn.Module") -> str:
    """Return why no gradient can be cut out of DDP's bucket for a parameter, "" where one can.

    DDP sees complex numbers as pairs, but counts them as one where it says where a gradient lies; and a sparse
    gradient is all of its bucket. Such buckets are nothing but reduced.

    Args:
        parameter: the parameter.
        module: that owns it.
    """
    from torch import nn

    if parameter.is_complex():
        return f"gradients are {str(parameter.dtype).removeprefix('torch.')}"
    # What DDP goes by, too.
    is_sparse = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    return "gradients are sparse" if is_sparse else ""


def owners(model: "nn.Module") -> "dict[str, nn.Module]":
    """Return the module that owns each parameter, by the parameter's name."""
    return {
        f"{path}.{name}" if path else name: module
        for path, module in model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
    }
