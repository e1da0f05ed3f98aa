# SPDX-License-Identifier: Apache-2.0
"""The error feedback store: what each parameter keeps from one step to the next, its residual or its momentum."""

import warnings
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from braid.compression.parameters import Parameters


class ErrorFeedbackStore:
    """One vector per parameter, by the parameter's name. Only one thread may use a store at a time.

    The key is the name and not the place in a bucket: DDP sorts its buckets anew after the first step, and plans
    change. Parameters that travel as one vector are kept as one vector.
    """

    def __init__(self) -> None:
        """Make an empty store."""
        self._by_name: dict[str, Tensor] = {}  # views of _flats; loaded vectors until flat() asks for them
        self._flats: dict[tuple[str, ...], Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle copies by name. Pickled views would be apart from the flat vectors that later steps change."""
        return {"_by_name": self.state_dict(), "_flats": {}}

    def flat(
        self,
        names: Sequence[str],
        sizes: Sequence[int],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return the vectors of these parameters, end to end, as one vector. New parameters begin at zero."""
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
            # Parameters that stay behind get copies: a view would keep the whole old vector in memory.
            for name in set(other) - views.keys():
                self._by_name[name] = self._by_name[name].clone()
            del self._flats[other]
        self._by_name.update(views)
        self._flats[key] = flat
        return flat

    def clear(self) -> None:
        """Forget all vectors. They begin at zero again."""
        self._by_name.clear()
        self._flats.clear()

    def drop(self, names: Collection[str]) -> None:
        """Forget the vectors of these parameters."""
        self.load({name: vector for name, vector in self._by_name.items() if name not in names})

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of every vector by name."""
        return {name: vector.clone() for name, vector in self._by_name.items()}

    def load(self, vectors: dict[str, Tensor]) -> None:
        """Replace all vectors by copies of these. Copies of 16-bit vectors are float32."""
        copies = {
            name: vector.detach().reshape(-1).to(torch.promote_types(vector.dtype, torch.float32), copy=True)
            for name, vector in vectors.items()
        }
        self.clear()
        self._by_name = copies


def fitting(
    vectors: dict[str, Tensor], saved_ranks: int, group: dist.ProcessGroup | None, parameters: Parameters
) -> dict[str, Tensor]:
    """Return the saved vectors that still fit: as many ranks, and a parameter of that name and size.

    A warning says which vectors are dropped.
    """
    ranks = dist.get_world_size(group)
    if vectors and saved_ranks != ranks:
        warnings.warn(f"residuals of {saved_ranks} ranks are dropped on {ranks} ranks", stacklevel=3)
        return {}
    elements = {name: prod(shape) for name, shape in parameters.shapes.items()}
    fits = {name: vector for name, vector in vectors.items() if elements.get(name) == vector.numel()}
    if dropped := sorted(vectors.keys() - fits.keys()):
        warnings.warn(f"residuals of parameters with other shapes are dropped: {', '.join(dropped)}", stacklevel=3)
    return fits
