# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with the torch adapter."""


class AdapterError(ImportError):
    """The torch adapter cannot be had; the message is one sentence that says what to do about it."""
