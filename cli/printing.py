"""Where commands print to: standard output as plain text or JSON, as wide as the terminal (or COLUMNS)."""

import json
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH: Final = 120
"""Columns where the output is no terminal."""


def console(width: int | None = None) -> "Console":
    """Colours only on a terminal; nothing is read as markup, so what a job wrote is printed as it is.

    width: in columns, where lines are to be as long as they are (paths), for the terminal to wrap.
    """
    from rich.console import Console

    return Console(
        width=width or shutil.get_terminal_size((WIDTH, 24)).columns, markup=False, highlight=False, emoji=False
    )


def drawn_lines(drawing: "RenderableType", screen: "Console", indent: int = 0) -> list[str]:
    """What rich draws, without the blanks that it leaves at the ends of lines; lines too long are not cut off.

    indent: blanks before each line (rich's own Padding cuts lines off).
    """
    with screen.capture() as drawn:
        screen.print(drawing, crop=False, width=max(1, screen.width - indent))
    return [(" " * indent + line).rstrip() for line in drawn.get().splitlines()]


def print_drawn(drawing: "RenderableType") -> None:
    """Print what rich draws."""
    print("\n".join(drawn_lines(drawing, console())))


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on standard output; NaN and infinities, which JSON cannot hold, are null."""
    print(json.dumps(_finite(document), indent=2, ensure_ascii=False))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
