# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them: sizes in powers of 1024, times and rates with as many digits as mean something."""

import math

from braid._bench.results import Ratio
from braid._rates import size_text

size = size_text


def number(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits, and never with more decimals than that allows at 1."""
    if not math.isfinite(value):
        return str(value)
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{min(digits - 1, max(0, digits - 1 - exponent))}f}"


def optional(value: float | None) -> str:
    """Return a number, or nothing where there is none."""
    return "" if value is None else number(value)


def ratio(value: Ratio | None) -> str:
    """Return a ratio with its interval, or nothing where there is none."""
    if value is None:
        return ""
    return f"{number(value.median, 3)}x [{number(value.low, 3)}, {number(value.high, 3)}]"


def percent_of_limit(limit_us: float | None, time_us: float) -> str:
    """Return how near a time comes to the least possible one, or nothing where that is not known."""
    return "" if limit_us is None else f"{100 * limit_us / time_us:.0f}%"
