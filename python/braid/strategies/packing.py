# SPDX-License-Identifier: Apache-2.0
"""The packed vector: all tensors of a strategy as one contiguous vector of float32, in the same order for all."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Entry:
    """One tensor of the packed vector; `group` is the index of its parameter group."""

    name: str
    tensor: Tensor
    group: int = 0

    def describe(self) -> str:
        """Return name, shape, dtype and group in one line."""
        dtype = str(self.tensor.dtype).removeprefix("torch.")
        return f"{self.name} {tuple(self.tensor.shape)} {dtype}, group {self.group}"


@dataclass
class Packing:
    """Places of tensors in one vector of float32. Groups follow each other, without gaps.

    Attributes:
        entries: the tensors in the vector's order.
        elements: the length of the vector.
        ends: (end in the vector, index of the group) for every group that has elements.
    """

    entries: Sequence[Entry]
    elements: int = field(init=False)
    ends: list[tuple[int, int]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Check the tensors and find their places; ValueError names a tensor that cannot be packed."""
        end = 0
        for entry in self.entries:
            _check(entry)
            end += entry.tensor.numel()
            if self.ends and self.ends[-1][1] == entry.group:
                self.ends.pop()
            if end > (self.ends[-1][0] if self.ends else 0):
                self.ends.append((end, entry.group))
        self.elements = end

    def describe(self) -> list[str]:
        """Return one line per tensor; equal lines mean equal packings."""
        return [entry.describe() for entry in self.entries]

    def digest(self) -> str:
        """Return a short text that differs if describe() differs."""
        return hashlib.sha256("\n".join(self.describe()).encode()).hexdigest()[:16]

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the part of the vector for each tensor, in the tensor's shape."""
        sizes = [entry.tensor.numel() for entry in self.entries]
        parts = vector.split(sizes)
        return [part.view(entry.tensor.shape) for part, entry in zip(parts, self.entries, strict=True)]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors in the vector's order, detached: they share memory with the parameters."""
        return [entry.tensor.detach() for entry in self.entries]


def pack_parameters(model: nn.Module, groups: Sequence[dict[str, object]]) -> tuple[Packing, list[Entry]]:
    """Return the packing of all trained parameters, and the frozen parameters, which are left out.

    Args:
        model: gives the parameters their names. A tied parameter has its first name.
        groups: param_groups of an optimizer.

    Raises:
        ValueError: a parameter cannot be packed, or none is trained.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    trained: list[Entry] = []
    frozen: list[Entry] = []
    for index, group in enumerate(groups):
        parameters: Iterable[Tensor] = group["params"]  # type: ignore[assignment]
        for place, parameter in enumerate(parameters):
            name = names.get(id(parameter))
            if name is None:
                raise ValueError(f"parameter {place} of group {index} is not a parameter of the model")
            (trained if parameter.requires_grad else frozen).append(Entry(name, parameter, index))
    if not trained:
        raise ValueError("the model has no parameter that requires a gradient: there is nothing to train")
    return Packing(trained), frozen


def _check(entry: Entry) -> None:
    tensor = entry.tensor
    if tensor.dtype not in _DTYPES:
        dtype = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(
            f"{entry.name} is {dtype}: strategies keep float32, and take float32, float16 and bfloat16 only"
        )
    if type(tensor).__name__ == "DTensor":
        raise ValueError(f"{entry.name} is a DTensor: a strategy needs whole parameters, without FSDP")
    if tensor.device.type != "cpu":
        raise ValueError(f"{entry.name} is on {tensor.device}: this strategy works on the CPU only, so far")
