# SPDX-License-Identifier: Apache-2.0
"""How well a median is known, whatever the distribution: the binomial argument of order statistics."""

from collections.abc import Sequence
from math import comb
from statistics import median

# The fewest values whose interval leaves out the smallest and the largest.
LEAST_ROUNDS = 9
_MISSED_AT_MOST = 20  # one in so many intervals may miss the median: 95 %
# An interval wider than this, over its median, means that the machine was not quiet.
_UNCERTAIN_WIDTH = 0.2


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the narrowest pair of order statistics, as far from either end, that has the median at 95 % or more.

    Every value is below the median with probability 1/2, so the number of those below it is binomial. Fewer than
    six values cannot reach 95 %; then it is their whole range.
    """
    if not values:
        raise ValueError("there is no median of nothing")
    ordered = sorted(values)
    count, cut, below = len(ordered), 0, 1
    # The interval that leaves out `cut` values at each end misses when at most `cut` values are below the median,
    # or above it: `below` of 2**count cases each.
    while True:
        further = below + comb(count, cut + 1)
        if 2 * further * _MISSED_AT_MOST > 2**count:
            break
        cut, below = cut + 1, further
    return ordered[cut], ordered[-1 - cut]


def is_uncertain(values: Sequence[float]) -> bool:
    """Return whether so little is known of the median that it should not be quoted."""
    low, high = median_interval(values)
    return high - low > _UNCERTAIN_WIDTH * median(values)
