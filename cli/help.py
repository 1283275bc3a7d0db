"""The text of `--help`, from a command's docstring and signature."""

import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from .command_line import Parameter

MAX_COLUMNS: Final = 80
_MAX_LEFT: Final = 30
"""Columns of the names of options; longer ones stand on a line of their own."""
_ITEM: Final = re.compile(r"[\w-]+: ")
_HELP: Final = ("-h, --help", "Show this message and exit.")


def overview(about: str, commands: Iterable[tuple[str, Callable[..., Any]]]) -> str:
    """The help of the program. commands: in the order in which they are listed."""
    told = [(name, _first_sentence(command)) for name, command in commands]
    return _page("rankscope [OPTIONS] COMMAND [ARGS]...", about, {
        "Options": _columns([("--version", "Print the version."), _HELP]), "Commands": _columns(told, is_short=True),
    })  # fmt: skip


def command_help(name: str, command: Callable[..., Any], expected: Sequence[Parameter]) -> str:
    """The help of one command."""
    arguments = [item for item in expected if not item.names]
    usage = " ".join([f"rankscope {name} [OPTIONS]", *map(_usage, arguments)])
    return _page(usage, inspect.getdoc(command) or "", {
        "Arguments": _columns([(item.label, _told(item)) for item in arguments]),
        "Options": _columns([*((_names(item), _told(item)) for item in expected if item.names), _HELP]),
    })  # fmt: skip


def _page(usage: str, about: str, sections: dict[str, list[str]]) -> str:
    lines = [f"Usage: {usage}", *_paragraphs(about)]
    for title, body in sections.items():
        if body:
            lines += ["", f"{title}:", *body]
    return "\n".join(lines)


def _width() -> int:
    return min(MAX_COLUMNS, shutil.get_terminal_size((MAX_COLUMNS, 24)).columns) - 2


def _paragraphs(about: str) -> list[str]:
    """Refilled; a line that begins an item ("kineto: ...") stays the beginning of a line."""
    lines: list[str] = []
    for paragraph in about.split("\n\n"):
        pieces: list[str] = []
        for line in paragraph.splitlines():
            if pieces and not _ITEM.match(line):
                pieces[-1] += " " + line.strip()
            else:
                pieces.append(line.strip())
        lines += ["", *(part for piece in pieces for part in _filled(piece, "  "))]
    return lines


def _filled(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _width(), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _columns(pairs: Sequence[tuple[str, str]], is_short: bool = False) -> list[str]:
    """Names and what they mean, side by side. is_short: one line each, cut where it is too long."""
    width = max((len(name) for name, _ in pairs if len(name) <= _MAX_LEFT), default=0) + 2
    lines = []
    for name, text in pairs:
        if is_short:
            lines.append(f"  {name:<{width}}" + textwrap.shorten(text, _width() - width - 2, placeholder="..."))
            continue
        filled = _filled(text, " " * (width + 2)) or [""]
        if len(name) > _MAX_LEFT:
            lines += [f"  {name}", *filled]
        else:
            lines += [f"  {name:<{width}}" + filled[0].lstrip(), *filled[1:]]
    return lines


def _first_sentence(command: Callable[..., Any]) -> str:
    return re.split(r"(?<=\.)\s", (inspect.getdoc(command) or "").partition("\n\n")[0].replace("\n", " "))[0]


def _usage(item: Parameter) -> str:
    return item.label + ("..." if item.is_list and not item.label.endswith("...") else "")


def _names(item: Parameter) -> str:
    value = "" if item.is_switch else f" {item.told.metavar or getattr(item.kind, '__name__', 'value').upper()}"
    return ", ".join(item.names) + value


def _told(item: Parameter) -> str:
    variable = getattr(item.told, "envvar", "")
    notes = [f"env: {variable}"] if variable else []
    if item.is_required:
        notes.append("required")
    elif item.default not in ("", None, False, []):
        notes.append(f"default: {item.default}")
    return item.told.help + (f"  [{'; '.join(notes)}]" if notes else "")
