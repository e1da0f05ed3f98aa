# SPDX-License-Identifier: Apache-2.0
"""The error of the torch adapter."""


class AdapterError(ImportError):
    """The torch adapter cannot be found, built or loaded. The message says in one sentence what to do."""
