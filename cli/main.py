"""The console script `rankscope`: finds the command, runs it, and turns errors into one line and an exit status.

Status 0: fine; 1: a command with --fail-on-findings found something; 2: bad usage or unreadable input. A command's
module is imported only when it is asked for, and loads pyarrow, duckdb and rich only inside its function, so that help
is quick.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

from rankscope.schema.errors import RankscopeError

COMMANDS: Final = (
    "run", "doctor", "report", "checkpoints", "runs", "query", "schema", "manifest", "seal", "verify", "prune",
    "import", "time", "hang", "pipeline", "stragglers",
)  # fmt: skip
"""Each is a module of this package with a function `command`, whose docstring is the help."""
_MODULES: Final = {"import": "import_"}
"""Where a module cannot have the command's name."""
FOUND, BAD_INPUT, INTERRUPTED = 1, 2, 130

_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
"""click's, which typer carries with it or imports, depending on the version."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (without the program's name) and leave with its status."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """The exit status of one command line."""
    try:
        status = _app(arguments)(arguments or ["--help"], standalone_mode=False, prog_name="rankscope")
        sys.stdout.flush()
        return BAD_INPUT if not arguments else status if isinstance(status, int) else 0
    except RankscopeError as error:
        return _one_line(str(error))
    except _UsageError as error:
        return _usage(error, arguments)
    except typer.Exit as leaving:
        return leaving.exit_code
    except (BrokenPipeError, SystemExit):  # click and rich leave by SystemExit when the reader of a pipe has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED


def _app(arguments: list[str]) -> typer.Typer:
    app = typer.Typer(
        name="rankscope", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback()(_root)
    for name in [arguments[0]] if arguments and arguments[0] in COMMANDS else COMMANDS:
        app.command(name)(import_module(f".{_MODULES.get(name, name)}", __package__).command)
    return app


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        print(version("rankscope"))
        raise typer.Exit


def _root(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """What a distributed training did: which rank, which cause, since when, how sure."""


def _usage(error: Exception, arguments: list[str]) -> int:
    message = getattr(error, "format_message", lambda: str(error))()
    command = f" {arguments[0]}" if arguments and arguments[0] in COMMANDS else ""
    return _one_line(f"{message.rstrip('.')}; see rankscope{command} --help")


def _one_line(message: str) -> int:
    print("rankscope: " + " ".join(message.split()), file=sys.stderr)
    return BAD_INPUT
