"""The arguments and options that commands share."""

from typing import Annotated

import typer

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Run directory, its address, or an id under ./rankscope-runs.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
