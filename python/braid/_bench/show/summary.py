# SPDX-License-Identifier: Apache-2.0
"""What was measured, and on which machine, in a line or two."""

from typing import Any

from braid._bench.results import REFERENCE, Report

# Two reports that differ in one of these are about different things.
SUBJECT = ("ranks", "dtype", "op", "device")


def subject(report: Report) -> list[str]:
    """List what was measured, the least that one has to know."""
    settings = report.settings
    words = [str(settings[name]) for name in ("dtype", "op", "device") if settings.get(name)]
    return [report.collective, f"{settings.get('ranks', '?')} ranks", *words]


def manner(report: Report) -> list[str]:
    """List how it was measured: every other setting in a few words."""
    parts = []
    for name, value in report.settings.items():
        if value in (None, ""):
            continue
        if name == "in_place":
            parts.append("in place" if value else "out of place")
        elif name == "cold":
            parts.append("cold caches" if value else "hot caches")
        elif name == "busy":
            parts.append(f"beside {value} busy process{'es' if value > 1 else ''}")
        elif name == "servers":
            parts.append(f"{value} server{'s' if value > 1 else ''} for {REFERENCE}")
        elif name not in SUBJECT:
            parts.append(f"{name} {value}")
    return parts


def hardware(machine: dict[str, Any]) -> list[str]:
    """List what is known of the processor and the memory."""
    parts = [str(machine["cpu"])] if machine.get("cpu") else []
    cores, usable = machine.get("cores"), machine.get("usable_cores")
    if cores is not None or usable is not None:
        parts.append(f"{usable} of {cores} cores" if None not in (cores, usable) else f"{usable or cores} cores")
    if machine.get("cpu_quota") is not None:
        parts.append(f"a quota of {machine['cpu_quota']:g} cores")
    if (total := machine.get("memory_total_bytes")) is not None:
        parts.append(f"{total / 2**30:.1f} GiB")
    for what, rate in (("copies", machine.get("copy_gb_s")), ("adds", machine.get("add_gb_s"))):
        if rate is not None:
            parts.append(f"{what} {rate:.1f} GB/s")
    if (load := machine.get("load_before")) is not None:
        loads = load if isinstance(load, list | tuple) else [load]
        parts.append(f"load {' '.join(f'{value:.2f}' for value in loads)}")
    return parts


def software(machine: dict[str, Any]) -> list[str]:
    """List what is known of the programs."""
    parts = [f"{name} {version}" for name, version in machine.get("versions", {}).items()]
    if commit := machine.get("commit"):
        parts.append(f"commit {commit[:10]}{'-dirty' if commit.endswith('-dirty') else ''}")
    if kernel := machine.get("kernel"):
        parts.append(f"kernel {kernel}")
    return parts
