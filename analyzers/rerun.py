"""What a measurement's own statement gives when it is run again: the value itself, or the rows that it is made of.

The value itself: exactly one row says the measurement's scope (in columns named like its keys), and a cell of that row,
not one that says the scope, is the value. Everything else is said to be the analyzer's work on the rows.
"""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import duckdb

from rankscope.schema.measurement import Measurement

from .run import Row, Run

_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)+")


@dataclass(frozen=True, slots=True)
class StatementResult:
    """num_fitting: rows that say the scope; column: the one that holds the value, "" where the analyzer makes it of
    the rows. module: the dotted name that stands for a statement where several are needed. problem: why it could not
    be run.
    """

    num_rows: int = 0
    num_fitting: int = 0
    column: str = ""
    module: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Reruns:
    """Statements over one run, each run once however many measurements share it."""

    run: Run
    _known: dict[str, tuple[tuple[str, ...], list[Row], str]] = field(default_factory=dict)

    def result(self, measurement: Measurement) -> StatementResult:
        """What the statement of `measurement` gives."""
        if _DOTTED.fullmatch(measurement.provenance.statement):
            return StatementResult(module=measurement.provenance.statement)
        names, rows, problem = self._rows(measurement.provenance.statement)
        if problem:
            return StatementResult(problem=problem)
        keys = {names.index(key): value for key, value in measurement.scope.items() if key in names}
        fitting = [row for row in rows if all(row[at] == value for at, value in keys.items())]
        column = ""
        if len(fitting) == 1:
            cells = enumerate(fitting[0])
            column = next((names[at] for at, cell in cells if at not in keys and _is(cell, measurement.value)), "")
        return StatementResult(len(rows), len(fitting), column)

    def _rows(self, sql: str) -> tuple[tuple[str, ...], list[Row], str]:
        if sql not in self._known:
            self._known[sql] = self._executed(sql)
        return self._known[sql]

    def _executed(self, sql: str) -> tuple[tuple[str, ...], list[Row], str]:
        try:
            cursor = self.run.connection.execute(sql)
            return tuple(str(item[0]) for item in cursor.description or []), cursor.fetchall(), ""
        except (duckdb.Error, OSError) as error:
            return (), [], (str(error).splitlines() or ["it failed"])[0]


def _is(cell: Any, value: float | int | str | None) -> bool:
    if value is None or isinstance(cell, bool) or not isinstance(cell, int | float | Decimal | str):
        return False
    return isinstance(cell, str) == isinstance(value, str) and cell == value
