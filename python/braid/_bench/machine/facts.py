# SPDX-License-Identifier: Apache-2.0
"""The machine and the software that a run was made with, and what disturbed it."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from braid import _core, _machine
from braid._cpu_quota import cpu_quota

_CPU = Path("/sys/devices/system/cpu/cpu0")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_STEAL = 7  # of the numbers in /proc/stat


def facts() -> dict[str, Any]:
    """Gather what a reader needs to judge the numbers, or to measure them again. Plain data, None for unknown.

    Returns:
        ``cpu``, ``features``, ``cores``, ``usable_cores``, ``cpu_quota`` (cores that control groups allow),
        ``hypervisor`` (whether it is a virtual machine), ``caches`` (bytes of L1d, L2, L3 as the first core has
        them, where told), ``governor``, ``memory_total_bytes``, ``kernel``, ``load_before`` (of one minute),
        ``versions`` (of what is installed of braid, python, torch, numpy, mpi4py), ``build`` (type, compiler and
        instruction set of braid's core) and ``commit`` (that braid was built from, in a checkout; with
        "-dirty" when files had changed).
    """
    return {
        "cpu": _machine.cpu_model(),
        "features": _machine.cpu_features(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "cpu_quota": cpu_quota(),
        "hypervisor": _machine.is_virtual(),
        "caches": _caches(),
        "governor": _text(_CPU / "cpufreq/scaling_governor"),
        "memory_total_bytes": _machine.memory_bytes()["total"],
        "kernel": platform.release(),
        "load_before": _load(),
        "versions": _versions(),
        "build": {
            "type": _core.build_type,
            "compiler": _core.compiler,
            "instruction_set": _core.reduce_instruction_set(),
        },
        "commit": _core.commit or None,
    }


class Disturbance:
    """What else went on on this machine since this was made."""

    def __init__(self) -> None:
        """Take the first look."""
        self._load = _load()
        self._ticks = _ticks()

    def so_far(self) -> dict[str, float | None]:
        """Return ``steal_share``, ``load_before`` and ``load_after``, each None where the kernel does not tell.

        The steal share is the part of all cores' time in which another guest of the host had them; the loads are
        the averages of a minute before either moment, the later one with this run's own processes in it.
        """
        share = None
        passed = [after - before for before, after in zip(self._ticks, _ticks(), strict=False)]
        if len(passed) > _STEAL and sum(passed) > 0:
            share = passed[_STEAL] / sum(passed)
        return {"steal_share": share, "load_before": self._load, "load_after": _load()}


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _ticks() -> list[int]:
    """Time of all cores by what they did; without that of guests, which is part of "user" and "nice"."""
    words = (_text(Path("/proc/stat")) or "").split("\n", 1)[0].split()
    return [int(word) for word in words[1 : _STEAL + 2]]


def _caches() -> dict[str, int]:
    found = {}
    for index in sorted(_CPU.glob("cache/index*")):
        level, kind, size = (_text(index / name) for name in ("level", "type", "size"))
        if level and size and kind in ("Data", "Unified"):
            name = f"L{level}d" if kind == "Data" else f"L{level}"
            digits = size.rstrip("KMG")
            found[name] = int(digits) * _UNITS.get(size[len(digits) :], 1)
    return found


def _versions() -> dict[str, str]:
    versions = {"braid": _core.version, "python": platform.python_version()}
    for name in ("torch", "numpy", "mpi4py"):
        try:
            versions[name] = importlib.metadata.version(name)  # to import torch would take seconds
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
