# SPDX-License-Identifier: Apache-2.0
"""A DDP bucket as hooks see it, of gradients that a test chooses."""

from collections.abc import Sequence

import torch


class Bucket:
    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        index: int = 0,
        is_last: bool = True,
    ) -> None:
        self._parameters = list(parameters)
        self._buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._index, self._is_last = index, is_last

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._is_last

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        sizes = [parameter.numel() for parameter in self._parameters]
        pieces = self._buffer.split(sizes)
        return [piece.view_as(own) for piece, own in zip(pieces, self._parameters, strict=True)]
