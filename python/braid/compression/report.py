# SPDX-License-Identifier: Apache-2.0
"""What a state reports of its parameters."""

from dataclasses import dataclass

from braid.compression import codecs, low_rank
from braid.compression.layout import Piece
from braid.compression.prediction import Decision


@dataclass(frozen=True)
class Row:
    """One parameter: what is done to its gradient, and why.

    Attributes:
        parameter: its name.
        codec: "exact" or a codec.
        reason: the rule, the property of the parameter, or the prediction that decided.
        exact_bytes: of its gradient.
        sent_bytes: about those of it in one encoded message.
        gain_s: predicted time saved in a step; 0 where no prediction was asked for.
    """

    parameter: str
    codec: str
    reason: str
    exact_bytes: int
    sent_bytes: int
    gain_s: float


def row_of(piece: Piece, made: Decision) -> Row:
    """Return the row of a parameter for which a decision was made."""
    exact_bytes = 4 * piece.elements
    return Row(piece.name, made.codec, made.reason, exact_bytes, _sent_bytes(piece, made.codec), made.gain_s)


def _sent_bytes(piece: Piece, codec: str) -> int:
    rank = codecs.low_rank(codec)
    if rank:
        return 4 * sum(low_rank.factor_elements(piece.shape, rank))
    if codec == codecs.EXACT:
        return 4 * piece.elements
    return codecs.sent_bytes(codec, piece.elements)
