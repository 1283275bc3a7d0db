"""One SELECT statement of a person over the views of a run, and nothing else.

Refused are other statements, several of them, and data-changing common table expressions (`WITH x AS (COPY ...)` counts
as a SELECT in DuckDB 2.0 and writes files): these are only valid at the top of a statement, so the statement must also
be valid inside another one. Besides, nothing outside the run directory can be opened (`allowed_directories`, then
external access off, then the configuration locked), and Python variables are not visible.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import duckdb

from rankscope.schema.errors import QueryError, UnreadableFile

from .run import Run
from .views import glob_escaped, quoted

FETCH: Final = 1024
"""Rows fetched at a time."""
_LISTS_TABLES: Final = re.compile(r"\s*SHOW\s+(ALL\s+)?TABLES\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result. columns and types (DuckDB's names) are known at once; rows come as they are read, once."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


def query(run: Run, sql: str) -> Answer:
    """The answer to `sql`. The connection of `run` is locked down for good by the first call.

    Raises QueryError, with the reason in one line.
    """
    lock(run)
    text = _only_select(run.connection, sql)
    try:
        cursor = run.connection.execute(text)
        described = cursor.description or []
    except duckdb.Error as error:
        raise _refusal(error) from error
    return Answer(tuple(str(item[0]) for item in described), tuple(str(item[1]) for item in described), _rows(cursor))


def lock(run: Run) -> None:
    """Leave the connection nothing but the files of the run. Cannot be undone."""
    connection = run.connection
    if connection.execute("SELECT current_setting('lock_configuration')").fetchall() == [(True,)]:
        return
    folders = sorted({run.place.root + "/", glob_escaped(run.place.root) + "/"}) if run.place.is_local else []
    connection.execute(f"SET allowed_directories = [{', '.join(map(quoted, folders))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _only_select(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise _refusal(error) from error
    if len(statements) != 1:
        raise QueryError(f"one SELECT statement is expected, {len(statements)} were given")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise QueryError(f"only SELECT statements are allowed, not {statements[0].type.name}")
    text = _without_semicolon(str(statements[0].query))
    if _LISTS_TABLES.fullmatch(text):  # not what the views are made of
        text = f"SELECT * FROM ({text}) WHERE NOT starts_with(name, '_')"
    try:
        connection.execute(f"EXPLAIN SELECT * FROM (\n{text}\n)")
    except duckdb.Error as error:
        raise _refusal(error) from error
    return text


def _without_semicolon(sql: str) -> str:
    """`sql` up to a semicolon that nothing but comments follows."""
    text = sql.encode()
    for offset, kind in reversed(duckdb.tokenize(sql)):
        if text[offset : offset + 1] == b";":
            text = text[:offset]
        elif kind != duckdb.token_type.comment:
            break
    return text.decode()


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    try:
        while rows := cursor.fetchmany(FETCH):
            yield from rows
    except duckdb.Error as error:
        raise UnreadableFile(_first_line(error)) from error


def _refusal(error: duckdb.Error) -> QueryError:
    return QueryError(_first_line(error))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    hint = next((f" ({line})" for line in lines[1:] if line.startswith(("Did you mean", "Candidate bindings"))), "")
    return (lines[0] if lines else type(error).__name__) + hint
