# SPDX-License-Identifier: Apache-2.0
"""How a sub-command says that it was called wrongly."""


class CommandError(Exception):
    """Bad input: printed as one line, without a traceback."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        """Keep the one line and the exit code that goes with it."""
        super().__init__(message)
        self.exit_code = exit_code
