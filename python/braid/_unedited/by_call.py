# SPDX-License-Identifier: Apache-2.0
"""``braid.take_over()``: a call at the top of a script or a notebook does what ``braid run`` does for a job."""

import os

from braid import _settings
from braid._settings import USUAL_TAKEOVER

_CALL = "braid.take_over"


def take_over(backends: str = USUAL_TAKEOVER, *, compression: str = "", strategy: str = "") -> None:
    """Let braid carry the groups that this process will make, whatever backend they ask for.

    It is for scripts and notebooks that can have one line more, and for frameworks with a closed list of backends.
    Call it first, on every rank, before a model or an optimizer is made. Child processes inherit it.
    ``braid run`` does the same without an edit.

    Args:
        backends: in whose place braid is used, comma separated: gloo, nccl, mpi, ...; "none" is for calls that
            name no backend.
        compression: a codec for gradients of DistributedDataParallel, as BRAID_COMPRESSION: "auto", "int8".
        strategy: trains modules in DistributedDataParallel, as BRAID_STRATEGY: "local:sync_every=10".

    Raises:
        RuntimeError: a process group exists already, or another takeover was asked for before.
        ValueError: a backend, codec or strategy is unknown.

    Example:
        >>> import braid  # doctest: +SKIP
        >>> braid.take_over(strategy="local:sync_every=10")  # doctest: +SKIP
        >>> trainer = transformers.Trainer(...)  # doctest: +SKIP
    """
    import torch.distributed as dist

    if dist.is_initialized():
        raise RuntimeError(f"{_CALL}(): a process group exists already; call it before init_process_group()")
    asked = {"BRAID_TAKEOVER": backends, "BRAID_COMPRESSION": compression, "BRAID_STRATEGY": strategy}
    asked = {name: text.strip() for name, text in asked.items() if text.strip()}
    if not asked.get("BRAID_TAKEOVER"):
        raise ValueError(f"{_CALL}(): name a backend, such as gloo")
    for name, text in asked.items():
        before = _settings.value_of(name)
        if name == "BRAID_TAKEOVER" and _names(text) <= _names(before):
            asked[name] = before  # the launcher's, which takes over more
        elif before and before != text:
            raise RuntimeError(f"{_CALL}(): {name} is {before!r} already, so it cannot become {text!r}")
    _check(asked)
    os.environ.update(asked)
    os.environ.setdefault(_settings.STARTED_BY, _CALL)
    from braid._torch import takeover

    takeover.install(asked["BRAID_TAKEOVER"])
    if asked.get("BRAID_COMPRESSION"):
        from braid.compression import automatic

        automatic.install(asked["BRAID_COMPRESSION"])
    if asked.get("BRAID_STRATEGY"):
        from braid._unedited.install import install

        install(asked["BRAID_STRATEGY"])


def _names(backends: str) -> set[str]:
    return {name.strip().lower() for name in backends.split(",")} - {""}


def _check(asked: dict[str, str]) -> None:
    if wrong := _settings.wrong_values({"BRAID_BALANCE": _settings.value_of("BRAID_BALANCE"), **asked}):
        raise ValueError(f"{_CALL}(): {wrong[0]}")
    if text := asked.get("BRAID_STRATEGY"):
        from braid.strategies.text import read

        read(text)
