# SPDX-License-Identifier: Apache-2.0
"""Finds the names of the parameters in a DDP bucket, and the places of their gradients."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from braid.compression.layout import Piece
from braid.compression.parameter_kinds import kind_of, opacity, owners

if TYPE_CHECKING:
    from torch import Tensor, nn

    from braid.compression.rule import Rule


class Parameters:
    """The parameters of a model by identity. It keeps them alive, so that no other tensor gets their identity."""

    def __init__(self, model: "nn.Module") -> None:
        """Read all parameters of a model, or of the model inside a DistributedDataParallel."""
        from torch.nn.parallel import DistributedDataParallel

        inner, self.group = model, None
        if isinstance(model, DistributedDataParallel):
            inner, self.group = model.module, model.process_group
        owner = owners(inner)
        self._named = {id(parameter): (name, parameter) for name, parameter in inner.named_parameters()}
        self.shapes = {name: tuple(parameter.shape) for name, parameter in inner.named_parameters()}
        self.kinds = {
            name: kind_of(name, parameter.dim(), owner[name]) for name, parameter in inner.named_parameters()
        }
        reasons = {name: opacity(parameter, owner[name]) for name, parameter in inner.named_parameters()}
        # Parameters whose gradients cannot be found in a bucket, and the reason.
        self.opaque = {name: why for name, why in reasons.items() if why}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the group and the identities: a copy's parameters have others."""
        told = {"shapes": self.shapes, "kinds": self.kinds, "opaque": self.opaque}
        return {"named": list(self._named.values()), **told}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read the identities of the copied parameters."""
        self.group = None
        self.shapes, self.kinds, self.opaque = state["shapes"], state["kinds"], state["opaque"]
        self._named = {id(parameter): (name, parameter) for name, parameter in state["named"]}

    @property
    def trained_opaque(self) -> list[str]:
        """Names of opaque parameters that require gradients."""
        return [name for name, one in self._named.values() if name in self.opaque and one.requires_grad]

    def warn_of_idle(self, rules: "Sequence[Rule]") -> None:
        """Warn of rules that cover no parameter: most of them have a typing error."""
        sizes = {name: parameter.nbytes for name, parameter in self._named.values()}
        idle = [rule.pattern for rule in rules if not any(rule.covers(name, size) for name, size in sizes.items())]
        if idle:
            warnings.warn(f"compression: no parameter falls under {', '.join(idle)}", stacklevel=3)

    def pieces(self, parameters: "Sequence[Tensor]", bucket: dist.GradBucket) -> list[Piece]:
        """Return the place of each parameter's gradient in the bucket's buffer.

        If one parameter is opaque, no place is known: all offsets are 0, and sizes are the parameters' own.

        Raises:
            ValueError: the bucket belongs to another model.
        """
        names = [self._name_of(parameter) for parameter in parameters]
        if self.opaque.keys() & names:
            return [
                Piece(name, 0, tuple(parameter.shape), parameter.numel(), parameter.dtype)
                for name, parameter in zip(names, parameters, strict=True)
            ]
        begin = bucket.buffer().storage_offset()
        return [
            Piece(name, one.storage_offset() - begin, tuple(one.shape), one.numel(), one.dtype)
            for name, one in zip(names, bucket.gradients(), strict=True)
        ]

    def _name_of(self, parameter: "Tensor") -> str:
        name: str = self._named.get(id(parameter), ("", None))[0]
        if not name:
            raise ValueError(
                f"the state does not know a parameter of shape {tuple(parameter.shape)} in a bucket: make the "
                "state with the model that the hook is registered with"
            )
        return name
