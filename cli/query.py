"""`rankscope query RUN SQL`: one SELECT statement over the tables of a run, safe for the machine it runs on."""

import csv
import json
import sys
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

from .arguments import Argument, BadUsage, JsonOption, Option, RunArgument
from .printing import console

if TYPE_CHECKING:
    from rankscope.analyzers.query import Answer

MAX_ROWS: Final = 100
"""Rows drawn as a table; --csv and --json print all."""


def command(
    run: RunArgument,
    sql: Annotated[str, Argument(metavar="SQL", help="One SELECT statement; see rankscope schema.")],
    json: JsonOption = False,
    csv: Annotated[bool, Option("--csv", help="Print comma-separated values.")] = False,
) -> None:
    """Answer one SELECT statement over the tables of a run.

    Example: rankscope query my-run "SELECT op, count(*) AS n FROM collective GROUP BY op ORDER BY n DESC"
    """
    from rankscope.analyzers.query import query
    from rankscope.analyzers.run import Run

    if json and csv:
        raise BadUsage("--json and --csv exclude each other")
    with Run.open(run) as opened:
        answer = query(opened, sql)
        if json:
            _print_json(answer)
        elif csv:
            _print_csv(answer)
        else:
            _print_table(answer)


def _print_json(answer: "Answer") -> None:
    """Row by row: the answer may be larger than memory."""
    write = sys.stdout.write
    write(f'{{"columns": {json.dumps(answer.columns)}, "rows": [')
    for number, row in enumerate(answer.rows):
        write(("," if number else "") + "\n" + json.dumps([_plain(value) for value in row], ensure_ascii=False))
    write("\n]}\n")


def _print_csv(answer: "Answer") -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(["" if value is None else _plain(value) for value in row] for row in answer.rows)


def _print_table(answer: "Answer") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, type_ in zip(answer.columns, answer.types, strict=True):
        table.add_column(Text(name), justify="right" if _is_number(type_) else "left", overflow="fold")
    rows, has_more = _first(answer.rows)
    for row in rows:
        table.add_row(*(Text("" if value is None else str(_plain(value))) for value in row))
    console().print(table)
    if has_more:
        print(f"the first {MAX_ROWS} rows; --csv or --json print all", file=sys.stderr)


def _first(rows: Iterable[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], bool]:
    found: list[tuple[Any, ...]] = []
    for row in rows:
        if len(found) == MAX_ROWS:
            return found, True
        found.append(row)
    return found, False


def _is_number(type_: str) -> bool:
    return type_.upper().startswith(
        ("NUMBER", "BIGINT", "INTEGER", "DOUBLE", "HUGEINT", "DECIMAL", "SMALLINT", "UBIGINT", "FLOAT")
    )


def _plain(value: Any) -> Any:
    """What JSON can hold: whole decimals are integers; what it cannot hold is text; NaN and infinities are null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value if value is None or isinstance(value, str | int) else str(value)
