# SPDX-License-Identifier: Apache-2.0
"""Sufficient factors (Zhang et al. 2017): ranks send the two factors of a linear layer's gradient.

dW = G^T X. G (K x M) is the gradient of the output, X (K x N) is the input of K rows. If K is small, G and X of
all ranks are fewer bytes than dW. Every rank gathers them and multiplies. The result is exact, but for rounding.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from braid import _own_groups
from braid.compression.factor_cost import FactorCost
from braid.compression.factor_layer import CopiedForward, FactorLayer
from braid.compression.report import table

_LEAST_ELEMENTS = 1 << 16  # below it one more operation costs more than it saves


@dataclass(frozen=True)
class FactorRow:
    """One layer in a report: its weight's name, and how often its gradient was sent as factors and as a matrix."""

    parameter: str
    as_factors: int
    as_matrix: int


class FactorReport(list[FactorRow]):
    """Rows, one per layer. ``print()`` shows a table."""

    def __str__(self) -> str:
        """Return the table."""
        return table([("weight", "sent as factors", "as a matrix"), *map(astuple, self)], range(1, 3))


class SufficientFactors:
    """The layers whose weight gradients braid averages instead of DDP. sufficient_factors() makes it."""

    def __init__(self, layers: dict[str, FactorLayer], refused: dict[str, str]) -> None:
        """Take the layers by the name of their weight. `refused` has the reason why other layers stay with DDP."""
        self._layers = layers
        self.refused = refused

    @property
    def parameters(self) -> list[str]:
        """The names of the weights that are not in DDP's buckets."""
        return list(self._layers)

    def report(self) -> FactorReport:
        """Return how often each weight's gradient was sent as factors, and how often as a matrix."""
        rows = (FactorRow(name, layer.as_factors, layer.as_matrix) for name, layer in self._layers.items())
        return FactorReport(rows)


def sufficient_factors(
    model: nn.Module,
    process_group: dist.ProcessGroup | None = None,
    *,
    rows: int | None = None,
    layers: Sequence[str] | None = None,
) -> SufficientFactors:
    """Take large linear layers away from DDP, and send factors of their gradients if the factors are faster.

    Call it on all ranks, before the model is wrapped::

        braid.hooks.sufficient_factors(model)
        ddp = DistributedDataParallel(model)

    In each step, for each layer, ranks tell each other their numbers of rows (batch x tokens). These may differ.
    If the whole gradient is cheaper, ranks average the whole gradient.

    All ranks must use the same layers of these in each backward pass. The gradients are there when backward()
    returns, not before. Gradients may be accumulated under no_sync(), or by calls of the model without DDP. They
    stay on their rank until the next synchronized backward pass, which averages them whole.

    This call gives all ranks the weights of the group's first rank. The first call of DDP for training does so
    once more, so that one rank alone may load weights.

    Args:
        model: not wrapped yet. Layers must be of type nn.Linear itself, with a weight that nothing else shares.
        process_group: the group that DDP will have; by default the default group.
        rows: batch x tokens on each rank, if known. Layers for which factors would be slower stay with DDP.
        layers: names of modules to take; by default all layers for which factors may be faster.

    Raises:
        ValueError: a layer named in `layers` cannot be taken; the message says why.
    """
    from torch.nn.parallel import DistributedDataParallel

    if isinstance(model, DistributedDataParallel):
        raise ValueError("sufficient_factors() wants the model before DistributedDataParallel is around it")
    named = dict(model.named_modules())
    if unknown := [name for name in layers or () if name not in named]:
        raise ValueError(f"the model has no module {unknown[0]!r}")
    shared = _shared_weights(model)
    # The layers need their own group: ranks with different graphs may start DDP's buckets at different moments.
    group = _own_groups.new_group(process_group, "sufficient factors")
    cost = FactorCost(group)
    fit: dict[str, nn.Module] = {}
    refused: dict[str, str] = {}
    for path, module in named.items():
        if layers is not None and path not in layers:
            continue
        why = _obstacle(module, shared) or ("" if layers is not None else _not_worth(module, cost, rows))
        name = f"{path}.weight" if path else "weight"
        if not why:
            fit[name] = module
        elif layers is not None:
            raise ValueError(f"layer {path!r} cannot send factors: {why}")
        elif isinstance(module, nn.Linear):
            refused[name] = why
    others = list(getattr(model, "_ddp_params_and_buffers_to_ignore", []))
    if fit and not _trainable(model) - fit.keys() - set(others):
        name, _ = fit.popitem()
        refused[name] = "DDP wants a parameter that is trained, and there is no other"
        if layers is not None:
            raise ValueError(f"layer {name.removesuffix('.weight')!r} cannot send factors: {refused[name]}")
    taken: dict[str, FactorLayer] = {}
    begin = _Begin(taken, group)
    taken.update({name: FactorLayer(module, group, cost, begin) for name, module in fit.items()})
    ignored = [*others, *taken]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    begin.broadcast()
    return SufficientFactors(taken, refused)


def _trainable(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def _shared_weights(model: nn.Module) -> set[int]:
    seen: dict[int, int] = {}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        seen[id(parameter)] = seen.get(id(parameter), 0) + 1
    return {identity for identity, times in seen.items() if times > 1}


def _obstacle(module: nn.Module, shared: set[int]) -> str:
    if type(module) is not nn.Linear:
        return f"it is a {type(module).__name__}, not a plain nn.Linear"
    if "weight" not in module._parameters or module._forward_pre_hooks:
        return "its weight is computed from others, or a hook may change it before forward()"
    if id(module.weight) in shared:
        return "its weight is tied to another's, so its gradient is not one product"
    if not isinstance(vars(module).get("forward", None), CopiedForward | None):
        return "its forward() was replaced"
    if module.weight.is_complex():
        return "its weight is complex"
    return "" if module.weight.requires_grad else "its weight is frozen"


def _not_worth(module: Any, cost: FactorCost, rows: int | None) -> str:
    out_features, in_features = module.weight.shape
    if module.weight.numel() < _LEAST_ELEMENTS:
        return "small"
    most = cost.most_rows(out_features, in_features)
    if most < 1 or (rows is not None and not cost.prefers_factors([rows] * cost.ranks, out_features, in_features)):
        return f"factors are smaller up to {int(most)} rows only, and cost a multiplication"
    return ""


class _Begin:
    """Gives all ranks the first rank's weights, as DDP does for its own parameters. It leaves these out."""

    def __init__(self, layers: dict[str, FactorLayer], group: dist.ProcessGroup) -> None:
        self._layers, self._group = layers, group
        self._is_done = False

    def __call__(self) -> None:
        # All layers at once, so that this is the group's first operation on every rank, whichever layer is first.
        if not self._is_done:
            self._is_done = True
            self.broadcast()

    def broadcast(self) -> None:
        for layer in self._layers.values():
            weight: Tensor = layer.module.weight
            dist.broadcast(weight.detach(), dist.get_global_rank(self._group, 0), group=self._group)
