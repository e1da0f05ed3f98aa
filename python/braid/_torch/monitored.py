# SPDX-License-Identifier: Apache-2.0
"""Lets ``torch.distributed.monitored_barrier`` work on braid groups: torch up to 2.13 allows only "gloo"."""

import functools
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from braid._torch.backend_name import BACKEND_NAME

_MARK = "_braid_monitored_barrier"


def install() -> None:
    """Wrap the function in both modules of torch that export it. A second call does nothing."""
    import torch.distributed.distributed_c10d as c10d

    original = c10d.monitored_barrier
    if hasattr(original, _MARK):
        return
    wrapper = _wrap(original)
    for module in (c10d, sys.modules["torch.distributed"]):
        if getattr(module, "monitored_barrier", None) is original:
            vars(module)["monitored_barrier"] = wrapper


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    import torch.distributed as dist

    @functools.wraps(original)
    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> Any:
        own = group is not dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(group) >= 0
        if not own or dist.get_backend(group) != BACKEND_NAME:
            return original(group, timeout, wait_all_ranks)
        if timeout is None:
            timeout = timedelta(milliseconds=-1)  # the group's
        elif isinstance(timeout, (int, float)):
            timeout = timedelta(seconds=timeout)
        return (group or dist.group.WORLD).monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)

    setattr(monitored_barrier, _MARK, True)
    return monitored_barrier
