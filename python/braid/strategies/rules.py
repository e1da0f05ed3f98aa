# SPDX-License-Identifier: Apache-2.0
"""What a step sends, and by which rule servers apply it: a gradient, or the difference of a local step."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from braid.strategies.packing import Entry, Packing

Groups = Sequence[dict[str, Any]]
Numbers = list[tuple[int, dict[str, float]]]  # (end in the packed vector, numbers of the rule)

AT_SERVER = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


class Rule(Protocol):
    """What a step sends.

    Attributes:
        text: the name of the servers' rule.
    """

    text: str

    def numbers(self, groups: Groups, workers: int) -> Numbers:
        """Return the rule's numbers for each range of the packed vector, as they are now."""

    def write(self, views: list[Tensor], scale: float, groups: Groups) -> None:
        """Write the update; `scale` undoes the scale of the loss."""


class ServerRule:
    """SGD, Adam or AdamW at the servers: the update is the gradient."""

    def __init__(
        self, inner: torch.optim.Optimizer, packing: Packing, *, compensate: float, implicit: bool
    ) -> None:
        """Read the settings of an optimizer.

        Args:
            inner: an optimizer of a class in AT_SERVER.
            packing: the places of its parameters.
            compensate: lambda of DC-ASGD, 0 for none.
            implicit: take the implicit momentum from the explicit one.

        Raises:
            ValueError: servers have no such rule; the message names the option.
        """
        self._packing, self._compensate, self._implicit = packing, compensate, implicit
        groups = inner.param_groups
        _refuse(groups, "differentiable")
        self._is_sgd = type(inner) is torch.optim.SGD
        self._has_momentum = False
        if self._is_sgd:
            self._has_momentum = any(group["momentum"] for group in groups)
            self.text = _sgd_text(groups, self._has_momentum, compensate)
            # Servers refuse Nesterov's rule with a momentum of 0.
            self._least_momentum = 1e-30 if "nesterov" in self.text else 0.0
        else:
            if compensate:
                raise ValueError("compensate= is for SGD: its formula is that of a plain gradient step")
            self.text = "adamw" if _common(groups, "decoupled_weight_decay") else "adam"
            self.text += ":amsgrad" if _common(groups, "amsgrad") else ""

    def numbers(self, groups: Groups, workers: int) -> Numbers:
        """Return the numbers of all groups, read anew, so that schedulers work.

        Args:
            groups: the parameter groups.
            workers: how many workers there are; they decide the implicit momentum.

        Raises:
            ValueError: momentum is set now, but the servers began without.
        """
        of: Callable[[dict[str, Any], float], dict[str, float]] = self._sgd if self._is_sgd else self._adam
        implicit = 1 - 1 / workers if self._implicit else 0.0
        return [(end, of(groups[index], implicit)) for end, index in self._packing.ends]

    def write(self, views: list[Tensor], scale: float, groups: Groups) -> None:
        """Write the gradients; a parameter without one has a gradient of zeros."""
        write_gradients(self._packing, views, scale)
        for view, entry in zip(views, self._packing.entries, strict=True):
            if groups[entry.group].get("maximize"):
                view.neg_()

    def _sgd(self, group: dict[str, Any], implicit: float) -> dict[str, float]:
        momentum = float(group["momentum"])
        if momentum and not self._has_momentum:
            raise ValueError("momentum was 0 when the strategy began: servers keep no momentum for it")
        numbers = {
            "rate": float(group["lr"]),
            "momentum": max(self._least_momentum, momentum - implicit),
            # Without momentum torch has no dampening either.
            "dampening": float(group["dampening"]) if momentum else 0.0,
            "weight_decay": float(group["weight_decay"]),
        }
        return {**numbers, "lambda": self._compensate} if self._compensate else numbers

    def _adam(self, group: dict[str, Any], implicit: float) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        return {
            "rate": float(group["lr"]),
            "beta1": max(0.0, float(beta1) - implicit),
            "beta2": float(beta2),
            "epsilon": float(group["eps"]),
            "weight_decay": float(group["weight_decay"]),
        }


class LocalRule:
    """Any optimizer steps locally; the update is the difference, which servers add. BytePS does it like this."""

    text = "add"

    def __init__(self, inner: torch.optim.Optimizer, packing: Packing) -> None:
        """Take the optimizer that steps locally; ValueError says why it cannot."""
        if isinstance(inner, torch.optim.LBFGS):
            raise ValueError(
                "LBFGS evaluates its closure several times a step: a parameter server cannot follow it"
            )
        self.inner, self._packing = inner, packing

    def numbers(self, groups: Groups, workers: int) -> Numbers:
        """Return no numbers: the sum has none."""
        return [(self._packing.elements, {})]

    def write(self, views: list[Tensor], scale: float, groups: Groups) -> None:
        """Let the optimizer step, and write what changed."""
        if scale != 1.0:
            gradients = [entry.tensor.grad for entry in self._packing.entries if entry.tensor.grad is not None]
            torch._foreach_mul_(gradients, scale)
        before = self._packing.tensors
        torch._foreach_copy_(views, before)
        self.inner.step()
        torch._foreach_neg_(views)
        torch._foreach_add_(views, [tensor.float() for tensor in before])


def write_gradients(packing: Packing, views: list[Tensor], scale: float) -> None:
    """Write all gradients, times `scale`; zeros where a parameter has none."""
    targets, gradients = [], []
    for view, entry in zip(views, packing.entries, strict=True):
        gradient = entry.tensor.grad
        if gradient is None:
            view.zero_()
        else:
            targets.append(view)
            gradients.append(gradient.to_dense() if gradient.is_sparse else gradient)
    if targets:
        torch._foreach_copy_(targets, gradients)
    if scale != 1.0:
        torch._foreach_mul_(views, scale)


def refuse_thawed(frozen: Sequence[Entry]) -> None:
    """Raise RuntimeError if a parameter has a gradient that was frozen when the strategy began."""
    for entry in frozen:
        if entry.tensor.requires_grad and entry.tensor.grad is not None:
            raise RuntimeError(
                f"{entry.name} was frozen when the strategy began, and is not at the servers: thaw it before"
            )


def _sgd_text(groups: Groups, has_momentum: bool, compensate: float) -> str:
    options = ["momentum"] if has_momentum else []
    if has_momentum and _common([group for group in groups if group["momentum"]], "nesterov"):
        options.append("nesterov")
    if compensate:
        options.append("compensates")
    return f"sgd:{','.join(options)}" if options else "sgd"


def _common(groups: Groups, option: str) -> bool:
    values = {bool(group.get(option)) for group in groups}
    if len(values) > 1:
        raise ValueError(f"groups differ in {option}: servers have one rule for all, so give all the same")
    return values.pop()


def _refuse(groups: Groups, option: str) -> None:
    if any(group.get(option) for group in groups):
        raise ValueError(f"servers have no rule for {option}=True: leave it out, or say local=True")
