# SPDX-License-Identifier: Apache-2.0
"""What is carried from step to step for each parameter: residuals, momenta."""

import warnings
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from braid.compression.parameters import Parameters


class ErrorFeedbackStore:
    """Vectors by parameter name, kept in one piece for parameters that travel in one piece.

    Keyed by name and not by place: DDP sorts its buckets anew after the first step, and plans change. Used by one
    thread at a time.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._by_name: dict[str, Tensor] = {}  # views of _flats, or loaded ones that nobody has asked for yet
        self._flats: dict[tuple[str, ...], Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Keep copies by name: pickle would tear views from the flat vectors, which alone change from then on."""
        return {"_by_name": self.state_dict(), "_flats": {}}

    def flat(
        self,
        names: Sequence[str],
        sizes: Sequence[int],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return one vector for these parameters, end to end, with what is carried for each; zeros at first."""
        key = tuple(names)
        found = self._flats.get(key)
        if found is not None and found.device == device and found.dtype == dtype:
            return found
        flat = torch.zeros(sum(sizes), dtype=dtype, device=device)
        views = dict(zip(names, flat.split(list(sizes)), strict=True))
        for name, view in views.items():
            old = self._by_name.get(name)
            if old is not None and old.numel() == view.numel():
                view.copy_(old)
        for other in [other for other in self._flats if views.keys() & set(other)]:
            # Those of its parameters that are not among these would keep all of it alive.
            for name in set(other) - views.keys():
                self._by_name[name] = self._by_name[name].clone()
            del self._flats[other]
        self._by_name.update(views)
        self._flats[key] = flat
        return flat

    def clear(self) -> None:
        """Forget everything: all is zero again."""
        self._by_name.clear()
        self._flats.clear()

    def drop(self, names: Collection[str]) -> None:
        """Forget these."""
        self.load({name: vector for name, vector in self._by_name.items() if name not in names})

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of every vector by name."""
        return {name: vector.clone() for name, vector in self._by_name.items()}

    def load(self, vectors: dict[str, Tensor]) -> None:
        """Replace everything by copies of these, of float32 at least."""
        copies = {
            name: vector.detach().reshape(-1).to(torch.promote_types(vector.dtype, torch.float32), copy=True)
            for name, vector in vectors.items()
        }
        self.clear()
        self._by_name = copies


def fitting(
    vectors: dict[str, Tensor], saved_ranks: int, group: dist.ProcessGroup | None, parameters: Parameters
) -> dict[str, Tensor]:
    """Return the vectors that belong to parameters of the same size, on as many ranks; warn of the others."""
    ranks = dist.get_world_size(group)
    if vectors and saved_ranks != ranks:
        warnings.warn(f"residuals of {saved_ranks} ranks are dropped on {ranks} ranks", stacklevel=3)
        return {}
    elements = {name: prod(shape) for name, shape in parameters.shapes.items()}
    fits = {name: vector for name, vector in vectors.items() if elements.get(name) == vector.numel()}
    if dropped := sorted(vectors.keys() - fits.keys()):
        warnings.warn(f"residuals of parameters with other shapes are dropped: {', '.join(dropped)}", stacklevel=3)
    return fits
