"""How a command declares what it takes: `Annotated[TYPE, Argument(...)]` or `Annotated[TYPE, Option(...)]`.

A parameter without a default must be given. bool is a switch, list[...] takes several; other types are called with the
text (str, int, float, Path). What is wrong with a value only the command can know: it raises `BadUsage`.
"""

from dataclasses import dataclass
from typing import Annotated


class BadUsage(Exception):
    """The command line asks for something that makes no sense: one line that says what to write instead."""


class Argument:
    """A parameter by its place. metavar: its name in the help, in brackets if it may be left out."""

    def __init__(self, *, metavar: str = "", help: str = "") -> None:  # noqa: A002
        self.names, self.metavar, self.help = tuple[str, ...](), metavar, help


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers outside are bad usage; None: no limit."""

    least: float | None = None
    most: float | None = None


class Option:
    """A parameter by name; without `names` it is called as the parameter ("--older-than" for older_than).

    envvar: the variable that it is taken from where it is not given. min, max: numbers outside are bad usage.
    """

    def __init__(
        self, *names: str, metavar: str = "", help: str = "", envvar: str = "",  # noqa: A002
        min: float | None = None, max: float | None = None,  # noqa: A002
    ) -> None:  # fmt: skip
        self.names, self.metavar, self.help, self.envvar = names, metavar, help, envvar
        self.limits = Limits(min, max)


RunArgument = Annotated[
    str, Argument(metavar="RUN", help="Run directory, its address, or an id under ./rankscope-runs.")
]
EngineOption = Annotated[
    str,
    Option(
        "--engine", metavar="E", envvar="RANKSCOPE_ENGINE",
        help="Where large tables are read: auto, local (this process), pool (one process a core), ray or ray:ADDRESS.",
    ),
]  # fmt: skip
JsonOption = Annotated[bool, Option("--json", help="Print JSON.")]
