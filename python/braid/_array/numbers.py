# SPDX-License-Identifier: Apache-2.0
"""Checks of numbers that users give."""

import operator
from typing import Any


def whole(given: Any, what: str) -> int:
    """Return a whole number of any integer type as an int. Other types raise TypeError, which names `what`."""
    try:
        return operator.index(given)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, not {type(given).__name__}") from None
