# SPDX-License-Identifier: Apache-2.0
"""The torch adapter ``_c10d``: ready-made in the wheel, found in the cache, or compiled for the installed torch.

torch changes the layout of its C++ classes with every minor release. So one wheel cannot fit all releases. Code
that does not need torch is in ``libbraid``, which is built with the wheel. The adapter is a few source files. They
are compiled here at first use, or earlier by ``braid build``.
"""

from braid._torch.adapter.build import adapter_place, build_adapter, ensure_adapter, export_adapter, find_adapter
from braid._torch.adapter.errors import AdapterError
from braid._torch.adapter.load import load_adapter
from braid._torch.adapter.toolchain import Compiler, PackageFiles, TorchInstall

__all__ = [
    "AdapterError",
    "Compiler",
    "PackageFiles",
    "TorchInstall",
    "adapter_place",
    "build_adapter",
    "ensure_adapter",
    "export_adapter",
    "find_adapter",
    "load_adapter",
]
