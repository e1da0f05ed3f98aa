# SPDX-License-Identifier: Apache-2.0
"""The state of the hook braid.hooks.auto between buckets and steps, and how it reduces a bucket."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from braid._torch.lossy import predict_all_reduce
from braid.compression import codecs, low_rank
from braid.compression.error_feedback import ErrorFeedbackStore, fitting
from braid.compression.layout import Part, Piece
from braid.compression.operations import (
    choice_of_first,
    exact_mean,
    is_on_one_host,
    lossy_mean,
    most_of,
    must_carry,
    plain,
    put_back,
    slowest_of,
    together,
)
from braid.compression.parameters import Parameters
from braid.compression.plans import Plans
from braid.compression.policy import CompressionPolicy
from braid.compression.power_sgd_rounds import PowerSGDRound
from braid.compression.prediction import (
    Decision,
    Predict,
    decide,
    decide_on_one_host,
    decide_without_auto,
    time_s,
)
from braid.compression.report import Report
from braid.compression.trial import Trial

if TYPE_CHECKING:
    import torch
    from torch import nn

_VERSION = 1  # of the state dict


@dataclass(frozen=True)
class Predicted:
    """Seconds of a step's operations, one after the other, with encoding and decoding.

    Attributes:
        exact_s: seconds without compression.
        planned_s: seconds with the compression that is planned.
    """

    exact_s: float
    planned_s: float


class AutoState:
    """State of the hook ``braid.hooks.auto``: ``ddp.register_comm_hook(AutoState(ddp, policy), auto)``.

    Every rank makes a state with the same policy. All ranks take the same decisions. These depend on the policy,
    the model, the links, the slowest rank's processor and, during a trial, rank 0's clock. Residuals are what
    compression left out of earlier steps. They belong to parameters, by name, and differ from rank to rank. So
    each rank saves its own state_dict().
    """

    def __init__(
        self,
        model: "nn.Module",
        policy: CompressionPolicy | str,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        """Prepare a state; nothing is sent.

        Args:
            model: the model, or the DistributedDataParallel around it.
            policy: the compression that is allowed, or the text of CompressionPolicy.from_text().
            process_group: DDP's group. By default the group of `model` if it is a DistributedDataParallel, else
                the default group.

        Raises:
            ValueError: the policy is wrong, or BRAID_ALGORITHM forbids codecs. The message says why.
            TypeError: the policy is neither text nor a CompressionPolicy.
            RuntimeError: something is to be compressed, and the group is not on braid.
        """
        self.policy = CompressionPolicy.from_text(policy) if isinstance(policy, str) else policy
        if not isinstance(self.policy, CompressionPolicy):
            raise TypeError(f"a policy is text or a braid.CompressionPolicy, not {type(policy).__name__}")
        self._parameters = Parameters(model)
        self.process_group = process_group or self._parameters.group
        if not self.policy.is_exact:
            must_carry(self.policy.codecs, self.process_group)
        self._parameters.warn_of_idle(self.policy.rules)
        self.steps = 0
        self._are_steps_agreed = False
        self._trial = self._new_trial(None)
        self._plans = Plans(self._parameters, self.process_group)
        self._plans_without_auto = Plans(self._parameters, self.process_group)
        self._residuals = ErrorFeedbackStore()
        self._errors = ErrorFeedbackStore()  # of PowerSGD: its matrices still contain the sent products
        self._factors = low_rank.Factors()
        self._rounds: list[PowerSGDRound] = []

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the group, which cannot be copied. A copy is for the default group and the copied model."""
        left_out = ("process_group", "_plans", "_plans_without_auto", "_rounds")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin with empty plans and the default group."""
        vars(self).update(state)
        self.process_group = None
        self._are_steps_agreed = False  # other ranks may have no copy: agree again in the next step
        self._plans = Plans(self._parameters, None)
        self._plans_without_auto = Plans(self._parameters, None)
        self._trial = self._new_trial(self._trial.finding)
        self._rounds = []

    def report(self) -> Report:
        """Return for every parameter seen so far its codec, the reason, and the time that it saves in a step."""
        return self._plans_in_use.rows()

    def predict(self) -> Predicted:
        """Predict the seconds of a step's operations, for the buckets that are planned so far.

        Buckets of sparse or complex gradients are left out: sparse gradients differ in size from step to step.
        All ranks must call this at the same point, because the slowest rank's arithmetic counts.
        """
        exact_s = planned_s = 0.0
        coded: list[tuple[Sequence[Part], Predict]] = []  # one entry per bucket
        for plan in self._plans_in_use.all():
            if not plan.parts:
                continue
            predict = self._predictions(plan.parts[0].pieces[0].dtype)
            alone_s = predict(sum(part.all_elements for part in plan.parts), None)
            exact_s += alone_s
            planned_s += alone_s if plan.is_exact else 0.0
            coded.append(([] if plan.is_exact else plan.parts, predict))
        return Predicted(exact_s, planned_s + time_s(coded))

    def reset(self) -> None:
        """Forget residuals and the factors of earlier steps, for example after the loss's scale changed."""
        self._residuals.clear()
        self._errors.clear()
        self._factors.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's steps, residuals and factors. Each rank must load its own: residuals differ."""
        errors = self._errors.state_dict()
        self._factors.settle(errors)
        return {
            "version": _VERSION,
            "ranks": dist.get_world_size(self.process_group),
            "steps": self.steps,
            "trial": self._trial.finding,
            "candidates": list(self.policy.candidates),
            "residuals": self._residuals.state_dict(),
            "errors": errors,
            "factors": {name: factor.clone() for name, factor in self._factors.q.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what state_dict() returned.

        Residuals begin at zero if the number of ranks changed. So do residuals of parameters that have another
        size now, or that are gone. A warning says so.

        Raises:
            ValueError: the state is from another version of this class.
        """
        if state.get("version") != _VERSION:
            raise ValueError(f"this is not a state of version {_VERSION}: version {state.get('version')!r}")
        self.steps = int(state["steps"])
        self._are_steps_agreed = False
        ranks, candidates = dist.get_world_size(self.process_group), list(self.policy.candidates)
        is_same = state["ranks"] == ranks and state.get("candidates") == candidates
        self._trial = self._new_trial(state.get("trial") if is_same else None)
        self._plans.clear()
        self._plans_without_auto.clear()
        for store, vectors in ((self._residuals, state["residuals"]), (self._errors, state["errors"])):
            store.load(fitting(vectors, state["ranks"], self.process_group, self._parameters))
        self._factors.clear()
        self._factors.q = {name: factor.clone() for name, factor in state["factors"].items()}

    def reduce(self, bucket: dist.GradBucket) -> "Future[Tensor]":
        """Start the mean of a bucket's gradients over all ranks. The future's value is the bucket's buffer."""
        buffer = bucket.buffer()
        if not self._are_steps_agreed and not self.policy.is_exact:
            # A new rank begins with the step of the ranks that loaded a state.
            self.steps = most_of(self.steps, self.process_group)
            self._trial.settle(lambda verdict: most_of(verdict, self.process_group))
            self._are_steps_agreed = True
        step = self.steps
        if bucket.index() == 0:
            self._rounds.clear()  # an earlier backward pass may have failed
            self._begin_step(step < self.policy.warmup_steps)
        if bucket.is_last():
            self.steps += 1
        if step < self.policy.warmup_steps or self.policy.is_exact:
            return plain(buffer, self.process_group)
        if self._trial.uses_codecs:
            plan = self._plans.get(bucket, self._decide)
        else:
            plan = self._plans_without_auto.get(bucket, self._decide_without_auto)
        # Factors of earlier buckets had the time of one bucket to arrive. After the last bucket the loop below
        # waits for the rest.
        sent = [round_ for round_ in self._rounds if not round_.is_open]
        if not any(codecs.low_rank(part.codec) for part in plan.parts):
            self._send_open()  # this bucket adds no factors, and its operations may be long
        if plan.is_exact:
            future = plain(buffer, self.process_group)
        else:
            future = together([self._start(part, buffer) for part in plan.parts], buffer)
        if bucket.is_last():
            self._send_open()
        self._advance(sent)
        while bucket.is_last() and self._rounds:
            self._advance(self._rounds)
        return future

    def _start(self, part: Part, buffer: Tensor) -> "Future[Any]":
        rank = codecs.low_rank(part.codec)
        if rank:
            if not (self._rounds and self._rounds[-1].is_open):
                self._rounds.append(PowerSGDRound(self.process_group))
            return self._rounds[-1].add(low_rank.Matrices(part, rank, buffer, self._errors, self._factors))
        flat = part.take(buffer)
        if part.codec == codecs.EXACT:
            future = exact_mean(flat, self.process_group)
        else:
            residual = self._residuals.flat(part.names, part.sizes, buffer.device)
            future = lossy_mean(flat, part.codec, residual, self.process_group)
        return put_back(future, part, flat, buffer)

    def _send_open(self) -> None:
        self._advance([round_ for round_ in self._rounds if round_.is_open])

    def _advance(self, rounds: list[PowerSGDRound]) -> None:
        # Rounds with the most operations left go first. Meanwhile the operations of the others are under way.
        for round_ in sorted(rounds, key=lambda one: -one.stages_left):
            round_.advance()
        self._rounds = [round_ for round_ in self._rounds if round_.stages_left]

    def _new_trial(self, verdict: bool | None) -> Trial:
        return Trial(self.policy.trial_steps if self.policy.uses_auto else 0, verdict)

    def _begin_step(self, is_warm_up: bool) -> None:
        has_ended = self._trial.begin_step(
            is_warm_up,
            self._predicted_gain_s,
            lambda choice: choice_of_first(choice, self.process_group),
        )
        if has_ended and self._trial.verdict is False:
            self._plans_without_auto.clear()  # new plans show the verdict's reason
            dropped = {row.parameter for row in self._plans.rows() if row.is_predicted}
            for kept in (self._residuals, self._errors, self._factors):
                kept.drop(dropped)

    def _predicted_gain_s(self) -> float | None:
        gains = [row.gain_s for row in self._plans.rows() if row.is_predicted]
        return sum(gains) if gains else None

    @property
    def _plans_in_use(self) -> Plans:
        return self._plans_without_auto if self._trial.verdict is False else self._plans

    def _decide_without_auto(self, pieces: list[Piece], kinds: list[str]) -> list[Decision]:
        if is_on_one_host(self.process_group):
            return decide_on_one_host(self.policy, pieces, kinds)
        return decide_without_auto(self.policy, pieces, kinds, self._trial.reason)

    def _decide(self, pieces: list[Piece], kinds: list[str]) -> list[Decision]:
        group = self.process_group
        if is_on_one_host(group):
            return decide_on_one_host(self.policy, pieces, kinds)
        predict = self._predictions(pieces[0].dtype)
        return decide(self.policy, pieces, kinds, predict, lambda choice: choice_of_first(choice, group))

    def _predictions(self, dtype: "torch.dtype") -> Predict:
        group = self.process_group

        @cache  # because it asks the other ranks
        def element_s(rank: int) -> float:
            return slowest_of(low_rank.element_s(rank, dtype), group)

        def predict(elements: int, codec: str | None) -> float:
            rank = codecs.low_rank(codec or "")
            return elements * element_s(rank) if rank else predict_all_reduce(elements, codec, group, dtype=dtype)

        return predict
