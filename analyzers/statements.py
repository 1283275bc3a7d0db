"""The SQL that stands beside an analyzer: `<analyzer>.sql` holds statements, each after a line `-- name: <name>`."""

from functools import cache
from typing import Final

from rankscope.schema.beside import text_beside

_MARK: Final = "-- name: "
_WITH: Final = "WITH "


def statement(analyzer: str, name: str) -> str:
    """The statement `name` of `<analyzer>.sql`. Raises KeyError."""
    return _statements(analyzer)[name]


def whole(analyzer: str, name: str, before: dict[str, str] | None = None) -> str:
    """The definition of a question of statements `<name>_partial` and `<name>_merge`: the merge over what one part, the
    whole run, contributes. before: what the partial reads, by name.
    """
    tables = (before or {}) | {f"partial_{analyzer}_{name}": statement(analyzer, f"{name}_partial")}
    merge = statement(analyzer, f"{name}_merge")
    parts = [f"{table} AS ({sql})" for table, sql in tables.items()]
    if merge.startswith(_WITH):
        return f"{_WITH}{', '.join(parts)}, {merge.removeprefix(_WITH)}"
    return f"{_WITH}{', '.join(parts)} {merge}"


def counted_step_view() -> str:
    """The statement that makes the view which most analyzers build on."""
    return statement("derived", "counted_step")


@cache
def _statements(analyzer: str) -> dict[str, str]:
    text = text_beside(__file__, f"{analyzer}.sql")
    found = {}
    for part in text.split(_MARK)[1:]:
        name, _, body = part.partition("\n")
        lines = [line for line in body.strip().splitlines() if not line.startswith("--")]
        found[name.strip()] = "\n".join(lines).rstrip(";")
    return found
