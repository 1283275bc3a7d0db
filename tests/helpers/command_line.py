"""Command lines in the test's own process: what one run by the fixture `rankscope` leaves, and what one prints."""

import contextlib
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from rankscope.cli import main


class Ran(NamedTuple):
    """Status, standard output, standard error."""

    status: int
    out: str
    err: str


Command = Callable[..., Ran]


def printed(*arguments: str) -> str:
    """What a command printed; it must end well. For fixtures of a module too, which cannot have `capsys`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main.run(list(arguments)) == 0
    return out.getvalue()


def document(*arguments: str) -> dict[str, Any]:
    """What a command printed with --json; it must end well."""
    found: dict[str, Any] = json.loads(printed(*arguments, "--json"))
    return found
