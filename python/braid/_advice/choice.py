# SPDX-License-Identifier: Apache-2.0
"""Which candidate is advised: the gentlest whose rivals do not gain enough."""

from collections.abc import Sequence
from dataclasses import dataclass

from braid._advice.candidates import Candidate, Preference

# What a candidate must gain over the best gentler one. Balanced batches and fewer workers change no result.
_GAIN = {Preference.COMPRESSED: 1.1, Preference.LOCAL_STEPS: 1.25, Preference.ASYNCHRONOUS: 1.1}
_EXACT_GAIN = 1.03  # over the plain all_reduce of all workers
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

    Order of preference: plain, balanced batches or fewer workers, compression, local steps, asynchrony.
    """
    plain = chosen = found[0]
    for preference in Preference:
        rivals = [one for one in found if one.preference == preference]
        best = max(rivals, key=lambda one: (one.worth, len(one.workers)), default=None)
        needed = _GAIN.get(preference, _EXACT_GAIN)
        if best is not None and best.worth > needed * chosen.worth:
            chosen = best
    ranked = sorted(found, key=lambda one: -one.worth)
    rivals = [one for one in ranked if one is not chosen]
    is_close = bool(rivals) and rivals[0].worth > (1 - _CLOSE) * chosen.worth
    return Advice(plain, chosen, chosen.worth / plain.worth, is_close, ranked)
