# SPDX-License-Identifier: Apache-2.0
"""Parameter kinds: norms, biases and embeddings should stay exact.

Complex parameters and those with sparse gradients must stay exact.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

PLAIN = ""
_EMBEDDING_NAMES = ("wte", "wpe")


def kind_of(name: str, dimensions: int, module: "nn.Module") -> str:
    """Return "norm", "bias", "embedding", or PLAIN for all other parameters, which may lose precision.

    Norms and biases are few bytes and control whole channels. The gradient of an embedding is zero in rows that
    a batch does not use. Codecs with a scale per block, or with signs, would change those zeros.

    Args:
        name: the parameter's name from named_parameters().
        dimensions: the parameter's number of dimensions.
        module: the module that owns the parameter.
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
    """Return why a parameter's gradient cannot be found in DDP's bucket, or "" if it can.

    DDP stores a complex number as two floats, but counts it as one element in a gradient's offset. A sparse
    gradient fills its bucket alone. Buckets with such gradients are reduced as they are.

    Args:
        parameter: the parameter.
        module: the module that owns the parameter.
    """
    from torch import nn

    if parameter.is_complex():
        return f"gradients are {str(parameter.dtype).removeprefix('torch.')}"
    # DDP uses the same test.
    is_sparse = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    return "gradients are sparse" if is_sparse else ""


def owners(model: "nn.Module") -> "dict[str, nn.Module]":
    """Return the module that owns each parameter, by the parameter's name."""
    return {
        f"{path}.{name}" if path else name: module
        for path, module in model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
    }
