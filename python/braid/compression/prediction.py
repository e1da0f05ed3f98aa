# SPDX-License-Identifier: Apache-2.0
"""Decides by predicted times which parameters of a bucket get a codec."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from braid.compression import codecs, low_rank
from braid.compression.layout import Part, Piece, parts_of
from braid.compression.policy import CompressionPolicy, Wish
from braid.compression.power_sgd_rounds import is_long

# Returns the seconds of an all_reduce of this many elements: exact (None), or with a codec and its encoding and
# decoding. For PowerSGD it returns the seconds of the arithmetic alone.
Predict = Callable[[int, str | None], float]

# Seconds per byte to copy pieces together, and back again.
_COPY_S_PER_BYTE = 2e-10


@dataclass(frozen=True)
class Decision:
    """The codec of one parameter, the reason, and the time that it is predicted to save in a step."""

    codec: str
    reason: str
    gain_s: float = 0.0
    is_predicted: bool = False  # a codec that "auto" picked


def decide(
    policy: CompressionPolicy,
    pieces: Sequence[Piece],
    kinds: Sequence[str],
    predict: Predict | None,
    agree: Callable[[int], int] | None,
) -> list[Decision]:
    """Decide for the parameters of one bucket. All ranks decide alike.

    Args:
        policy: the compression that is allowed.
        pieces: the parameters.
        kinds: the kind of each parameter, from parameter_kinds.kind_of().
        predict: returns the seconds of an operation. None if nothing asks for "auto": gains are 0 then.
        agree: gives all ranks the choice of the same rank. Ranks may predict differently, because links are
            measured anew from time to time.
    """
    wishes = _wishes(policy, pieces, kinds)
    decisions = [Decision(wish.codec, wish.reason) for wish in wishes]
    open_ones = [k for k, wish in enumerate(wishes) if wish.codec == codecs.AUTO]
    if open_ones:
        assert predict is not None
        assert agree is not None
        exact = [piece for piece, wish in zip(pieces, wishes, strict=True) if wish.codec == codecs.EXACT]
        found = _best(policy, [pieces[k] for k in open_ones], exact, predict, agree)
        for k, decision in zip(open_ones, found, strict=True):
            decisions[k] = decision
        return decisions
    return decisions if predict is None else _with_gains(pieces, decisions, predict)


def _with_gains(pieces: Sequence[Piece], decisions: list[Decision], predict: Predict) -> list[Decision]:
    """Add the predicted gain of codecs that the policy names, for the report. They are used in any case.

    PowerSGD has none here: to predict its arithmetic, ranks would have to ask each other.
    """
    if any(codecs.low_rank(made.codec) for made in decisions):
        return decisions
    coded = sum(one.elements for one, made in zip(pieces, decisions, strict=True) if made.codec != codecs.EXACT)
    if not coded:
        return decisions
    in_order = sorted(zip(pieces, decisions, strict=True), key=lambda both: both[0].offset)
    parts = parts_of([piece for piece, _ in in_order], [made.codec for _, made in in_order])
    gain_s = predict(sum(piece.elements for piece in pieces), None) - time_s([(parts, predict)])
    return [
        replace(made, gain_s=gain_s * piece.elements / coded) if made.codec != codecs.EXACT else made
        for piece, made in zip(pieces, decisions, strict=True)
    ]


def decide_without_auto(
    policy: CompressionPolicy, pieces: Sequence[Piece], kinds: Sequence[str], reason: str
) -> list[Decision]:
    """Decide without predictions: parameters that "auto" would decide about stay exact, for this reason."""
    return [
        Decision(codecs.EXACT, reason) if wish.codec == codecs.AUTO else Decision(wish.codec, wish.reason)
        for wish in _wishes(policy, pieces, kinds)
    ]


def decide_on_one_host(policy: CompressionPolicy, pieces: Sequence[Piece], kinds: Sequence[str]) -> list[Decision]:
    """Decide for ranks that share memory. Exact is the fastest, so nothing is predicted and no rank is asked."""
    return [
        # PowerSGD does not depend on hosts, so a rule may ask for it.
        Decision(wish.codec, wish.reason)
        if wish.codec == codecs.EXACT or (codecs.low_rank(wish.codec) and wish.by_rule)
        else Decision(codecs.EXACT, "all ranks are on one host")
        for wish in _wishes(policy, pieces, kinds)
    ]


def _wishes(policy: CompressionPolicy, pieces: Sequence[Piece], kinds: Sequence[str]) -> list[Wish]:
    return [
        _possible(policy.wish(piece.name, piece.bytes, kind), piece)
        for piece, kind in zip(pieces, kinds, strict=True)
    ]


def _possible(wish: Wish, piece: Piece) -> Wish:
    if wish.codec in (codecs.EXACT, codecs.AUTO):
        return wish
    if not codecs.shrinks(wish.codec, piece.dtype):
        dtype = str(piece.dtype).removeprefix("torch.")
        return Wish(codecs.EXACT, f"{wish.codec} is not for gradients of {dtype}")
    rank = codecs.low_rank(wish.codec)
    if rank and not low_rank.is_worth(piece.shape, rank, piece.dtype):
        return Wish(codecs.EXACT, f"no matrix that rank {rank} makes {low_rank.LEAST_RATE:g} times smaller")
    return wish


def _best(
    policy: CompressionPolicy,
    pieces: Sequence[Piece],
    exact: Sequence[Piece],
    predict: Predict,
    agree: Callable[[int], int],
) -> list[Decision]:
    """Pick one codec, or none, for all pieces that "auto" decides about.

    These pieces travel together, so they are judged together. With a codec, the exact pieces need an operation of
    their own, and pieces that are not neighbours are copied.
    """
    plain_s = predict(sum(piece.elements for piece in [*pieces, *exact]), None)
    best, best_s = 0, plain_s
    for k, codec in enumerate(policy.candidates, 1):
        if not codecs.shrinks(codec, pieces[0].dtype):
            continue
        with_it_s = _cut_s(codec, pieces, exact, predict)
        # Later candidates lose more, so each must be better than the best before it by least_gain.
        if with_it_s * (1 + policy.least_gain) < best_s:
            best, best_s = k, with_it_s
    best = agree(best)
    if best == 0:
        return [Decision(codecs.EXACT, f"no codec gains {policy.least_gain:.0%}")] * len(pieces)
    codec = policy.candidates[best - 1]
    best_s = _cut_s(codec, pieces, exact, predict)
    reason = f"predicted {best_s * 1e3:.3g} ms instead of {plain_s * 1e3:.3g} ms for its bucket"
    sent = sum(piece.elements for piece in pieces if _fits(codec, piece))
    return [
        Decision(codec, reason, (plain_s - best_s) * piece.elements / sent, is_predicted=True)
        if _fits(codec, piece)
        else Decision(codecs.EXACT, "too small a matrix")
        for piece in pieces
    ]


def _fits(codec: str, piece: Piece) -> bool:
    rank = codecs.low_rank(codec)
    return not rank or low_rank.is_worth(piece.shape, rank, piece.dtype)


def _cut_s(codec: str, pieces: Sequence[Piece], exact: Sequence[Piece], predict: Predict) -> float:
    """Predict the seconds of a bucket: `exact` is sent exact, and all of `pieces` that fit get the codec."""
    chosen = {piece.name for piece in pieces if _fits(codec, piece)}
    in_order = sorted([*pieces, *exact], key=lambda piece: piece.offset)
    parts = parts_of(in_order, [codec if piece.name in chosen else codecs.EXACT for piece in in_order])
    return time_s([(parts, predict)])


def time_s(buckets: Iterable[tuple[Sequence[Part], Predict]]) -> float:
    """Predict the seconds of all operations of these buckets, one after the other. Each has its own prediction."""
    total_s = 0.0
    waiting: list[tuple[Part, Predict]] = []  # parts of low rank that share a round
    for parts, predict in buckets:
        if not any(codecs.low_rank(part.codec) for part in parts):
            total_s += _round_s(waiting)
            waiting = []
        for part in parts:
            if not codecs.low_rank(part.codec):
                codec = None if part.codec == codecs.EXACT else part.codec
                total_s += _copied_s(part) + predict(part.elements, codec)
                continue
            waiting.append((part, predict))
            if is_long(sum(_first_elements(one) for one, _ in waiting)):
                total_s += _round_s(waiting)
                waiting = []
    return total_s + _round_s(waiting)


def _copied_s(part: Part) -> float:
    return 0.0 if part.in_place else _COPY_S_PER_BYTE * sum(piece.bytes for piece in part.pieces)


def _round_s(together: Sequence[tuple[Part, Predict]]) -> float:
    """Predict the two operations of a PowerSGD round, and its arithmetic. Copying riders is too short to count."""
    if not together:
        return 0.0
    part, predict = together[0]
    wide = 4 // part.pieces[0].dtype.itemsize  # factors are float32, predictions are of the gradient's dtype
    first = sum(_first_elements(one) for one, _ in together)
    second = sum(_factor_elements(one)[1] for one, _ in together)
    computed_s = sum(own(one.elements, one.codec) for one, own in together)
    return predict(wide * first, None) + predict(wide * second, None) + computed_s


def _first_elements(part: Part) -> int:
    return _factor_elements(part)[0] + part.all_elements - part.elements


def _factor_elements(part: Part) -> tuple[int, int]:
    rank = codecs.low_rank(part.codec)
    factors = [low_rank.factor_elements(piece.shape, rank) for piece in part.pieces]
    return sum(p for p, _ in factors), sum(q for _, q in factors)
