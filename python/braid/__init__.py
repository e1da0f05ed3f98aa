# SPDX-License-Identifier: Apache-2.0
"""braid: a communication backend for torch.distributed.

After ``import torch`` the backend is there: ``torch.distributed.init_process_group("braid")``.

Every ``import torch`` imports this package (its entry point lives here), so this file imports nothing of
ours: public names are fetched from their modules when they are first asked for.
"""

import importlib
import os
import sys
from typing import Any

# Public name -> the module that has it, and its name there.
_EXPORTS: dict[str, tuple[str, str]] = {
    "Bucket": ("braid._bucket", "Bucket"),
    "Codec": ("braid._codec", "Codec"),
    "Communicator": ("braid._array.communicator", "Communicator"),
    "CommunicatorError": ("braid._errors", "CommunicatorError"),
    "CommunicatorTimeoutError": ("braid._errors", "CommunicatorTimeoutError"),
    "CompressionPolicy": ("braid.compression", "CompressionPolicy"),
    "Parameters": ("braid._array.parameters", "Parameters"),
    "PeerLostError": ("braid._errors", "PeerLostError"),
    "Request": ("braid._array.request", "Request"),
    "Rule": ("braid.compression", "Rule"),
    "Store": ("braid._array.rendezvous", "Store"),
    "__version__": ("braid._core", "version"),
    "cuda": ("braid.cuda", ""),  # the module itself
    "data": ("braid.data", ""),
    "flight_record": ("braid._torch.stats", "flight_record"),
    "hooks": ("braid.hooks", ""),
    "lossy_all_reduce": ("braid._torch.lossy", "lossy_all_reduce"),
    "lossy_reduce_scatter": ("braid._torch.lossy", "lossy_reduce_scatter"),
    "predict_all_reduce": ("braid._torch.lossy", "predict_all_reduce"),
    "stats": ("braid._torch.stats", "stats"),
    "strategies": ("braid.strategies", ""),
    "take_over": ("braid._unedited.by_call", "take_over"),
    "wires": ("braid._torch.group_backend", "wires"),
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'braid' has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    try:
        value: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        from braid._errors import needs_torch

        raise needs_torch(f"braid.{name}", error) from None
    value = getattr(value, attribute) if attribute else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


# Normally torch has registered, or will register, the backend itself while it is imported. This covers the
# case that torch was told not to.
if "torch" in sys.modules or os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
    from braid._torch.autoload import register

    register()
