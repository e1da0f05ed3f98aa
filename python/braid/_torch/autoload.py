# SPDX-License-Identifier: Apache-2.0
"""Registers the backend's name with torch. Runs at the end of every ``import torch``, so it does little."""

import os
from typing import TYPE_CHECKING, Any

from braid._torch import coalescing, devices
from braid._torch.backend_name import BACKEND_NAME

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, _DistributedBackendOptions


def register() -> None:
    """Register the name "braid" with torch.distributed, and apply BRAID_TAKEOVER, BRAID_COMPRESSION,
    BRAID_STRATEGY and BRAID_BALANCE.

    torch calls it through the entry point group ``torch.backends``; ``import braid`` calls it, too. A second call
    does nothing. It never raises, because ``import torch`` must not fail. BRAID_DEBUG shows the error.
    """
    try:
        _register()
    except Exception as error:
        if os.environ.get("BRAID_DEBUG", "").strip() not in ("", "0"):
            from braid._notices import tell

            tell(f"the backend was not registered: {type(error).__name__}: {error}")


def _register() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    if BACKEND_NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(BACKEND_NAME, _create, extended_api=True, devices=devices.at_first())
    devices.offer()
    coalescing.install()
    # A misspelt BRAID_TAKEOVER makes no group that could tell of it. Processes without a rank say nothing.
    is_first = "0" in (os.environ.get("RANK"), os.environ.get("LOCAL_RANK"))
    if is_first and any(name.startswith("BRAID_") for name in os.environ):
        from braid._settings import tell_unknown_names

        tell_unknown_names()
    if os.environ.get("BRAID_STARTED_BY") == "braid run":
        from braid._torch import interrupted

        interrupted.hide()
    if os.environ.get("BRAID_TAKEOVER", "").strip():
        from braid._torch import takeover

        takeover.install(os.environ["BRAID_TAKEOVER"])
    if os.environ.get("BRAID_COMPRESSION", "").strip():
        from braid.compression import automatic

        automatic.install(os.environ["BRAID_COMPRESSION"])
    if os.environ.get("BRAID_STRATEGY", "").strip():
        from braid._unedited.install import install

        install(os.environ["BRAID_STRATEGY"].strip())
    elif os.environ.get("BRAID_BALANCE", "").strip() not in ("", "0"):
        from braid.data import automatic as balance

        balance.install()


def _create(options: "_DistributedBackendOptions", pg_options: Any = None) -> "Backend":
    from braid._torch import backend

    return backend.create_backend(options, pg_options)
