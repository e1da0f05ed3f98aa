# SPDX-License-Identifier: Apache-2.0
"""All ranks must have the same BRAID_STRATEGY: they compare it when the default group has been made."""

import functools
import itertools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

VARIABLE = "BRAID_STRATEGY"
_MARK = "_braid_same_strategy"
_PATIENCE_S = 60.0  # all have left the group's own barrier just now
_calls = itertools.count()


def wrap_init(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return an init_process_group() that compares the strategies of all ranks when the group is there."""
    if hasattr(original, _MARK):
        return original

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        _compare(os.environ.get(VARIABLE, "").strip())
        return result

    setattr(init_process_group, _MARK, True)
    return init_process_group


def _compare(text: str) -> None:
    """Raise ValueError on every rank if one has another text than rank 0."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    size, rank = dist.get_world_size(), dist.get_rank()
    if size == 1:
        return
    store = dist.PrefixStore(f"braid/strategy/{next(_calls)}", c10d._get_default_store())
    patience = timedelta(seconds=_PATIENCE_S)
    why = ""
    try:
        if rank == 0:
            keys = [str(each) for each in range(1, size)]
            store.wait(keys, patience)
            for each, other in zip(keys, store.multi_get(keys), strict=True):
                if (said := other.decode()[1:]) != text:
                    why = why or (
                        f"{VARIABLE} differs: rank {each} has {said or 'none'!r}, rank 0 has {text or 'none'!r}: "
                        "give all ranks the same"
                    )
        else:
            store.set(str(rank), f"={text}")  # no store takes an empty value
            store.wait(["verdict"], patience)
            why = store.get("verdict").decode()[1:]
    except Exception as error:
        # A rank that braid has not taken over says nothing. Without a strategy that is no matter.
        why = why or (f"{VARIABLE}={text}: not all ranks said which strategy they have: {error}" if text else "")
    finally:
        if rank == 0:
            store.set("verdict", f"={why}")
    if why:
        raise ValueError(why)
