# SPDX-License-Identifier: Apache-2.0
"""The types of devices that the plain name "braid" stands for: "cpu", "cuda", and others that this torch has."""

import ctypes

from braid._torch.backend_name import BACKEND_NAME

ALWAYS = ("cpu", "cuda")


def at_first() -> list[str]:
    """Return the devices that the name is registered for: without "cuda" where there cannot be such a device.

    torch takes every device of a name for one that is there, and asks it for its number. This runs at the end of
    ``import torch``, so CUDA must not begin: a process that is forked later could not use it any more.
    """
    import torch

    return list(ALWAYS) if torch.cuda._is_compiled() and (torch.version.hip or _has_driver()) else ["cpu"]


def _has_driver() -> bool:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def offer() -> None:
    """Add the accelerators that torch knows by now to the devices of the name "braid".

    A device of a plug-in gets its name when the plug-in is loaded, perhaps after braid. No device gets braid as
    its default backend: that place belongs to the plug-in's own. REQUIRES: the name is registered.
    """
    import torch
    from torch.distributed import Backend

    known = [torch._C._get_privateuse1_backend_name()]
    if torch.xpu._is_compiled():
        known.append("xpu")
    offered = Backend.backend_capability[BACKEND_NAME]
    offered += [name for name in known if name not in ("privateuseone", *offered)]


def offered() -> tuple[str, ...]:
    """Return the devices of the name "braid", and "cuda" also where there is none: scripts may name it anyway."""
    from torch.distributed import Backend

    return tuple(dict.fromkeys([*ALWAYS, *Backend.backend_capability.get(BACKEND_NAME, ())]))
