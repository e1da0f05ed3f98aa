# SPDX-License-Identifier: Apache-2.0
"""The lines that rank 0 writes when a job ends: what braid carried, and what a plain ring would have taken."""

import atexit
import contextlib
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from braid import _core, _settings
from braid._codec import Codec
from braid._notices import tell
from braid._rates import size_text
from braid._torch.takeover import replace_everywhere

_MARK = "_braid_end_lines"
# A job of less than this has nothing to say.
LEAST_SECONDS, LEAST_CALLS = 10.0, 100
_PLAIN = "ring"  # in equal parts, as Gloo sums
_ASKED = ("all_reduce", "float32", "sum", 0)
_NOTHING = 1.05  # gains below 5 % are none: links vary more

_job: "_Job | None" = None


class _Job:
    def __init__(self, topology: str) -> None:
        self.topology, self._began = topology, time.monotonic()

    def tell(self) -> None:
        rows = [row for group in _core.stats() for row in group["operations"]]
        for line in lines(rows, time.monotonic() - self._began, self.topology):
            tell(line, f"braid {_core.version}")


def watch(rank: int, backend: Any) -> None:
    """Have rank 0 tell of the default group's job when it is destroyed, or when Python ends.

    BRAID_QUIET=1 leaves the lines out. So do jobs of less than ten seconds or a hundred operations.

    Args:
        rank: of this process.
        backend: the default group's, with its ``topology()``.
    """
    global _job
    if rank != 0 or _settings.is_on("BRAID_QUIET"):
        return
    if _job is None:
        atexit.register(_end)
    _job = _Job(backend.topology())
    _wrap_destroy()


def _end() -> None:
    global _job
    job, _job = _job, None
    if job is not None:
        with contextlib.suppress(Exception):  # what is told must not keep a group from its end
            job.tell()


def _wrap_destroy() -> None:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    original = c10d.destroy_process_group
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def destroy_process_group(group: Any = None) -> Any:
        if group is None or group is dist.group.WORLD:
            _end()
        return original(group)

    setattr(destroy_process_group, _MARK, True)
    replace_everywhere(original, destroy_process_group)


def lines(rows: Sequence[Mapping[str, Any]], seconds: float, topology: str) -> list[str]:
    """Return the lines for counters of operations.

    Args:
        rows: as in the ``operations`` of braid.stats().
        seconds: since the job began.
        topology: of the default group.

    Example:
        400 operations carried 1.2 GiB, in 12.4 s added up; the job took 31.0 s. Most, 1 GiB, by direct: ...
    """
    calls = sum(row["calls"] for row in rows)
    if seconds < LEAST_SECONDS or calls < LEAST_CALLS:
        return []
    most = max(rows, key=lambda row: int(row["bytes"]))
    each = f"{1000 * most['seconds'] / most['calls']:.3g} ms each"
    carried, under_way = sum(row["bytes"] for row in rows), sum(row["seconds"] for row in rows)
    found = [
        f"{calls} operations carried {size_text(carried)}, in {under_way:.1f} s added up; the job took "
        f"{seconds:.1f} s. Most, {size_text(most['bytes'])}, by {most['algorithm']}: {most['calls']} times "
        f"{most['collective']}, {each}"
    ]
    coded = {row["algorithm"].partition(" ")[2] for row in rows} - {""}
    for codec in sorted(coded):
        of_it = sum(row["bytes"] for row in rows if row["algorithm"].endswith(f" {codec}"))
        fewer = f"{1 / Codec(codec).ratio:.3g} times fewer bytes between hosts"
        found.append(f"{size_text(of_it)} of it went by {codec}, in {fewer}")
    if most["collective"] == "all_reduce" and (factor := _gain(topology, most)) >= _NOTHING:
        found.append(
            f"a ring in equal parts, as Gloo's, would take {factor:.2f} times as long by prediction; "
            "braid compare measures it"
        )
    return found


def _gain(topology: str, row: Mapping[str, Any]) -> float:
    hosts = topology.partition("\n")[0].removeprefix("topology hosts=").split(",")
    algorithm, _, codec = row["algorithm"].partition(" ")
    if len(set(hosts)) < 3:  # exact sums gain nothing on two hosts, and on one it is no matter of links
        return 1.0
    mean_bytes = row["bytes"] // row["calls"] // 4 * 4
    try:
        used, plain = (
            _core.Tuner(topology, name).explain("all_reduce", "float32", "sum", 0, mean_bytes, coded)[
                "predicted_s"
            ]
            for name, coded in ((algorithm, codec), (_PLAIN, ""))
        )
    except ValueError:  # an algorithm that is not priced in this way
        return 1.0
    return float(plain / used) if used else 1.0
