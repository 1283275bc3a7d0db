"""A progress bar on the terminal, where there is one to look at."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""(what is being done, how much of it is done, how much there is)."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar for each thing that is reported as being done, in order; nothing where standard error is no terminal.

    Of paths the last part is shown.
    """
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    with Bars(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what.rpartition("/")[2], total=total)
            bars.update(tasks[what], completed=done)

        yield show
