# SPDX-License-Identifier: Apache-2.0
"""Which candidate is advised: the gentlest of those that are nearly as good as the best."""

from collections.abc import Sequence
from dataclasses import dataclass

from braid._advice.candidate import Candidate, Preference

# How much less than the best a gentler candidate may be worth. It is one limit, not one for each kind: limits for
# each would multiply.
_GIVEN_UP = 1.1
# Compression and local steps change the training, one like the other.
_TIERS = {
    Preference.EXACT: 0,
    Preference.COMPRESSED: 1,
    Preference.LOCAL_STEPS: 1,
    Preference.ASYNCHRONOUS: 2,
}
_EXACT_GAIN = 1.03  # of balanced batches and fewer workers over the plain all_reduce of all workers
_CLOSE = 0.1  # predictions of time are seldom better than this


@dataclass(frozen=True)
class Advice:
    """The choice, and why.

    Attributes:
        plain: the all_reduce of all workers in equal parts.
        chosen: the advised candidate; `plain` where nothing gains enough.
        gain: how many times faster `chosen` is than `plain`, in worth.
        is_close: another candidate is within 10 %, which is less than predictions err.
        ranked: all candidates, the most worth first.
    """

    plain: Candidate
    chosen: Candidate
    gain: float
    is_close: bool
    ranked: Sequence[Candidate]


def choose(found: Sequence[Candidate]) -> Advice:
    """Choose among what candidates() returned.

    Order of preference: exact gradients, then compression or local steps, then asynchrony. The first kind counts
    that has a candidate within 10 % of the best of all.
    """
    plain = found[0]
    ranked = sorted(found, key=lambda one: (-one.worth, -len(one.workers)))
    enough = [one for one in ranked if _GIVEN_UP * one.worth >= ranked[0].worth]
    chosen = min(enough, key=lambda one: _TIERS[one.preference])  # of equal ones the first, so the most worth
    if chosen.preference == Preference.EXACT and _EXACT_GAIN * plain.worth >= chosen.worth:
        chosen = plain
    rivals = [one for one in ranked if one is not chosen]
    is_close = bool(rivals) and rivals[0].worth > (1 - _CLOSE) * chosen.worth
    return Advice(plain, chosen, chosen.worth / plain.worth, is_close, ranked)
