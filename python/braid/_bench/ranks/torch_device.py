# SPDX-License-Identifier: Apache-2.0
"""The device of a torch rank's tensors: host memory, a GPU, or the device of a plug-in."""

import importlib
from typing import Any

import torch

CPU = "cpu"


def device_for(given: str, backend: str, rank: int, size: int) -> torch.device:
    """Return where this rank's tensors belong. GPUs are dealt out in turn; ranks may share one, but not with NCCL.

    Args:
        given: "cpu", "cuda", another device of torch, or NAME=MODULE:FUNCTION, where the function loads it.
        backend: of the group.
        rank: this process.
        size: how many there are.

    Raises:
        RuntimeError: the device is not there, or NCCL has too few GPUs.
    """
    name, _, loader = given.partition("=")
    if loader:
        module, function = loader.split(":")
        getattr(importlib.import_module(module), function)()
    if backend == "nccl":
        name = "cuda"
    if name == CPU:
        return torch.device(CPU)
    there = module_of(name)
    if there is None or not there.is_available():
        raise RuntimeError(f"torch {torch.__version__} finds no device {name} on this machine")
    count = there.device_count()
    if backend == "nccl" and count < size:
        raise RuntimeError(f"nccl needs a GPU for each of {size} ranks, and there are {count}")
    there.set_device(rank % count)
    return torch.device(name, rank % count)


def module_of(name: str) -> Any:
    """Return ``torch.<device>``, or None."""
    return getattr(torch, name, None)
