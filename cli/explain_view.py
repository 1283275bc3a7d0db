"""An explained number on a terminal: all of its provenance; of several, what they share, and each with its value."""

from collections.abc import Iterable, Iterator
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.digest import Input
from rankscope.analyzers.explain import Explained, said
from rankscope.schema.measurement import Measurement, Provenance

from .words import NONE, count, duration, share, size

MAX_ROWS: Final = 40
"""Measurements and files listed; --json has all."""
_WIDTH: Final = 13


def explained_section(found: tuple[Explained, ...], files: tuple[Input, ...] | None) -> RenderableType:
    """Everything that is known of the measurements, which have one name. files: None where nobody asked for them."""
    first = found[0]
    parts: list[RenderableType] = [Text(first.measurement.name, style="bold")]
    if len(found) == 1:
        parts.append(_lines(_value_lines(first)))
    else:
        parts += [_several(found), Text("one of them with all of its provenance: --scope KEY=VALUE", style="dim")]
    for item in _analyzers(found):
        parts += [Text(), Text(f"by {item.measurement.provenance.analyzer}", style="bold")]
        parts.append(_lines(_provenance_lines(item, is_one=len(found) == 1)))
        parts += [
            _indented("statement", item.measurement.provenance.statement),
            _indented("formula", _reflowed(item.formula)),
        ]
    if files is not None:
        parts += [Text(), Text("files", style="bold"), _files(files)]
    return Group(*parts)


def exact(measurement: Measurement) -> str:
    """The value to the last digit, and as people read it where it has a unit."""
    value, unit = measurement.value, measurement.unit
    if value is None:
        return f"{NONE}  {measurement.reason}"
    plain = f"{value!r}{f' {unit}' if unit not in ('', '1') else ''}"
    if isinstance(value, str) or unit not in ("ns", "bytes", "1"):
        return plain
    read = duration(value) if unit == "ns" else size(value) if unit == "bytes" else share(float(value))
    return plain if read == plain else f"{plain}  ({read})"


def _value_lines(item: Explained) -> Iterator[tuple[str, str]]:
    measurement = item.measurement
    yield "value", exact(measurement)
    yield "about", _scope(measurement) or "the whole run"
    yield "observations", count(measurement.n)
    if measurement.interval is not None:
        ends = measurement.interval
        yield "interval", f"{ends.low!r} .. {ends.high!r}  ({100 * ends.level:g} %, {ends.method})"
    else:
        yield "interval", "none"
    yield "again", _again(item)
    yield "by statement", _by_statement(item)


def _again(item: Explained) -> str:
    threads = f"{item.threads} thread{'' if item.threads == 1 else 's'}"
    where = f"the analyzer on a fresh reader of the same files, {threads}"
    if not item.is_same_dataset:
        where = f"the run has changed meanwhile (it still goes on); the analyzer on what is there now, {threads}"
    if item.again is None:
        return f"{where}: it does not come out"
    outcome = "equal to the last bit" if item.is_equal else "NOT EQUAL"
    return f"{exact(item.again)}: {outcome}; {where}"


def _by_statement(item: Explained) -> str:
    told = item.statement
    if told.module:
        return f"none alone: {told.module} puts it together from several (formula below)"
    if told.problem:
        return f"could not be run by itself: {told.problem}"
    rows = f"{count(told.num_rows)} row{'' if told.num_rows == 1 else 's'}"
    if told.column:
        return f"{rows}; the value itself stands in column {told.column} of the one that fits"
    fitting = f", {count(told.num_fitting)} of them about this" if told.num_fitting != told.num_rows else ""
    return f"{rows}{fitting}; the analyzer makes the value of them (formula below)"


def _provenance_lines(item: Explained, *, is_one: bool) -> Iterator[tuple[str, str]]:
    told = item.measurement.provenance
    yield "definition", told.definition
    yield "columns", ", ".join(item.columns)
    rows = f"{count(told.num_rows)} rows in {count(told.num_files)} file{'' if told.num_files == 1 else 's'}"
    yield "tables", f"{', '.join(told.tables)}: {rows}"
    yield "dataset", told.dataset_digest
    yield "rows taken", told.predicate or "all"
    yield "window", told.window or "the whole run"
    yield "left out", told.left_out or "nothing"
    yield from _quality(told, item.measurement.provenance.caveats if is_one else told.caveats)
    versions = (told.rankscope_version or "?", told.ontology_version, told.duckdb_version)
    yield "versions", "rankscope {}, ontology {}, duckdb {}".format(*versions)


def _quality(told: Provenance, caveats: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    yield "coverage", NONE if told.coverage is None else f"{share(told.coverage, 2)} of the rows are there"
    yield "timing", told.timing_source or "as the rows say (column timing_source), where times matter"
    yield "clock error", "one clock, or not compared" if told.clock_error_ns is None else duration(told.clock_error_ns)
    yield "caveats", "; ".join(caveats) or "none"


def _several(found: tuple[Explained, ...]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("about", "value", "n", "again", "by"):
        table.add_column(header, justify="right" if header == "n" else "left", overflow="fold")
    for item in found[:MAX_ROWS]:
        again = "equal" if item.is_equal else "NOT EQUAL" if item.is_same_dataset else "the run goes on"
        table.add_row(*(Text(cell) for cell in (
            _scope(item.measurement) or "the whole run", exact(item.measurement), count(item.measurement.n), again,
            item.question,
        )))  # fmt: skip
    more = len(found) - MAX_ROWS
    return Group(table, Text(f"and {more:,} more", style="dim")) if more > 0 else table


def _analyzers(found: tuple[Explained, ...]) -> Iterable[Explained]:
    """One measurement for each way in which they were made."""
    return {(item.question, item.measurement.provenance.statement): item for item in reversed(found)}.values()


def _scope(measurement: Measurement) -> str:
    return " · ".join(f"{key}={said(value)}" for key, value in measurement.scope.items())


def _lines(pairs: Iterable[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=_WIDTH)
    grid.add_column(overflow="fold")
    for name, text in pairs:
        grid.add_row(Text(name), Text(text))
    return grid


def _indented(name: str, text: str) -> RenderableType:
    return Group(Text(name, style="dim"), Padding(Text(text.strip()), (0, 0, 0, 4), expand=False))


def _reflowed(text: str) -> str:
    """Paragraphs of a docstring without its line ends, which are for another width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _files(files: tuple[Input, ...]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("file", "rows", "bytes", "digest"):
        table.add_column(header, justify="right" if header in ("rows", "bytes") else "left", overflow="fold")
    for item in files[:MAX_ROWS]:
        where = item.file if item.file.startswith(item.table) else f"{item.table}: {item.file}"
        table.add_row(where, count(item.num_rows), count(item.num_bytes), item.digest)
    more = len(files) - MAX_ROWS
    return Group(table, Text(f"and {more:,} more; --json has all", style="dim")) if more > 0 else table
