# SPDX-License-Identifier: Apache-2.0
"""A codec for parameters of a name and size."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from braid.compression import codecs


@dataclass(frozen=True)
class Rule:
    """Parameters of a name and size get a codec, whatever they are.

    Args:
        pattern: of names as named_parameters() has them; ``*``, ``?`` and ``[...]`` as in file names.
        codec: a codec, "exact", or "auto".
        at_least_bytes: the rule is for parameters of at least so many bytes.
        below_bytes: and of fewer than these; None for no limit.
    """

    pattern: str
    codec: str
    at_least_bytes: int = 0
    below_bytes: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for what makes no sense."""
        if not self.pattern:
            raise ValueError("a rule needs a pattern of names; * is for all")
        object.__setattr__(self, "codec", codecs.checked(self.codec))
        if self.at_least_bytes < 0 or (self.below_bytes is not None and self.below_bytes <= self.at_least_bytes):
            raise ValueError(
                f"rule {self.pattern!r}: no parameter has at least {self.at_least_bytes} bytes "
                f"and fewer than {self.below_bytes}"
            )

    def covers(self, name: str, size_bytes: int) -> bool:
        """Tell whether a parameter falls under this rule."""
        fits = self.at_least_bytes <= size_bytes and (self.below_bytes is None or size_bytes < self.below_bytes)
        return fits and fnmatchcase(name, self.pattern)
