# SPDX-License-Identifier: Apache-2.0
"""Which way the tensors of each device go through braid, and why no better one."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from braid import _settings
from braid._torch import local_leg

NONE, HOST = "none", "through the host"


@dataclass(frozen=True)
class DevicePath:
    """The way of one type of device: NONE or HOST, and the reason."""

    device: str
    path: str
    why: str


def device_paths(adapter: ModuleType | None) -> list[DevicePath]:
    """Return one row per accelerator that torch knows, "cuda" first.

    Args:
        adapter: the loaded adapter, which can try a device; None where it is not built.

    Raises:
        ImportError, OSError: torch is not installed, or does not load.
    """
    import torch

    from braid._torch import devices

    rows = []
    for name in devices.offered():
        if name == "cpu":
            continue
        why = _why_absent(torch, name)
        if not why and adapter is None:
            why = "the adapter that would try it is not built; run `braid build`"
        if not why and adapter is not None:
            why = adapter.why_no_path(name)
        rows.append(DevicePath(name, NONE, why) if why else DevicePath(name, HOST, _how(adapter, name)))
    return rows


def _how(adapter: Any, name: str) -> str:
    """Return how wait() waits for tensors of a device, and what carries them within a host."""
    if adapter.has_stream_waits(name):
        waits = "wait() lets the stream wait (BRAID_STREAM_WAITS=1)"
    elif _settings.is_on("BRAID_STREAM_WAITS"):
        waits = "wait() blocks the CPU, because streams of this device cannot wait for numbers in memory"
    else:
        waits = "wait() blocks the CPU (BRAID_STREAM_WAITS is off)"
    return f"{waits}; {local_leg.in_words(name)}"


def _why_absent(torch: Any, name: str) -> str:
    if name == "cuda" and torch.version.cuda is None and torch.version.hip is None:
        return f"this torch, {torch.__version__}, is built without CUDA"
    module = getattr(torch, name, None)
    if module is None:
        return f"torch has no module torch.{name}: import the plug-in of that device"
    if not module.is_available():
        return f"torch finds no device of this type (torch.{name}.is_available() is false)"
    return ""
