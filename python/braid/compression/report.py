# SPDX-License-Identifier: Apache-2.0
"""What a hook reports: a list of rows that prints as a table."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One parameter: the codec of its gradient, and the reason.

    Attributes:
        parameter: its name.
        codec: "exact" or a codec.
        reason: the rule, the property of the parameter, or the prediction that decided.
        exact_bytes: bytes of its gradient.
        sent_bytes: bytes of its gradient in one encoded message, approximately.
        gain_s: seconds of a step that the codec is predicted to save against exact; negative where it costs time.
            0 for PowerSGD that a policy names: AutoState.predict() has its gain.
        is_predicted: the codec was picked by "auto".
    """

    parameter: str
    codec: str
    reason: str
    exact_bytes: int
    sent_bytes: int
    gain_s: float
    is_predicted: bool = False


class Report(list[Row]):
    """Rows, one per parameter. ``print()`` shows a table, neighbours with the same codec and reason in one line.

    Example:
        >>> print(Report([Row("w", "int8", "the default", 4000, 1016, 0.002)]))
        parameters  codec  bytes  sent  saves a step  reason
        w           int8    4000  1016       2.00 ms  the default
        in all              4000  1016       2.00 ms  against exact, predicted
    """

    def __str__(self) -> str:
        """Return the table."""
        if not self:
            return "no parameter was seen yet: the hook decides in the first step after the warm-up"
        lines = [("parameters", "codec", "bytes", "sent", "saves a step", "reason")]
        for (codec, reason), same in itertools.groupby(self, key=lambda row: (row.codec, row.reason)):
            rows = list(same)
            more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
            lines.append((rows[0].parameter + more, codec, *_sums(rows), reason))
        lines.append(("in all", "", *_sums(self), "against exact, predicted"))
        return table(lines, range(2, 5))


def table(lines: Sequence[Sequence[Any]], numbers: range) -> str:
    """Return lines of cells in columns, two spaces apart; the columns of `numbers` are aligned to the right."""
    cells = [[str(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def _sums(rows: list[Row]) -> tuple[str, str, str]:
    gain_ms = 1e3 * sum(row.gain_s for row in rows)
    return (
        str(sum(row.exact_bytes for row in rows)),
        str(sum(row.sent_bytes for row in rows)),
        f"{gain_ms:.2f} ms" if gain_ms else "",
    )
