# SPDX-License-Identifier: Apache-2.0
"""When a run of another backend counts, where one runs beside braid to be compared with it.

Processes of torch's Gloo abort now and then at their end ("terminate called without an active exception"). On a
busy machine 4 of 50 runs of a plain script with 4 ranks did, also where braid was not loaded. By then all has been
computed and written. A run of braid alone never counts in this way: that its processes end well is a part of its
result.
"""

from collections.abc import Iterable
from pathlib import Path


def has_finished(codes: int | Iterable[int | None], results: Iterable[Path]) -> bool:
    """Return whether a rival's run counts: it ended well, or has written its results.

    Args:
        codes: the exit codes of its processes, or that of their launcher. None is a process that was stopped.
        results: files that are written once all has been computed.

    Example:
        >>> has_finished([0, 0], [])
        True
        >>> has_finished([0, -6], [Path("no/such/file")])
        False
    """
    ended = [codes] if isinstance(codes, int) else list(codes)
    if not any(code is None or code for code in ended):
        return True
    files = list(results)
    return bool(files) and all(path.exists() and path.stat().st_size > 0 for path in files)
