# SPDX-License-Identifier: Apache-2.0
"""What braid chose for a workload."""

from typing import Any

from braid._bench.workload import Workload


def describe_choice(group: Any, work: Workload, device: str = "") -> dict[str, Any]:
    """Return ``algorithm`` and ``predicted_us``, asked of a communicator or backend of ours; {} for messages.

    A `device` is for torch's backends. The prediction then has its copies.
    """
    if work.kind.message:
        return {}
    if not hasattr(group, "explain"):
        return {}
    more = {"device": device} if device else {}
    choice = group.explain(work.collective, work.bytes, work.dtype, work.op or "sum", **more)
    return {"algorithm": choice["algorithm"], "predicted_us": 1e6 * choice["predicted_s"]}
