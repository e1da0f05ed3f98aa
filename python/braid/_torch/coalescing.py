# SPDX-License-Identifier: Apache-2.0
"""Closes torch's coalescing block when an exception leaves it: torch up to 2.13 forgets to.

A block that stays open takes the group's next operations, and never starts them: their results would be wrong.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

_NAME = "_coalescing_manager"
_MARK = "_braid_closes_it"


def install() -> None:
    """Wrap the manager in both modules of torch that export it. A second call does nothing.

    It must come before scripts take the manager from there, so it is done when the backend is registered.
    """
    c10d, distributed = (sys.modules[name] for name in ("torch.distributed.distributed_c10d", "torch.distributed"))
    original = getattr(c10d, _NAME, None)
    if original is None or hasattr(original, _MARK):
        return
    wrapper = _wrap(original)
    setattr(wrapper, _MARK, True)
    for module in (c10d, distributed):
        if getattr(module, _NAME, None) is original:
            vars(module)[_NAME] = wrapper


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    @contextmanager
    def manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[Any]:
        entered = False  # a block inside a block is refused, and the outer one stays open
        try:
            with original(group, device, async_ops) as works:
                entered = True
                yield works
        except BaseException:
            if entered:
                _close(group, device)
            raise

    return manager


def _close(group: Any, device: Any) -> None:
    """Forget the block of this thread if the group is on braid. What was started in it goes on."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    from braid._torch.group_backend import backend_of

    group = group or dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        return
    for kind in [device] if device is not None else group._device_types:
        try:
            backend_of(group, kind)
        except RuntimeError:  # another's, who may rely on its own way
            continue
        distributed_c10d._world.pg_coalesce_state.pop(group, None)
        if device is not None:
            with suppress(RuntimeError):  # torch has closed braid's part by itself
                group._get_backend(kind)._end_coalescing()
