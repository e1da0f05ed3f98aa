# SPDX-License-Identifier: Apache-2.0
"""The torch adapter ``_c10d``: found ready-made, found in the cache, or compiled against the installed torch.

torch changes the layout of its C++ classes with every minor release, so a wheel built once cannot fit all of
them. Everything that does not see torch lives in ``libbraid``, built with the wheel; what is left is a few
source files, compiled here at first use or ahead of time by ``braid build``.
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
