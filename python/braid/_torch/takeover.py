# SPDX-License-Identifier: Apache-2.0
"""Runs unchanged scripts on braid: wraps init_process_group and new_group to replace the backend name.

The script still sees the name that it asked for; see names.py.
"""

import difflib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from braid import _settings
from braid._torch import devices, names, same_strategy, start_line
from braid._torch.backend_name import BACKEND_NAME

_LAUNCHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
NO_NAME = "none"  # in BRAID_TAKEOVER it stands for calls without a backend name
_MARK = "_braid_takeover"


def parse_names(text: str) -> frozenset[str]:
    """Read a comma-separated list of backend names: "gloo,nccl,none"."""
    return frozenset(name for part in text.split(",") if (name := part.strip().lower()))


def translate(backend: str | None, taken: frozenset[str]) -> str | None:
    """Replace the names that are taken over, in a plain name, in None, or in "cpu:gloo,cuda:nccl".

    A device string that has only braid becomes the plain name. A group made from a device string has no default
    backend in torch, and DDP cannot use it.
    """
    if backend is None or backend.lower() == "undefined":
        return BACKEND_NAME if NO_NAME in taken else backend
    if ":" not in backend:
        return BACKEND_NAME if backend.strip().lower() in taken else backend
    parts = [part.split(":", 1) if ":" in part else [part, ""] for part in backend.lower().split(",")]
    parts = [[device.strip(), name.strip()] for device, name in parts]
    if not any(name in taken for _, name in parts):
        return backend
    parts = [[device, BACKEND_NAME if name in taken else name] for device, name in parts]
    if all(name == BACKEND_NAME and device in devices.offered() for device, name in parts):
        return BACKEND_NAME
    return ",".join(f"{device}:{name}" for device, name in parts)


def install(backends: str) -> None:
    """Wrap torch's functions in all modules of torch that have them. A second call does nothing.

    Args:
        backends: the backends to take over, comma separated, as in BRAID_TAKEOVER.
    """
    import torch.distributed.distributed_c10d as c10d
    from torch.nn.parallel import DistributedDataParallel

    taken = parse_names(backends) - {BACKEND_NAME}
    if not taken or hasattr(c10d.init_process_group, _MARK):
        return
    replace_everywhere(c10d.init_process_group, _wrap_init(c10d.init_process_group, taken))
    replace_everywhere(c10d.new_group, _wrap_new_group(c10d.new_group, taken))
    replace_everywhere(c10d.get_backend, names.wrap_get_backend(c10d.get_backend))
    replace_everywhere(c10d.init_process_group, same_strategy.wrap_init(c10d.init_process_group))
    told = DistributedDataParallel._get_ddp_logging_data
    DistributedDataParallel._get_ddp_logging_data = names.wrap_logging_data(told)


def replace_everywhere(original: Callable[..., Any], wrapper: Callable[..., Any]) -> None:
    """Replace a function in all modules of torch that have it.

    torch.distributed re-exports functions. Other modules, such as device_mesh, import them by name.
    """
    for name, module in list(sys.modules.items()):
        held = getattr(module, "__dict__", {})
        if name.startswith("torch.") and held.get(original.__name__) is original:
            setattr(module, original.__name__, wrapper)


def _wrap_init(original: Callable[..., Any], taken: frozenset[str]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        devices.offer()
        call = signature.bind(*args, **kwargs)
        asked = call.arguments.get("backend")
        _settings.refuse_wrong_values()
        check_name(asked)
        check_launcher(call.arguments)
        given = translate(asked, taken)
        if given == asked:
            result = original(*args, **kwargs)
            names.remember(_default_group(), BACKEND_NAME, is_default=True)
            return result
        call.arguments["backend"] = given
        if str(asked).lower() == "mpi" and "RANK" in os.environ and not call.arguments.get("store"):
            # torch ignores these with MPI, by its documentation, so scripts may pass any values.
            call.arguments.pop("rank", None)
            call.arguments.pop("world_size", None)
        name = _shown(asked)
        with names.asking(name), start_line.taking_over(None if name == BACKEND_NAME else asked):
            result = original(*call.args, **call.kwargs)
        names.remember(_default_group(), name, is_default=True)
        return result

    setattr(init_process_group, _MARK, True)
    return init_process_group


def _wrap_new_group(original: Callable[..., Any], taken: frozenset[str]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        asked = call.arguments.get("backend")
        name = names.inherited()
        if asked:  # a group without a name inherits the default group's, which was translated before
            call.arguments["backend"] = given = translate(asked, taken)
            name = BACKEND_NAME if given == asked else _shown(asked)
        with names.asking(name):
            group = original(*call.args, **call.kwargs)
        if hasattr(group, "group_name"):  # this rank is a member
            names.remember(group, name)
        return group

    setattr(new_group, _MARK, True)
    return new_group


def _shown(asked: str | None) -> str:
    named = asked is not None and asked.lower() != "undefined"
    return str(asked).lower() if named else BACKEND_NAME


def _default_group() -> Any:
    import torch.distributed as dist

    return dist.group.WORLD


def check_name(asked: Any) -> None:
    """Raise ValueError where a script asks for a backend that torch does not know, named almost like braid."""
    import torch.distributed as dist

    for part in str(asked or "").lower().split(","):
        name = part.rpartition(":")[2].strip()
        if name and name not in dist.Backend.backend_list and difflib.get_close_matches(name, [BACKEND_NAME]):
            raise ValueError(f'there is no backend "{name}"; did you mean "{BACKEND_NAME}"?')


def check_launcher(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError where init_process_group() needs the variables of a launcher, and none is set."""
    place = arguments.get("init_method") or "env://"
    if arguments.get("store") is not None or not str(place).startswith("env://"):
        return
    given = {"RANK": int(arguments.get("rank", -1)) >= 0, "WORLD_SIZE": int(arguments.get("world_size", -1)) >= 0}
    if not any(name in os.environ for name in _LAUNCHER) and not any(given.values()) and "?" not in str(place):
        raise ValueError(f"{', '.join(_LAUNCHER)} are not set: start the script with braid run or torchrun")
