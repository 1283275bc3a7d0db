"""`rankscope diff A B`: what two runs were made from, field by field."""

from typing import TYPE_CHECKING, Annotated, Final

from .arguments import Argument, JsonOption, Option
from .printing import print_drawn, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rankscope.analyzers.differences import Difference

_HEADINGS: Final = {
    "confounder": "changes what a comparison of speed means",
    "minor": "unlikely to change the speed",
    "scale": "follows from the number of ranks",
    "identity": "who, where and when",
}


def command(
    a: Annotated[str, Argument(metavar="A", help="A run: directory, address, or id under ./rankscope-runs.")],
    b: Annotated[str, Argument(metavar="B", help="Another run.")],
    everything: Annotated[bool, Option("--all", help="Also who ran them, where and when.")] = False,
    json: JsonOption = False,
) -> int:
    """Print in which fields the lineage of two runs differs.

    Data, tokenizer, code, dependencies, seeds, configuration, compiler, kernels, checkpoint, container, topology,
    objective, environment and hosts; what matters for a comparison of speed comes first. JSON has all fields.

    Example: rankscope diff rankscope-runs/yesterday rankscope-runs/today
    """
    from rankscope.analyzers.differences import IDENTITY, differences
    from rankscope.analyzers.manifest import manifest
    from rankscope.analyzers.run import Run

    made = []
    for address in (a, b):
        with Run.open(address) as reader:
            made.append(manifest(reader))
    found = differences(*made)
    if json:
        runs = [{"run_id": item.run["run_id"], "address": item.address, "dataset_digest": item.digest} for item in made]
        print_json({"runs": runs, "differences": [item.as_json() for item in found]})
        return 0
    shown = [item for item in found if everything or item.kind != IDENTITY]
    if not shown:
        print("no difference in what they were made from")
        return 0
    print_drawn(_drawn(shown))
    return 0


def _drawn(found: "list[Difference]") -> "RenderableType":
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for kind, heading in _HEADINGS.items():
        some = [item for item in found if item.kind == kind]
        if not some:
            continue
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for header in ("", "A", "B"):
            table.add_column(header, overflow="fold")
        for item in some:
            table.add_row(Text(item.name), Text(_word(item.left)), Text(_word(item.right)))
        parts += [Text(f"{kind}: {heading}", style="bold"), Padding(table, (0, 0, 1, 1), expand=False)]
    return Group(*parts)


def _word(value: object) -> str:
    from .words import NONE

    text = NONE if value is None else str(value)
    return text[:16] + "…" if len(text) >= 32 and all(letter in "0123456789abcdef" for letter in text) else text
