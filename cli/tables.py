"""The one look of tables on a terminal."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

LONG_WORD: Final = 32
"""Columns that a word of text may ask for."""


class FittingTable(Table):
    """A table that leaves columns out, and says which, before it breaks numbers over lines.

    First those without a header that are never broken (drawings), from the right; then those named in `spare`, in that
    order, each time the last of that name. Where even that does not suffice its lines are longer than the terminal.
    Headers that begin with no letter are legends of drawings, and not missed.
    """

    spare: tuple[str, ...] = ("over time",)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table as wide as there is room for."""
        kept, left_out = list(self.columns), []
        for column in self._spared():
            if self._width(console, options, kept) <= options.max_width:
                break
            kept.remove(column)
            header = str(column.header).replace("\n", " ").strip()
            left_out += [header] if header[:1].isalpha() else []
        needed = self._width(console, options, kept)
        if needed > options.max_width:  # a line too long can be read, a number cut off cannot
            options = options.update(max_width=needed)
        yield from Table.__rich_console__(self._of(kept), console, options)
        if left_out:
            yield Text(f"no room for {', '.join(left_out)}: see it on a wider terminal, or in --json", style="dim")

    def _spared(self) -> Iterator[Column]:
        yield from (column for column in reversed(self.columns) if column.no_wrap and not column.header)
        for name in self.spare:
            yield from [column for column in self.columns if column.header == name][-1:]

    def _width(self, console: Console, options: ConsoleOptions, columns: list[Column]) -> int:
        """Of what is not to be broken the whole, of text its longest word, or LONG_WORD: such a word is folded."""
        wide = options.update(max_width=10_000)
        asked = [(column, Measurement.get(console, wide, self._of([column]))) for column in columns]
        widths = (width.maximum if column.no_wrap else min(width.minimum, LONG_WORD) for column, width in asked)
        return sum(widths) + 2 * (len(columns) - 1)  # a blank of padding, and one of the box

    def _of(self, columns: list[Column]) -> Table:
        table: Table = copy(self)
        table.__class__ = Table  # a plain one, or it would fit itself again
        table.columns = [replace(column, _index=index) for index, column in enumerate(columns)]
        return table


def new_table(*headers: str, left: tuple[str, ...] = (), spare: tuple[str, ...] = ("over time",)) -> FittingTable:
    """A table without lines at the sides; columns are numbers, but for those without a header or named in `left`.

    spare: headers of columns to leave out where there is no room, first the first.
    """
    table = FittingTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    table.spare = spare
    for header in headers:
        is_number = bool(header) and header not in left
        table.add_column(
            header, justify="right" if is_number else "left", no_wrap=is_number or not header, overflow="fold"
        )
    return table
