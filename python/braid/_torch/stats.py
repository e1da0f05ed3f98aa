# SPDX-License-Identifier: Apache-2.0
"""What braid carried: counters of every group, and the last operations."""

import atexit
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from braid import _core

_PATH = os.environ.get("BRAID_STATS", "")
_RECORD_PATH = os.environ.get("TORCH_FR_DUMP_TEMP_FILE", "")
_groups: list[tuple[str, Any]] = []
_record_is_dumped_at_exit = False


def stats() -> list[dict[str, Any]]:
    """Return the counters of every group and communicator of this process.

    Returns:
        One dict per group: ``group`` (its name), ``rank``, ``ranks``, and ``operations``, a list with one dict per
        collective and algorithm: ``collective``, ``family`` (the algorithm), ``calls``, ``bytes``, ``min_bytes``,
        ``max_bytes``, ``seconds`` (all summed) and the percentiles ``p50_s``, ``p95_s``, ``p99_s`` (each right
        within 6 %) and ``max_s`` of the time of one operation. Messages are ``send`` and ``recv``.

        Also who waits: ``waiting``, a list of the operations that have waited for a second or more, the longest
        first, each with ``operation``, ``seconds`` and ``ranks`` (those it waits for directly, if they are known);
        ``notices``, how many lines were written about waits; ``longest_wait_s`` of all that lasted a second.
    """
    return _core.stats()


def flight_record() -> dict[str, Any]:
    """Return the last 2000 operations of this process (as many as TORCH_FR_BUFFER_SIZE says).

    Returns:
        The dict that torch's flight recorder dumps: ``entries`` with one dict per operation (group, sequence
        number, shapes, dtypes, ``state``, times in ns), ``pg_config``, ``version``. A failed operation stays
        "started", as with torch, and has ``failed`` set. One that runs for a second or more has ``awaited_ranks``,
        the global ranks it waits for directly. Pickled to one file per rank it can be read by
        ``python -m torch.distributed.flight_recorder.fr_trace``; that tool knows no plug-in, so names of
        operations begin with "gloo:". Python frames are not kept.
    """
    adapter = sys.modules.get("braid._c10d")  # without it torch has no group of ours, and asking must not build it
    record: dict[str, Any] = adapter.flight_record() if adapter else {"entries": []}
    return record


def watch(name: str, backend: Any, global_rank: int) -> None:
    """Have written at exit what environment variables ask for.

    With BRAID_STATS, this group's counters go to ``$BRAID_STATS.rank<global rank>.json``: a list with one object
    per group, its name and the rows of ``Backend.stats()``. With TORCH_FR_DUMP_TEMP_FILE, the flight record goes
    to ``$TORCH_FR_DUMP_TEMP_FILE<global rank>``, if an operation has failed or never ended.
    """
    global _record_is_dumped_at_exit
    if _RECORD_PATH and not _record_is_dumped_at_exit:
        _record_is_dumped_at_exit = True
        atexit.register(_write_record, Path(f"{_RECORD_PATH}{global_rank}"))
    if not _PATH:
        return
    if not _groups:
        atexit.register(_write, Path(f"{_PATH}.rank{global_rank}.json"))
    _groups.append((name, backend))


def _write(path: Path) -> None:
    groups = [{"group": name, "operations": backend.stats()} for name, backend in _groups]
    path.write_text(json.dumps(groups, indent=1))


def _write_record(path: Path) -> None:
    record = flight_record()
    if any(entry["state"] != "completed" for entry in record["entries"]):
        path.write_bytes(pickle.dumps(record))
