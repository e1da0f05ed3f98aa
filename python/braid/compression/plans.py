# SPDX-License-Identifier: Apache-2.0
"""How each bucket is reduced. It is decided once, and again only if the bucket's parameters change."""

from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from braid.compression import codecs, low_rank
from braid.compression.layout import Part, Piece, parts_of
from braid.compression.parameters import Parameters
from braid.compression.prediction import Decision
from braid.compression.report import Report, Row

# Takes pieces and their parameter kinds; returns one decision per piece. All ranks must decide alike.
Decide = Callable[[list[Piece], list[str]], list[Decision]]


@dataclass(frozen=True)
class Plan:
    """How one bucket is reduced. There are no parts if the bucket's gradients cannot be told apart."""

    parameters: tuple[int, ...]  # their id()s
    parts: tuple[Part, ...]
    is_exact: bool


class Plans:
    """The plan of every bucket. A plan knows its parameters: DDP sorts its buckets anew after the first step."""

    def __init__(self, parameters: Parameters, group: dist.ProcessGroup | None) -> None:
        """Begin with no plan. `group` is the group of the DDP that has these parameters."""
        self._parameters = parameters
        self._group = group
        self._by_index: dict[int, Plan] = {}
        self._rows: dict[str, Row] = {}

    def get(self, bucket: dist.GradBucket, decide: Decide) -> Plan:
        """Return the plan of a bucket. `decide` makes it if there is none for the same parameters."""
        parameters = bucket.parameters()
        identities = tuple(id(parameter) for parameter in parameters)
        found = self._by_index.get(bucket.index())
        if found is not None and found.parameters == identities:
            return found
        pieces = self._parameters.pieces(parameters, bucket)
        opaque = self._parameters.opaque.keys() & {piece.name for piece in pieces}
        if obstacle := self._parameters.opaque[min(opaque)] if opaque else self._obstacle(bucket.buffer()):
            decisions = [Decision(codecs.EXACT, obstacle)] * len(pieces)
        else:
            decisions = decide(pieces, [self._parameters.kinds[piece.name] for piece in pieces])
            if bucket.buffer().device.type != "cpu":
                decisions = [_on_a_device(decision) for decision in decisions]
        self._rows.update(
            {piece.name: _row_of(piece, made) for piece, made in zip(pieces, decisions, strict=True)}
        )
        parts = () if opaque else tuple(parts_of(pieces, [decision.codec for decision in decisions]))
        plan = Plan(identities, parts, all(part.codec == codecs.EXACT for part in parts))
        # Older plans with some of these parameters are from before DDP sorted its buckets anew.
        self._by_index = {k: one for k, one in self._by_index.items() if not set(one.parameters) & set(identities)}
        self._by_index[bucket.index()] = plan
        return plan

    def all(self) -> list[Plan]:
        """Return the plans of the buckets seen so far, in their order."""
        return [self._by_index[index] for index in sorted(self._by_index)]

    def clear(self) -> None:
        """Drop all plans: every bucket is decided anew."""
        self._by_index.clear()

    def rows(self) -> Report:
        """Return the decision for every parameter seen so far."""
        return Report(self._rows.values())

    def _obstacle(self, buffer: Tensor) -> str:
        if dist.get_world_size(self._group) == 1:
            return "one rank"
        if not codecs.is_encodable(buffer.dtype):
            return f"gradients are {str(buffer.dtype).removeprefix('torch.')}"
        return ""


def _on_a_device(decision: Decision) -> Decision:
    """Return what becomes of a decision for gradients on an accelerator: the low-rank arithmetic is the host's."""
    if codecs.low_rank(decision.codec):
        return Decision(codecs.EXACT, f"{decision.codec} takes gradients on the CPU")
    return decision


def _row_of(piece: Piece, made: Decision) -> Row:
    """Return the report's row for one parameter."""
    return Row(
        piece.name,
        made.codec,
        made.reason,
        piece.bytes,
        _sent_bytes(piece, made.codec),
        made.gain_s,
        made.is_predicted,
    )


def _sent_bytes(piece: Piece, codec: str) -> int:
    rank = codecs.low_rank(codec)
    if rank:
        return 4 * sum(low_rank.factor_elements(piece.shape, rank))
    if codec == codecs.EXACT:
        return piece.bytes
    return codecs.sent_bytes(codec, piece.elements)
