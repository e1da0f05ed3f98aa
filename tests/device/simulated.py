# SPDX-License-Identifier: Apache-2.0
"""Builds and loads the simulated device, ``sim`` for torch. A process has room for one such name."""

import atexit
import importlib.machinery
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from braid._torch.adapter import Compiler, PackageFiles, TorchInstall, build_adapter, find_adapter

SIMULATOR = Path(__file__).parents[1] / "simulator"
NAME = "sim"


@dataclass(frozen=True)
class _Files(PackageFiles):
    """The simulator, in the place of the adapter's sources."""

    def source_files(self) -> list[Path]:
        return sorted(path for part in ("core", "torch_device") for path in (self.sources / part).glob("*.cc"))


def build() -> Path:
    """Return the compiled extension. The adapter's builder makes it, and keeps it in the same cache."""
    torch, compiler = TorchInstall.current(), Compiler.find()
    package = _Files(SIMULATOR, SIMULATOR, PackageFiles.installed().library, SIMULATOR / "none")
    return find_adapter(torch, package, compiler) or build_adapter(torch, package, compiler)


def load() -> Any:
    """Load the device into this process and return ``torch.sim``. A second call does nothing."""
    import torch

    name = "braid_tests._c10d"
    if name in sys.modules:
        return getattr(torch, NAME)
    path = str(build())
    spec = importlib.util.spec_from_file_location(
        name, path, loader=importlib.machinery.ExtensionFileLoader(name, path)
    )
    assert spec is not None
    assert spec.loader is not None
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    sys.modules[name] = extension
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _device_module(extension))
    atexit.register(extension.synchronize)
    from braid._torch import devices

    devices.offer()
    return getattr(torch, NAME)


def offer_flags() -> None:
    """Tell the adapter that streams of the device can wait for flags."""
    from braid._torch.adapter import load_adapter

    extension = sys.modules["braid_tests._c10d"]
    load_adapter().offer_flags(NAME, extension.flag_wait(), extension.flag_write())


def _device_module(extension: ModuleType) -> ModuleType:
    """Return what torch expects of ``torch.<device>``."""
    import torch

    class Stream(torch.Stream):
        def __new__(cls, device: Any = NAME, priority: int = 0, **kwargs: Any) -> Any:
            return super().__new__(cls, **kwargs) if kwargs else super().__new__(cls, device, priority=priority)

    class Event(torch.Event):
        def __new__(cls, enable_timing: bool = False, **kwargs: Any) -> Any:
            return super().__new__(cls, NAME)

    module = ModuleType(f"torch.{NAME}")
    for name in (
        "set_delays", "set_rates", "hold", "hold_down", "let_down", "lock_driver", "take_trace", "copies_done",
        "set_capturing", "synchronize", "device_bytes", "pinned_bytes", "take_peak_pinned_bytes",
    ):  # fmt: skip
        setattr(module, name, getattr(extension, name))
    found: dict[str, Any] = {
        "Stream": Stream,
        "Event": Event,
        "synchronize": lambda device=None: extension.synchronize(),
        "current_stream": lambda device=None: torch.accelerator.current_stream(),
        "set_stream": torch.accelerator.set_stream,
        "stream": lambda stream: stream,  # a torch.Stream is its own context
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device_count": lambda: 1,
        # Each process has a device of its own, unless a test says otherwise.
        "get_device_properties": lambda device=None: SimpleNamespace(
            name=NAME, uuid=os.environ.get("SIM_UUID") or f"{NAME}-{os.getpid()}"
        ),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
        "memory_allocated": lambda device=None: extension.device_bytes(),
    }
    vars(module).update(found)
    return module
