# SPDX-License-Identifier: Apache-2.0
"""What of a saved state still has its place."""

import warnings
from math import prod

import torch.distributed as dist
from torch import Tensor

from braid.compression.parameters import Parameters


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
