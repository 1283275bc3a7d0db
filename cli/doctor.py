"""`rankscope doctor`: what would be captured here, why not, and how to mend it."""

from dataclasses import asdict

from .arguments import JsonOption
from .printing import console, print_json


def command(json: JsonOption = False) -> int:
    """Say what would be captured on this machine, what would not, and how to mend it.

    Start it as the job is started: same user, container, environment and folder. Exits with 1 where a job would leave
    nothing at all: switched off, no torch, or no place for a ring. Example: rankscope doctor
    """
    from rankscope.tracer.doctor import captures_nothing, examine

    checks = examine()
    if json:
        print_json({"checks": [asdict(check) for check in checks]})
        return int(captures_nothing(checks))

    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("check", "state", "what holds here"):
        table.add_column(name, overflow="fold", no_wrap=name != "what holds here")
    for check in checks:
        words = check.finding + (f"\nto mend it: {check.fix}" if check.fix else "")
        table.add_row(Text(check.name), Text(check.state), Text(words))
    console().print(table)
    return int(captures_nothing(checks))
