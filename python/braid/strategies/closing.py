# SPDX-License-Identifier: Apache-2.0
"""What all strategies do when a ``with`` block ends, or when somebody copies them."""

from types import TracebackType
from typing import Any, Self


class Closing:
    """Closes at the end of ``with``, and refuses copies."""

    def close(self, *, wait: bool = True) -> None:
        """Leave; `wait=False`: at once. Each strategy says what it waits for."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Return the strategy."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Leave; after an error at once, so that the error is seen."""
        self.close(wait=kind is None)

    def __getstate__(self) -> dict[str, Any]:
        """Refuse a copy: it would push beside this one."""
        raise TypeError("a strategy cannot be copied or pickled: save its state_dict()")
