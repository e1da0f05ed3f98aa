# SPDX-License-Identifier: Apache-2.0
"""Numbers that somebody gave."""

import operator
from typing import Any


def whole(given: Any, what: str) -> int:
    """Return a whole number, of whatever integer type. Raises TypeError, which says what is none."""
    try:
        return operator.index(given)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, not {type(given).__name__}") from None
