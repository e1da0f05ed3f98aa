# SPDX-License-Identifier: Apache-2.0
"""All ranks must have the same BRAID_STRATEGY: those of a default group on another backend compare it here.

The core compares it in groups on braid. On another backend a rank without the variable may run nothing of braid.
So every rank writes its text before the backend connects, and a rank that has written nothing by the end has none.
"""

import contextlib
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

VARIABLE = "BRAID_STRATEGY"
_MARK = "_braid_same_strategy"
_PATIENCE_S = 60.0  # for ranks of a backend that connects later
_FAREWELL_S = 5.0
_calls = itertools.count()


def wrap_init(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return an init_process_group() that compares the strategies of all ranks when the group is there."""
    if hasattr(original, _MARK):
        return original

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        text = os.environ.get(VARIABLE, "").strip()
        with _announcing(f"braid/strategy/{next(_calls)}", text) as stores:
            result = original(*args, **kwargs)
        for store in stores:
            _compare(store, text)
        return result

    setattr(init_process_group, _MARK, True)
    return init_process_group


@contextlib.contextmanager
def _announcing(prefix: str, text: str) -> Iterator[list[Any]]:
    """Write this rank's text into the default group's store, before its backend connects. Yield that store."""
    from torch.distributed import distributed_c10d as c10d

    helper = c10d._new_process_group_helper
    signature = inspect.signature(helper)
    stores: list[Any] = []

    @functools.wraps(helper)
    def announce(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if given.get("group_rank", -1) >= 0 and "store" in given:  # MPI has neither ranks nor a store yet
            with contextlib.suppress(RuntimeError):  # as of a FakeStore
                store = c10d.PrefixStore(prefix, given["store"])
                store.set(str(given["group_rank"]), f"={text}")  # no store takes an empty value
                stores[:] = [store]
        return helper(*args, **kwargs)

    c10d._new_process_group_helper = announce
    try:
        yield stores
    finally:
        c10d._new_process_group_helper = helper


def _compare(store: Any, text: str) -> None:
    """Raise ValueError on every rank if one has another text than rank 0."""
    import torch.distributed as dist

    size, rank = dist.get_world_size(), dist.get_rank()
    if size == 1:
        return
    keys = [str(each) for each in range(size)]
    try:
        # Gloo has connected all ranks by now. Other backends may do so at their first operation.
        is_connected = "gloo" in dist.get_backend_config() and not os.environ.get("TORCH_GLOO_LAZY_INIT")
        if text and not is_connected:
            with contextlib.suppress(dist.DistStoreError):
                store.wait(keys, timedelta(seconds=_PATIENCE_S))
        if store.check(keys):
            texts = [said.decode()[1:] for said in store.multi_get(keys)]
        else:
            texts = [store.get(key).decode()[1:] if store.check([key]) else "" for key in keys]
        store.set(f"read/{rank}", "1")
    except RuntimeError:
        if not text:
            return
        raise ValueError(f"{VARIABLE}={text}: the ranks could not compare it: their store is gone") from None
    # A rank that differs from rank 0 speaks of both; another rank speaks of the first that differs.
    other = 0 if texts[0] != text else next((each for each in range(size) if texts[each] != text), rank)
    if other != rank:
        if rank == 0:  # it may hold the store: others read it first
            readers = [f"read/{each}" for each in range(1, size) if texts[each]]
            with contextlib.suppress(RuntimeError):
                store.wait(readers, timedelta(seconds=_FAREWELL_S))
        first, second = sorted((rank, other))
        raise ValueError(
            f"{VARIABLE} differs: rank {first} has {_shown(texts[first])}, rank {second} has "
            f"{_shown(texts[second])}: give all ranks the same"
        )


def _shown(text: str) -> str:
    return f'"{text}"' if text else "none"
