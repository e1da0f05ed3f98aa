# SPDX-License-Identifier: Apache-2.0
"""``braid info``: what is installed, what this machine offers, and why something is not available."""

import dataclasses
import json
import os
import platform
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from braid import _core, _machine
from braid._cpu_quota import cpu_quota
from braid._torch import paths
from braid._torch.adapter import (
    AdapterError,
    Compiler,
    PackageFiles,
    TorchInstall,
    adapter_place,
    find_adapter,
    load_adapter,
)

_ARRAYS = "arrays on a GPU"
_WIDE = 1000  # columns in a file or a pipe, where a path must not be cut


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Say what is installed and what this machine offers."""
    facts = collect()
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        _print(facts)


def collect() -> dict[str, Any]:
    """Gather what ``braid info --json`` prints."""
    instruction_set = getattr(_core, "reduce_instruction_set", None)
    torch = _torch()
    return {
        "version": _core.version,
        "build": {"type": _core.build_type, "compiler": _core.compiler},
        "instruction_set": instruction_set() if instruction_set else None,
        "torch": torch,
        "devices": [dataclasses.asdict(path) for path in _devices(torch)],
        "python": platform.python_version(),
        "machine": {
            "cpu": _machine.cpu_model(),
            "features": _machine.cpu_features(),
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "cpu_quota": cpu_quota(),
            "memory_bytes": _machine.memory_bytes(),
            "kernel": platform.release(),
        },
        "capabilities": [dataclasses.asdict(capability) for capability in _machine.capabilities()],
    }


def _torch() -> dict[str, Any]:
    compiler = Compiler.find()
    facts: dict[str, Any] = {"version": None, "compiler": str(compiler) if compiler else None}
    try:
        torch = TorchInstall.current()
        facts["version"] = torch.version
        package = PackageFiles.installed()
        ready = find_adapter(torch, package, compiler)
        facts["adapter"] = str(ready or adapter_place(torch, package, compiler))
        facts["adapter_built"] = ready is not None
    except AdapterError as error:
        facts["problem"] = str(error)
    return facts


def _devices(torch: dict[str, Any]) -> list[paths.DevicePath]:
    """Return the way of each accelerator's tensors, and of arrays on a GPU."""
    return [*_tensors(torch), _arrays()]


def _tensors(torch: dict[str, Any]) -> list[paths.DevicePath]:
    if "problem" in torch:
        return []
    try:
        return paths.device_paths(load_adapter() if torch["adapter_built"] else None)
    except (ImportError, OSError, AdapterError) as error:
        return [paths.DevicePath("cuda", paths.NONE, f"torch does not load: {error}")]


def _arrays() -> paths.DevicePath:
    try:
        count = _core.cuda_devices()
    except RuntimeError as error:
        return paths.DevicePath(_ARRAYS, paths.NONE, str(error))
    return paths.DevicePath(
        _ARRAYS, paths.HOST, f"{count} CUDA devices; a call of braid.Communicator returns when its copies are done"
    )


def _print(facts: dict[str, Any]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    build, torch, machine = facts["build"], facts["torch"], facts["machine"]
    memory = machine["memory_bytes"]
    table.add_row("braid", f"{facts['version']} ({build['type']}, {escape(build['compiler'])})")
    table.add_row("python", facts["python"])
    table.add_row("torch", torch["version"] or "not usable")
    table.add_row("adapter", _adapter_line(torch))
    table.add_row("compiler", escape(torch["compiler"] or "none found"))
    quota = "" if machine["cpu_quota"] is None else f", a quota of {machine['cpu_quota']:g} cores"
    table.add_row("processor", f"{machine['cpu']}, {machine['usable_cores']} of {machine['cores']} cores{quota}")
    table.add_row("features", " ".join(machine["features"]) or "none that matter here")
    if facts["instruction_set"]:
        table.add_row("sums run on", facts["instruction_set"])
    available = f", {memory['available'] / 2**30:.1f} GiB available" if "available" in memory else ""
    table.add_row("memory", f"{memory['total'] / 2**30:.1f} GiB{available}")
    for row in facts["devices"]:
        color = "yellow" if row["path"] == paths.NONE else "green"
        name = row["device"] if row["device"] == _ARRAYS else f"{row['device']} tensors"
        table.add_row(name, f"[{color}]{row['path']}[/]: {escape(row['why'])}")
    for capability in facts["capabilities"]:
        mark = "[green]yes[/]" if capability["available"] else "[yellow]no[/]"
        table.add_row(capability["name"], f"{mark}: {escape(capability['detail'])}")
    is_read_by_people = Console().is_terminal
    Console(highlight=False, width=None if is_read_by_people else _WIDE).print(table)


def _adapter_line(torch: dict[str, Any]) -> str:
    if "problem" in torch:
        return f"[yellow]{escape(torch['problem'])}[/]"
    if torch["adapter_built"]:
        return f"ready: {escape(torch['adapter'])}"
    if torch["compiler"] is None:
        return "[yellow]not built, and there is no C++ compiler to build it with[/]"
    return f"not built; the first group, or `braid build`, puts it into {escape(torch['adapter'])}"
