"""What a command line run by the fixture `rankscope` leaves."""

from collections.abc import Callable
from typing import NamedTuple


class Ran(NamedTuple):
    """Status, standard output, standard error."""

    status: int
    out: str
    err: str


Command = Callable[..., Ran]
