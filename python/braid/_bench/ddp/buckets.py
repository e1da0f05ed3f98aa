# SPDX-License-Identifier: Apache-2.0
"""The buckets in which DistributedDataParallel averages a model's gradients, without any gradients or ranks."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from braid._bench.ddp.models import MODEL_NAMES, model
from braid._bench.workload import UsageError

_DEFAULT_CAP_MB = 25.0  # DistributedDataParallel's
_MB = 1 << 20


@dataclass(frozen=True)
class Gradient:
    """One parameter, as its gradient travels."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # the core's name
    sparse: bool = False

    @property
    def bytes(self) -> int:
        """How many are averaged; of a sparse one, fewer."""
        return prod(self.shape) * int(getattr(torch, self.dtype).itemsize)


@dataclass(frozen=True)
class Bucket:
    """What one all_reduce averages: gradients in the order in which a backward brings them."""

    gradients: tuple[Gradient, ...]

    @property
    def dtype(self) -> str:
        """That of all its elements."""
        return self.gradients[0].dtype

    @property
    def bytes(self) -> int:
        """Size of the vector."""
        return sum(gradient.bytes for gradient in self.gradients)


def buckets_of(gradients: Sequence[Gradient], cap_mb: float | None = None) -> list[Bucket]:
    """Return the buckets as they are from the second step on, when the order of the backward is known.

    Args:
        gradients: in the order of ``module.parameters()``; the backward is taken to go the other way round.
        cap_mb: DistributedDataParallel's `bucket_cap_mb`. Unless given 25, and 1 for the bucket that begins.
            Sparse gradients are in none: they travel as rows, each tensor by itself.
    """
    dense = [gradient for gradient in reversed(gradients) if not gradient.sparse]
    if not dense:
        return []
    first = dist._DEFAULT_FIRST_BUCKET_BYTES if cap_mb is None else int(cap_mb * _MB)
    limits = [first, int((_DEFAULT_CAP_MB if cap_mb is None else cap_mb) * _MB)]
    tensors = [torch.empty(one.shape, dtype=getattr(torch, one.dtype), device="meta") for one in dense]
    found, _ = dist._compute_bucket_assignment_by_size(tensors, limits, [False] * len(tensors))
    return [Bucket(tuple(dense[index] for index in indices)) for indices in found]


def gradients_of(text: str, dtype: str | None) -> list[Gradient]:
    """Return the gradients of a model that `braid bench ddp` knows, or that ``FILE.py:CALLABLE`` makes.

    Args:
        text: the name, or the file and the name in it of what returns a torch.nn.Module when called.
        dtype: of floating-point gradients, instead of the parameters' own.

    Raises:
        UsageError: there is no such model, or making it failed.
    """
    if text in MODEL_NAMES:
        return [
            Gradient(parameter.name, parameter.shape, dtype or "float32", layer.rows_per_sample > 0)
            for layer in model(text).layers
            for parameter in layer.parameters
        ]
    module = _made(text)
    sparse = {
        id(part.weight)
        for part in module.modules()
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse
    }
    return [
        Gradient(
            name,
            tuple(parameter.shape),
            dtype if dtype and parameter.is_floating_point() else str(parameter.dtype).removeprefix("torch."),
            id(parameter) in sparse,
        )
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    ]


def _made(text: str) -> nn.Module:
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise UsageError(
            f"--model: there is no {text!r}, expected FILE.py:CALLABLE or one of {', '.join(MODEL_NAMES)}"
        )
    if not Path(path).is_file():
        raise UsageError(f"--model: no such file: {path}")
    try:
        module = _called(path, name)
    except UsageError:
        raise
    except Exception as error:  # whatever a user's file raises
        raise UsageError(f"--model {text}: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise UsageError(f"--model {text}: returned {type(module).__name__}, expected a torch.nn.Module")
    return module


def _called(path: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    file = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(file)
    make: Callable[[], Any] | None = getattr(file, name, None)
    if not callable(make):
        raise UsageError(f"--model: {path} has nothing to call that is named {name!r}")
    return make()
