# SPDX-License-Identifier: Apache-2.0
"""The backend names that scripts asked for, by group, after braid has taken over those backends."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from braid._torch.backend_name import BACKEND_NAME

_asking: ContextVar[str] = ContextVar("asking", default=BACKEND_NAME)
_known_as: dict[str, str] = {}  # by torch's name of the group
_default = BACKEND_NAME  # the name of the default group


@contextmanager
def asking(name: str) -> Iterator[None]:
    """Give this backend name to groups that are made in this context."""
    token = _asking.set(name)
    try:
        yield
    finally:
        _asking.reset(token)


def name_in_profiles() -> str:
    """Return the name in profiles of the group that is being made: the name of its CPU backend."""
    for part in _asking.get().split(","):
        device, _, name = part.rpartition(":")
        if device in ("", "cpu"):
            return name
    return BACKEND_NAME


def remember(group: Any, name: str, *, is_default: bool = False) -> None:
    """Store the name that a script asked for when it made a group."""
    global _default
    _known_as[group.group_name] = name
    if is_default:
        _default = name


def inherited() -> str:
    """Return the name of a group that was made without a name: the default group's."""
    return _default


def wrap_get_backend(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let get_backend() return the name that the script asked for. Scripts and torch decide by that name."""

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
    # DDP adds these for the name "gloo": two environment variables, and the number of threads that carry
    # operations. braid has at most two: the progress thread and, with TCP, the network thread.
    settings = ("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT")
    return {**{name.lower(): os.environ.get(name, "N/A") for name in settings}, "gloo_num_threads": 2}


def wrap_logging_data(original: Callable[..., Any]) -> Callable[..., Any]:
    """Put the script's name into DistributedDataParallel's logging data, which call every plug-in "custom"."""

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
