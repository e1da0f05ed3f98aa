# SPDX-License-Identifier: Apache-2.0
"""``BRAID_STATS=path``: what braid carried, written as JSON when the process ends, for scripts nobody edits."""

import atexit
import json
import os
from pathlib import Path
from typing import Any

_PATH = os.environ.get("BRAID_STATS", "")
_groups: list[tuple[str, Any]] = []


def watch(name: str, backend: Any, global_rank: int) -> None:
    """Have this group's counters written at exit, to ``$BRAID_STATS.rank<global rank>.json``.

    Does nothing when the variable is not set. The file holds a list with one object per group: its name, and
    per collective and algorithm the rows of ``Backend.stats()``.
    """
    if not _PATH:
        return
    if not _groups:
        atexit.register(_write, Path(f"{_PATH}.rank{global_rank}.json"))
    _groups.append((name, backend))


def _write(path: Path) -> None:
    groups = [{"group": name, "operations": backend.stats()} for name, backend in _groups]
    path.write_text(json.dumps(groups, indent=1))
