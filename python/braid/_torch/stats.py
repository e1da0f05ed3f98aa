# SPDX-License-Identifier: Apache-2.0
"""Counters of every group, and a record of the last operations."""

import atexit
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from braid import _core, _services

_PATH = os.environ.get("BRAID_STATS", "")
_RECORD_PATH = os.environ.get("TORCH_FR_DUMP_TEMP_FILE", "")
_groups: list[tuple[str, Any]] = []
_record_is_dumped_at_exit = False


def stats() -> list[dict[str, Any]]:
    """Return the counters of every group and communicator of this process.

    Returns:
        One dict per group. ``group`` is its name, ``rank`` this rank, ``ranks`` the number of ranks.

        ``operations`` is a list with one dict per collective and algorithm: ``collective``, ``algorithm``,
        ``calls``, ``bytes``, ``min_bytes``, ``max_bytes`` and ``seconds`` (the sum). For the time of
        one operation it has the percentiles ``p50_s``, ``p95_s``, ``p99_s`` (each right within 6 %) and ``max_s``.
        Messages are ``send`` and ``recv``.

        ``waiting`` is a list of the operations that have waited for a second or more, the longest first. Each has
        ``operation``, ``seconds`` and ``ranks``: the ranks that it waits for directly, if they are known.
        ``notices`` is the number of lines written about waits. ``longest_wait_s`` is the longest wait of all that
        lasted a second.

        ``copied_down_bytes`` and ``copied_up_bytes`` count what torch's operations have copied from accelerators
        to the host, and back.

        ``waits`` are of the whole process, the same in each dict: ``turns`` (polls in vain), ``yields`` (times
        that a waiting thread gave its core to others), ``sleeps``.

        A parameter service has a dict with these keys, too, without operations. Its ``parameters`` are the
        counters of this member: ``versions`` (updates by shard), ``staleness`` (a histogram), ``sent_bytes``
        and ``received_bytes`` by server, ``wires``, ``homes`` (the server of each shard), ``lost_parts`` (parts
        of this member's pushes that died with a server), ``workers``, ``calls`` (of workers, for this server's
        shards; not those in mapped memory), ``died`` (how many workers), ``lost_members`` (a line for each server
        and worker that was lost: its rank and host, and the ranks for which it spoke), ``bytes`` of memory. A
        strategy adds ``exposed_us``, the time that training has waited.
    """
    return [*(_with_copied(row) for row in _core.stats()), *_services.rows()]


def _with_copied(row: dict[str, Any]) -> dict[str, Any]:
    adapter = sys.modules.get("braid._c10d")  # without it nothing was copied
    down, up = adapter.copied_bytes(row["group"]) if adapter else (0, 0)
    return {**row, "copied_down_bytes": down, "copied_up_bytes": up, "waits": _core.wait_counts()}


def flight_record() -> dict[str, Any]:
    """Return the last 2000 operations of this process (as many as TORCH_FR_BUFFER_SIZE says).

    Returns:
        The dict that torch's flight recorder dumps: ``entries`` with one dict per operation (group, sequence
        number, shapes, dtypes, ``state``, times in ns), ``pg_config``, ``version``. A failed operation stays
        "started", as in torch, and has ``failed`` set. An operation that runs for a second or more has
        ``awaited_ranks``, the global ranks that it waits for directly. Python frames are not kept. Where there
        are parameter services, ``parameter_services`` has their rows of stats().

        Pickle the dict to one file per rank for ``python -m torch.distributed.flight_recorder.fr_trace``. That
        tool knows no plug-in, so names of operations begin with "gloo:".
    """
    adapter = sys.modules.get("braid._c10d")  # without it no group is on braid, and this call must not build it
    record: dict[str, Any] = adapter.flight_record() if adapter else {"entries": []}
    if services := _services.rows():
        record["parameter_services"] = services
    return record


def watch(name: str, backend: Any, global_rank: int) -> None:
    """Write counters and the flight record at exit if environment variables ask for them.

    BRAID_STATS: the counters go to ``$BRAID_STATS.rank<global rank>.json``. It is a list with an object per group:
    its name and the rows of ``Backend.stats()``. TORCH_FR_DUMP_TEMP_FILE: the flight record goes to
    ``$TORCH_FR_DUMP_TEMP_FILE<global rank>``, if an operation has failed or has not ended.
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
    groups += [{"group": row["group"], "parameters": row["parameters"]} for row in _services.rows()]
    path.write_text(json.dumps(groups, indent=1))


def _write_record(path: Path) -> None:
    record = flight_record()
    if any(entry["state"] != "completed" for entry in record["entries"]):
        path.write_bytes(pickle.dumps(record))
