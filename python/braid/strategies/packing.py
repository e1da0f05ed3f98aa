# SPDX-License-Identifier: Apache-2.0
"""The packed vector: all tensors of a strategy as one contiguous vector of float32, in the same order for all."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Entry:
    """One tensor of a model. A buffer is looked up by name at each use, because modules assign buffers anew.

    Attributes:
        name: of the tensor in the model.
        group: the index of its parameter group.
    """

    def __init__(self, name: str, tensor: Tensor, group: int = 0, owner: nn.Module | None = None) -> None:
        """Note a tensor.

        Args:
            name: of the tensor; its last part is the attribute of `owner`.
            tensor: as it is now. It decides shape, dtype and device.
            group: the index of its parameter group.
            owner: the module that has this buffer; None for a parameter, which is always the same tensor.
        """
        self.name, self.group, self._tensor, self._owner = name, group, tensor, owner
        # What a script can do where a strategy cannot share it.
        self.remedy = "" if owner is None else 'let DistributedDataParallel ignore it, or say buffers="local"'
        self._kind = (tensor.shape, tensor.dtype, tensor.device)

    @property
    def tensor(self) -> Tensor:
        """The tensor that the model has now.

        Raises:
            RuntimeError: the model has assigned another kind of tensor to the buffer.
        """
        if self._owner is None:
            return self._tensor
        found = getattr(self._owner, self.name.rpartition(".")[2], None)
        if not isinstance(found, Tensor) or (found.shape, found.dtype, found.device) != self._kind:
            now = _kind_of(found) if isinstance(found, Tensor) else f"{type(found).__name__}"
            raise RuntimeError(
                f"buffer {self.name} was {_kind_of(self._tensor)} when the strategy began, and is {now} now: keep "
                f"its shape and dtype, {self.remedy}"
            )
        return found

    def describe(self) -> str:
        """Return name, shape, dtype and group in one line."""
        return f"{self.name} {_kind_of(self._tensor)}, group {self.group}"


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


def _kind_of(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _check(entry: Entry) -> None:
    tensor = entry.tensor
    if tensor.dtype not in _DTYPES:
        dtype = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(
            f"{entry.name} is {dtype}: strategies keep float32, and take float32, float16 and bfloat16 only"
            + (f"; {entry.remedy}" if entry.remedy else "")
        )
    if type(tensor).__name__ == "DTensor":
        raise ValueError(f"{entry.name} is a DTensor: a strategy needs whole parameters, without FSDP")
    if tensor.device.type != "cpu":
        raise ValueError(f"{entry.name} is on {tensor.device}: this strategy works on the CPU only, so far")
