# SPDX-License-Identifier: Apache-2.0
"""Lines of aligned columns: widths are known before the first row, so that rows can be printed as they come."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text


@dataclass(frozen=True)
class Column:
    """What stands above a column, in two lines, and how wide its texts usually are."""

    title: str
    unit: str
    width: int
    left: bool = False  # aligned to the left


@dataclass(frozen=True)
class Cell:
    """A text with a style of rich."""

    text: str
    style: str = ""


class Columns:
    """The places of columns. A text that is too long uses the blanks beside it before it moves its neighbours."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """Put the columns side by side, one blank apart."""
        self._columns = columns

    def titles(self) -> list[Text]:
        """Return the two lines above the first row."""
        return [
            self.line(Cell(column.title) for column in self._columns),
            self.line(Cell(column.unit) for column in self._columns),
        ]

    def line(self, cells: Iterable[Cell]) -> Text:
        """Return one row. There may be fewer cells than columns; an empty one leaves its place to the others."""
        text, start = Text(), 0
        for column, cell in zip(self._columns, cells, strict=False):
            if cell.text:
                wanted = start if column.left else start + column.width - len(cell.text)
                nearest = len(text) + 1 if len(text) else 0
                text.append(" " * (max(wanted, nearest) - len(text)))
                text.append(cell.text, cell.style)
            start += column.width + 1
        return text
