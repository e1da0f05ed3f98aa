# SPDX-License-Identifier: Apache-2.0
"""Deep gradient compression (Lin et al. 2018): send the largest elements of the accumulated gradients.

u = m u + g       momentum of each rank; the optimizer must have none
v = v + u         residual of the sparse codec: the updates that are not sent yet
send the largest elements of v; zero u and v there, so that a sent momentum does not act twice (factor masking)

u and v are float32. Gradients of 16 bits become float32 first. The sum is rounded once, at the end, and v gets the
rounding error. Gradients of float64 are sent whole, and have a u of float64.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from braid.compression import codecs
from braid.compression.error_feedback import ErrorFeedbackStore, fitting
from braid.compression.layout import Part, Piece
from braid.compression.operations import (
    exact_mean,
    is_on_one_host,
    lossy_mean,
    most_of,
    must_carry,
    put_back,
    together,
)
from braid.compression.parameters import Parameters
from braid.compression.plans import Plans
from braid.compression.policy import CompressionPolicy
from braid.compression.prediction import Decision, decide_on_one_host
from braid.compression.report import Report
from braid.compression.rule import Rule

if TYPE_CHECKING:
    from torch import nn

_VERSION = 1  # of the state dict

# The part of all elements that is sent in each stage. The last stage has no end.
STAGES = (0.25, 0.0625, 0.015625, 0.004, 0.001)


class DGCState:
    """State of the hook ``braid.hooks.dgc``: ``ddp.register_comm_hook(DGCState(ddp, momentum=0.9), dgc)``.

    The hook applies the momentum, so use SGD without momentum. Small parameters, norms, biases and embeddings get
    the same momentum, but are sent whole.
    """

    def __init__(
        self,
        model: "nn.Module",
        momentum: float = 0.9,
        stages: Sequence[float] = STAGES,
        steps_per_stage: int = 100,
        clip_norm: float | None = None,
        rules: Sequence[Rule] = (),
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        """Prepare a state; nothing is sent.

        Args:
            model: the model, or the DistributedDataParallel around it.
            momentum: what SGD would get as its momentum.
            stages: the part of all elements that is sent in each stage. The last stage has no end.
            steps_per_stage: steps until the next stage. The paper uses an epoch.
            clip_norm: each parameter's gradient is clipped to this norm over the square root of the number of
                ranks, before the momentum is added. None: no clipping.
            rules: "exact" sends parameters whole; ``top_k:PART`` sends this part of them.
            process_group: as for AutoState.

        Raises:
            ValueError: a number is out of its range, BRAID_ALGORITHM forbids codecs, or gradients of the model
                will be complex or sparse.
            RuntimeError: the group is not on braid.
        """
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be from 0 to below 1, not {momentum}")
        if steps_per_stage < 1 or not stages:
            raise ValueError("there must be a stage, of at least one step")
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0, or None, not {clip_norm}")
        for rule in rules:
            if rule.codec != codecs.EXACT and not rule.codec.startswith("top_k:"):
                raise ValueError(f"rule {rule.pattern!r}: DGC sends exact or top_k:PART, not {rule.codec}")
        self.momentum = momentum
        self.stages = [codecs.checked(f"top_k:{stage}") for stage in stages]
        self.steps_per_stage = steps_per_stage
        self.clip_norm = clip_norm
        self.policy = CompressionPolicy(default=self.stages[-1], rules=tuple(rules))
        self._parameters = Parameters(model)
        if refused := self._parameters.trained_opaque:
            raise ValueError(
                f"DGC keeps no momentum of {refused[0]}, whose {self._parameters.opaque[refused[0]]}: use "
                "braid.hooks.auto, which leaves such gradients exact, or make them real and dense"
            )
        self.process_group = process_group or self._parameters.group
        self.steps = 0
        self._are_steps_agreed = False
        must_carry(self.policy.codecs, self.process_group)
        self._parameters.warn_of_idle(self.policy.rules)
        self._plans = Plans(self._parameters, self.process_group)
        self._momenta = ErrorFeedbackStore()
        self._residuals = ErrorFeedbackStore()

    @property
    def codec(self) -> str:
        """The codec of the current step."""
        return self.stages[min(self.steps // self.steps_per_stage, len(self.stages) - 1)]

    def report(self) -> Report:
        """Return for every parameter seen so far its codec in the last stage, and the reason."""
        return self._plans.rows()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the group, which cannot be copied."""
        return {name: value for name, value in vars(self).items() if name not in ("process_group", "_plans")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin with empty plans and no group."""
        vars(self).update(state)
        self.process_group = None
        self._are_steps_agreed = False  # other ranks may have no copy: agree again in the next step
        self._plans = Plans(self._parameters, None)

    def reset(self) -> None:
        """Forget momenta and residuals, for example after the loss's scale changed."""
        self._momenta.clear()
        self._residuals.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's steps, momenta and residuals. Momenta and residuals differ from rank to rank."""
        return {
            "version": _VERSION,
            "ranks": dist.get_world_size(self.process_group),
            "steps": self.steps,
            "momenta": self._momenta.state_dict(),
            "residuals": self._residuals.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what state_dict() returned. Vectors that no longer fit are dropped, as by AutoState.

        Raises:
            ValueError: the state is of another version of this class.
        """
        if state.get("version") != _VERSION:
            raise ValueError(f"this is not a state of version {_VERSION}: version {state.get('version')!r}")
        self.steps = int(state["steps"])
        self._are_steps_agreed = False
        for store, vectors in ((self._momenta, state["momenta"]), (self._residuals, state["residuals"])):
            store.load(fitting(vectors, state["ranks"], self.process_group, self._parameters))

    def reduce(self, bucket: dist.GradBucket) -> "Future[Tensor]":
        """Start the update of a bucket; the future's value is its buffer."""
        if not self._are_steps_agreed:
            # A new rank begins with the step of the ranks that loaded a state.
            self.steps = most_of(self.steps, self.process_group)
            self._are_steps_agreed = True
        buffer, codec = bucket.buffer(), self.codec
        if bucket.is_last():
            self.steps += 1
        plan = self._plans.get(bucket, self._decide)
        futures = []
        for part in plan.parts:
            flat = part.take(buffer)
            dtype = torch.float64 if flat.dtype == torch.float64 else torch.float32
            momentum = self._momenta.flat(part.names, part.sizes, buffer.device, dtype)
            # If the gradients have this dtype, `update` is the memory of `flat`.
            update = flat.to(dtype)
            self._clip(part, update)
            update.copy_(momentum.mul_(self.momentum).add_(update))
            # Values that are not finite are sent once, so that users see them. They must not stay in the momentum.
            momentum.masked_fill_(~momentum.isfinite(), 0.0)
            if part.codec == codecs.EXACT:
                future = exact_mean(flat.copy_(update), self.process_group)
            else:
                residual = self._residuals.flat(part.names, part.sizes, buffer.device)
                sent = codec if part.codec == self.stages[-1] else part.codec
                future = _masked(lossy_mean(update, sent, residual, self.process_group), momentum, residual)
                if update is not flat:
                    future = _rounded(future, flat, residual, dist.get_world_size(self.process_group))
            futures.append(put_back(future, part, flat, buffer))
        return together(futures, buffer)

    def _decide(self, pieces: list[Piece], kinds: list[str]) -> list[Decision]:
        if is_on_one_host(self.process_group):
            return decide_on_one_host(self.policy, pieces, kinds)
        wishes = [
            self.policy.wish(piece.name, piece.bytes, kind) for piece, kind in zip(pieces, kinds, strict=True)
        ]
        return [Decision(wish.codec, wish.reason) for wish in wishes]

    def _clip(self, part: Part, flat: Tensor) -> None:
        if self.clip_norm is None:
            return
        most = self.clip_norm / dist.get_world_size(self.process_group) ** 0.5
        for gradient in flat.split(list(part.sizes)):
            # A norm that is not finite clips nothing, so that users see the gradient as it is.
            norm = float(gradient.norm())
            if most < norm < float("inf"):
                gradient.mul_(most / norm)


def _masked(future: "Future[Any]", momentum: Tensor, residual: Tensor) -> "Future[Any]":
    def mask(done: "Future[Any]") -> Any:
        value = done.value()
        # Sent elements have a residual of zero. If most residuals are zero, another rank encodes for this host;
        # then only the result tells which elements were sent.
        is_encoder = 2 * residual.count_nonzero() > momentum.count_nonzero()
        momentum.masked_fill_(residual == 0 if is_encoder else value[0] != 0, 0.0)
        return value

    return future.then(mask)


def _rounded(future: "Future[Any]", flat: Tensor, residual: Tensor, ranks: int) -> "Future[Any]":
    """Round a sum to gradients of 16 bits. Each rank adds its share of the rounding error to its residual."""

    def round_(done: "Future[Any]") -> Any:
        update = done.value()[0]
        update.sub_(flat.copy_(update)).masked_fill_(~update.isfinite(), 0.0)
        residual.add_(update, alpha=1 / ranks)
        return [flat]

    return future.then(round_)
