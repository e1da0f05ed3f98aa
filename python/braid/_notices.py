# SPDX-License-Identifier: Apache-2.0
"""What braid tells whoever started a process."""

import sys


def tell(line: str, who: str = "braid") -> None:
    """Write a line to standard error, whole: where many processes share it, print() may part text and newline."""
    if sys.stderr is not None:  # as in programs without a console
        sys.stderr.write(f"{who}: {line}\n")
        sys.stderr.flush()
