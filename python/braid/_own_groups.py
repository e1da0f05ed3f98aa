# SPDX-License-Identifier: Apache-2.0
"""Process groups of braid's own inside those of a script, and names that only their members have to agree on.

torch names a group by the number of groups in the process, if not all ranks make it. But ranks may be in different
numbers of groups. So the names here follow from what all members of a group have done together.
"""

import collections
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

_MARK = "_braid_chosen"
_chosen: ContextVar[str | None] = ContextVar("chosen", default=None)
_counted: collections.Counter[tuple[str, str]] = collections.Counter()


def label(group: Any) -> str:
    """Return a text that all ranks of a process group have alike.

    torch may give the same name to another group in a later job of this process, so the ranks are in it, too.
    """
    import torch.distributed as dist

    ranks = ",".join(map(str, dist.get_process_group_ranks(group)))
    return f"{group.group_name}.{hashlib.sha256(ranks.encode()).hexdigest()[:16]}"


def count(group: Any, purpose: str) -> int:
    """Return how many calls before had this group and purpose. All its ranks call in the same order.

    It never begins anew: keys of an earlier job may still be in the store.
    """
    key = (label(group), purpose)
    _counted[key] += 1
    return _counted[key] - 1


def backend_of(group: Any) -> str:
    """Return the backend to make another group like this one with: one name where that serves the same devices.

    torch warns at the end of a group that was made with "cpu:braid" if it knows a backend since before braid's.
    """
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import Backend, BackendConfig

    config: str = dist.get_backend_config(group)
    name = config.rpartition(":")[2]
    return name if str(BackendConfig(Backend(name))) == config else config


def new_group(
    group: Any, purpose: str, *, ranks: Sequence[int] | None = None, timeout: timedelta | None = None
) -> Any:
    """Make a process group with the ranks and the backend of a given one.

    Args:
        group: the given one; None for the default group.
        purpose: what it is for. Members make the groups of a purpose in the same order.
        ranks: only these, as the given group numbers them. Only they call this.
        timeout: of its collectives; the backend's default if it is not given.
    """
    import torch.distributed as dist

    group = group or dist.group.WORLD
    members = dist.get_process_group_ranks(group)
    members = members if ranks is None else [members[rank] for rank in ranks]
    of = f"{purpose} {','.join(map(str, members))}"
    with _named(f"braid {label(group)} {of} {count(group, of)}"):
        return dist.new_group(
            members,
            timeout=timeout,
            backend=backend_of(group),
            use_local_synchronization=True,
            group_desc=f"braid {purpose}",
        )


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Let torch give this name, hashed, to the group that is made in this context."""
    from torch.distributed import distributed_c10d as c10d

    original: Any = c10d._process_group_name
    if not hasattr(original, _MARK):

        def process_group_name(*args: Any, **kwargs: Any) -> Any:
            return _chosen.get() or original(*args, **kwargs)

        setattr(process_group_name, _MARK, True)
        c10d._process_group_name = process_group_name
    token = _chosen.set(hashlib.sha256(name.encode()).hexdigest()[:40])
    try:
        yield
    finally:
        _chosen.reset(token)
