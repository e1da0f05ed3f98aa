# SPDX-License-Identifier: Apache-2.0
"""Loads the adapter into this process."""

import importlib.machinery
import importlib.util
import sys
import threading
from types import ModuleType

from braid._torch.adapter.build import ensure_adapter
from braid._torch.adapter.errors import AdapterError

_MODULE = "braid._c10d"
_lock = threading.Lock()


def load_adapter() -> ModuleType:
    """Return the module ``braid._c10d``. The first call finds or builds it.

    Raises:
        AdapterError: it cannot be found or built, or the dynamic linker refused it.
    """
    with _lock:
        if _MODULE in sys.modules:
            return sys.modules[_MODULE]
        path = ensure_adapter()
        # This loads libbraid.so, by the name that the adapter asks for.
        import braid._core  # noqa: F401

        loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(path))
        spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
        if spec is None:
            raise AdapterError(f"the torch adapter {path} is no extension module: run `braid build --force`")
        try:
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except ImportError as error:
            raise AdapterError(
                f"the torch adapter {path} cannot be loaded, run `braid build --force`: {error}"
            ) from error
        sys.modules[_MODULE] = module
        return module
