"""`rankscope compare A B`: is one run faster than another, by how much, and may one compare them."""

from typing import TYPE_CHECKING, Annotated

from .arguments import Argument, JsonOption
from .printing import print_drawn, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rankscope.analyzers.compare import Compared, Comparison


def command(
    a: Annotated[str, Argument(metavar="A", help="The run to compare with: directory, address, or id.")],
    b: Annotated[str, Argument(metavar="B", help="The run that may be faster.")],
    json: JsonOption = False,
) -> int:
    """Print how much faster or slower B is than A, part by part, with intervals.

    Step time, throughput, each part of the step, memory, and loss at equal samples. Where something else differs that
    changes the speed, that is said instead: `rankscope diff A B` shows it field by field.

    Example: rankscope compare rankscope-runs/before rankscope-runs/after
    """
    from rankscope.analyzers.compare import compare
    from rankscope.analyzers.run import Run
    from rankscope.analyzers.scaling_run import incomplete, scaling_run

    runs = []
    for address in (a, b):
        with Run.open(address) as reader:
            runs.append(scaling_run(reader, has_series=True))
    found = compare(*runs)
    if json:
        about = [{"run_id": run.run_id, "address": run.address, "dataset_digest": run.digest} for run in runs]
        print_json({
            "runs": about, "verdict": {"kind": found.verdict, "text": found.text},
            "measurements": [item.as_json() for item in found.measurements], "verdicts": [],
            "differences": [item.as_json() for item in found.differences],
        })  # fmt: skip
        return 0
    print_drawn(_drawn(found))
    for text in incomplete(runs):
        print(f"\n{text}")
    return 0


def _drawn(found: "Comparison") -> "RenderableType":
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("", "A", "B", "B / A", "99 % interval"):
        table.add_column(header, justify="left" if not header else "right")
    for item in found.quantities:
        table.add_row(item.name, _value(item.left, item.unit), _value(item.right, item.unit), *_ratio(item))
    return Group(Text(found.text, style="bold"), Text(), table)


def _ratio(item: "Compared") -> tuple[str, str]:
    from .words import NONE

    interval = item.ratio.interval
    bounds = "" if interval is None else f"{interval.low:.3f} .. {interval.high:.3f}"
    return NONE if item.ratio.value is None else f"{item.ratio.value:.3f}", bounds


def _value(value: float | None, unit: str) -> str:
    from .words import NONE, duration, size

    if value is None:
        return NONE
    if unit == "ns":
        return duration(value)
    return size(value) if unit == "bytes" else f"{value:,.4g}"
