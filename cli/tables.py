"""The one look of tables on a terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def new_table(*headers: str, left: tuple[str, ...] = ()) -> "Table":
    """A table without lines at the sides; columns are numbers, but for those without a header or named in `left`."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    for header in headers:
        table.add_column(header, justify="left" if header in left or not header else "right")
    return table
