# SPDX-License-Identifier: Apache-2.0
"""The names by which scripts know their groups, where braid has taken over another backend's."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from braid._torch.backend_name import BACKEND_NAME

_asking: ContextVar[str] = ContextVar("asking", default=BACKEND_NAME)
_known_as: dict[str, str] = {}  # by torch's name of the group
_default = BACKEND_NAME  # what the default group goes by


@contextmanager
def asking(name: str) -> Iterator[None]:
    """Groups made in this context go by this name."""
    token = _asking.set(name)
    try:
        yield
    finally:
        _asking.reset(token)


def name_in_profiles() -> str:
    """The name that a group being made now has in profiles: that of its CPU backend."""
    for part in _asking.get().split(","):
        device, _, name = part.rpartition(":")
        if device in ("", "cpu"):
            return name
    return BACKEND_NAME


def remember(group: Any, name: str, *, is_default: bool = False) -> None:
    """Say by which name a group goes."""
    global _default
    _known_as[group.group_name] = name
    if is_default:
        _default = name


def inherited() -> str:
    """The name of a group for which none was asked."""
    return _default


def wrap_get_backend(original: Callable[..., Any]) -> Callable[..., Any]:
    """Answer with the name the script asked for: scripts and torch itself choose what to do by it."""

    @functools.wraps(original)
    def get_backend(group: Any = None) -> Any:
        import torch.distributed as dist

        answer = original(group)
        if answer != BACKEND_NAME:
            return answer
        name = _known_as.get((group or dist.group.WORLD).group_name, _default)
        return type(answer)(name)

    return get_backend


def _told_of_gloo() -> dict[str, Any]:
    # What DDP adds under this name: two settings of the environment, and how many threads carry operations. Here
    # these are at most two: the progress thread and, where there is TCP, the network thread.
    settings = ("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT")
    return {**{name.lower(): os.environ.get(name, "N/A") for name in settings}, "gloo_num_threads": 2}


def wrap_logging_data(original: Callable[..., Any]) -> Callable[..., Any]:
    """Do the same in what DistributedDataParallel tells of itself, which calls every plug-in "custom"."""

    @functools.wraps(original)
    def _get_ddp_logging_data(self: Any) -> Any:
        import torch.distributed as dist

        data = original(self)
        if data.get("backend_name") == "custom":
            data["backend_name"] = name = str(dist.get_backend(self.process_group))
            if name == "gloo":
                data.update(_told_of_gloo())
        return data

    return _get_ddp_logging_data
