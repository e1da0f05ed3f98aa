# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in ``braid run``: ranks end without a traceback each. All other exceptions are printed as before."""

import os
import sys
from types import TracebackType


def hide() -> None:
    """Print nothing for a KeyboardInterrupt that ends this process. A second call does nothing.

    The exit code stays. A hook that the script has set before keeps its place. BRAID_DEBUG=1 prints all.
    """
    before = sys.excepthook
    if before is not sys.__excepthook__ or os.environ.get("BRAID_DEBUG", "").strip() not in ("", "0"):
        return

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            before(kind, error, trace)

    sys.excepthook = show
