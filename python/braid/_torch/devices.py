# SPDX-License-Identifier: Apache-2.0
"""The types of devices that the plain name "braid" stands for: "cpu", "cuda", and others that this torch has."""

from braid._torch.backend_name import BACKEND_NAME

ALWAYS = ("cpu", "cuda")


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
    """Return the devices of the name "braid"."""
    from torch.distributed import Backend

    return tuple(Backend.backend_capability.get(BACKEND_NAME, ALWAYS))
