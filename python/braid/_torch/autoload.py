# SPDX-License-Identifier: Apache-2.0
"""Registers the backend's name with torch. Runs at the end of every ``import torch``: it does no more."""

import os
from typing import TYPE_CHECKING, Any

from braid._torch.backend_name import BACKEND_NAME

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, _DistributedBackendOptions


def register() -> None:
    """Register the name "braid" with torch.distributed, and do what BRAID_TAKEOVER and BRAID_COMPRESSION ask for.

    Called by torch through the entry point group ``torch.backends``, and by ``import braid``. Calling it
    again does nothing. It never raises: whatever goes wrong, ``import torch`` must go on. BRAID_DEBUG shows
    what it was.
    """
    try:
        _register()
    except Exception as error:
        if os.environ.get("BRAID_DEBUG"):
            from braid._notices import tell

            tell(f"the backend was not registered: {type(error).__name__}: {error}")


def _register() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    if BACKEND_NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(BACKEND_NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    if os.environ.get("BRAID_TAKEOVER", "").strip():
        from braid._torch import takeover

        takeover.install(os.environ["BRAID_TAKEOVER"])
    if os.environ.get("BRAID_COMPRESSION", "").strip():
        from braid.compression import automatic

        automatic.install(os.environ["BRAID_COMPRESSION"])


def _create(options: "_DistributedBackendOptions", pg_options: Any = None) -> "Backend":
    from braid._torch import backend

    return backend.create_backend(options, pg_options)
