"""The console script `rankscope`: finds the command, runs it, and turns errors into one line and an exit status.

Status 0: fine; 1: a command with --fail-on-findings found something, or a gate stays shut; 2: bad usage, unreadable
input, output that cannot be written. Who reads only the head of the output gets 0 as well, but 141, as from SIGPIPE,
where the status would have been a judgement: a gate must not open because nobody reads on. A command's
module is imported only when it is asked for, and loads pyarrow, duckdb and rich only inside its function, so that help
is quick.
"""

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from rankscope.schema.errors import RankscopeError

from .arguments import BadUsage
from .command_line import HELP, HelpWanted, parameters, parse

COMMANDS: Final = (
    "run", "doctor", "report", "checkpoints", "runs", "query", "schema", "manifest", "seal", "verify", "prune",
    "import", "time", "hang", "pipeline", "stragglers", "collectives", "clocks", "synth", "explain", "diff",
    "compare", "scale", "efficiency", "check", "flops", "export",
)  # fmt: skip
"""Each is a module of this package with a function `command`, whose docstring is the help."""
_MODULES: Final = {"import": "import_"}
"""Where a module cannot have the command's name."""
ABOUT: Final = "What a distributed training did: which rank, which cause, since when, how sure."
FOUND, BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (without the program's name) and leave with its status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a bar shows a question mark
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if given[:1] != ["run"]:  # numpy would start a thread a core for algebra that no command does; a job may need them
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(run(given))


def run(arguments: list[str]) -> int:
    """The exit status of one command line."""
    status = 0
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except RankscopeError as error:
        return _one_line(str(error))
    except BadUsage as error:
        return _usage(str(error), arguments)
    except (BrokenPipeError, SystemExit):  # rich leaves by SystemExit when the reader of a pipe has gone
        _drop_output()
        return status or (CLOSED_PIPE if _is_judgement(arguments) else 0)
    except OSError as error:
        _drop_output()
        is_gone = isinstance(error, FileNotFoundError)  # Arrow's have no file name, and an output that fails is there
        unnamed = "a file went away while it was read, ask again" if is_gone else "the output cannot be written"
        return _one_line(f"{error.filename or unnamed}: {error.strerror or error}")
    except KeyboardInterrupt:
        return INTERRUPTED


def _drop_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter's end does not fail on it."""
    with suppress(OSError):  # a test's standard output has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_judgement(arguments: list[str]) -> bool:
    return arguments[:1] == ["check"] or "--fail-on-findings" in arguments


def _run(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    if not arguments or first in HELP:
        print(_overview())
        return 0 if arguments else BAD_INPUT
    if first == "--version":
        from importlib.metadata import version

        print(version("rankscope"))
        return 0
    if first not in COMMANDS:
        raise BadUsage(f"No such option: {first}" if first.startswith("-") else f"No such command '{first}'")
    command = _command(first)
    expected = parameters(command)
    try:
        given = parse(arguments[1:], expected)
    except HelpWanted:
        from .help import command_help

        print(command_help(first, command, expected))
        return 0
    status = command(**given)
    return status if isinstance(status, int) else 0


def _command(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = import_module(f".{_MODULES.get(name, name)}", __package__).command
    return found


def _overview() -> str:
    from .help import overview

    return overview(ABOUT, ((name, _command(name)) for name in COMMANDS))


def _usage(message: str, arguments: list[str]) -> int:
    command = f" {arguments[0]}" if arguments and arguments[0] in COMMANDS else ""
    return _one_line(f"{message.rstrip('.')}; see rankscope{command} --help")


def _one_line(message: str) -> int:
    print("rankscope: " + " ".join(message.split()), file=sys.stderr)
    return BAD_INPUT
