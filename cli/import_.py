"""`rankscope import FORMAT PATHS -o RUN`: foreign traces become an ordinary run."""

from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from rankscope.schema.errors import InputError, UnreadableFile

from .arguments import Argument, JsonOption, Option
from .printing import print_drawn, print_json
from .progress import progress_bar

if TYPE_CHECKING:
    from rich.text import Text

    from rankscope.tracer.importers.request import FileReport, Imported, Importer


def command(
    format: Annotated[str, Argument(metavar="FORMAT", help="What the files are; see above.")],  # noqa: A002
    paths: Annotated[list[str], Argument(metavar="PATHS", help="Files, or folders of them.")],
    out: Annotated[str, Option("-o", "--out", metavar="RUN", help="The run's folder; must not hold anything.")],
    rank_map: Annotated[
        str, Option("--rank-map", metavar="F", help="Ranks by file: lines NAME RANK, or a JSON object.")
    ] = "",
    classes: Annotated[
        str, Option("--classes", metavar="F", help="Own rules for kernel names: lines CLASS PATTERN.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Turn traces of other tools into a run that every command understands.

    kineto: traces of torch.profiler (json, json.gz), one file for each rank.
    flight-recorder: dumps of PyTorch's flight recorder (pickle, JSON), one file for each rank, named by it.
    what-if: one job's log of pipeline operations (Parquet, and the yaml beside it).
    pipeline: logs of micro-batches (JSON), one file for each rank, and config.json.

    Example: rankscope import kineto traces/ -o imported-run
    """
    from rankscope.schema.kernel_classes import Classes
    from rankscope.tracer.importers.request import Request
    from rankscope.tracer.importers.trace_rank import read_rank_map

    importer = _importer(format)
    ranks = read_rank_map(rank_map) if rank_map else {}
    rules = Classes(_text(classes), classes) if classes else Classes()
    with progress_bar() as progress:
        found = importer(Request(tuple(paths), out, ranks, rules, progress))
    if json:
        print_json(asdict(found))
    else:
        _draw(found)


def _importer(name: str) -> "Importer":
    from rankscope.tracer.importers import FORMATS

    if name not in FORMATS:
        raise InputError(f"no format {name}; there are {', '.join(FORMATS)}")
    module, _, function = FORMATS[name].partition(":")
    importer: Importer = getattr(import_module(f"rankscope.tracer.importers.{module}"), function)
    return importer


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _draw(found: "Imported") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table

    from .words import count

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("rank", "events", "rows", "skipped", "not believed"):
        table.add_column(header, justify="right")
    table.add_column("file", overflow="fold")
    files = sorted(found.files, key=lambda file: (file.rank is None, file.rank or 0, file.path))
    for item in files:
        table.add_row(*_line(item))
    print_drawn(Group(table, *(_note(item) for item in files if item.note)))
    if found.missing:
        print(f"no file of {len(found.missing)} of {found.world_size} ranks: {_ranges(found.missing)}")
    print(f"run {found.run_id}: {count(found.num_rows)} rows in {found.address}")


def _line(item: "FileReport") -> tuple[str, ...]:
    from .words import NONE, count

    return (
        NONE if item.rank is None else str(item.rank), count(item.num_events), count(item.num_rows),
        count(item.num_skipped), count(item.num_quarantined), item.path.rpartition("/")[2],
    )  # fmt: skip


def _note(item: "FileReport") -> "Text":
    """What was wrong with a file: a line of its own, for it may be long."""
    from rich.text import Text

    said = item.note if item.is_imported else f"left out: {item.note}"
    return Text(f"{item.path.rpartition('/')[2]}: {said}", style="yellow" if item.is_imported else "bold red")


def _ranges(ranks: tuple[int, ...]) -> str:
    """(0, 1, 2, 5) is "0..2, 5"."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in parts)
