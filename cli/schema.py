"""`rankscope schema`: the tables of the ontology with their columns, units and meanings."""

from typing import Annotated, Any

from rankscope.schema.declare import Column, Table
from rankscope.schema.enums import ENUMS
from rankscope.schema.errors import InputError
from rankscope.schema.tables import TABLES
from rankscope.schema.version import ONTOLOGY_VERSION

from .arguments import Argument, BadUsage, JsonOption, Option
from .printing import console, print_json


def command(
    table: Annotated[str, Argument(metavar="[TABLE]", help="Only this table.")] = "", json: JsonOption = False,
    markdown: Annotated[bool, Option("--markdown", help="Print Markdown.")] = False,
) -> None:  # fmt: skip
    """Print the tables, columns, units and meanings.

    Example: rankscope schema collective
    """
    if json and markdown:
        raise BadUsage("--json and --markdown exclude each other")
    if table and table not in TABLES:
        raise InputError(f"no table {table}; there are {', '.join(TABLES)}")
    tables = [TABLES[table]] if table else list(TABLES.values())
    if json:
        print_json({"ontology": ONTOLOGY_VERSION, "tables": [_as_json(item) for item in tables]})
    elif markdown:
        print("\n\n".join(_as_markdown(item) for item in tables))
    else:
        _draw(tables)


def columns_of(table: Table) -> list[Column]:
    """The columns that a query sees: the declared ones, and those that come from the files' place."""
    extra = []
    if table.table_class in ("fact", "reading"):
        extra.append(Column("incarnation", "int64", "incarnation, from the file's place"))
        if "node" not in table.names:
            extra.append(Column("node", "string", "host (table node), from the file's place"))
    return [*table.columns, *extra]


def _as_json(table: Table) -> dict[str, Any]:
    columns = [
        {"name": item.name, "type": item.type, "unit": item.unit, "description": item.doc, "otel": item.otel,
         "values": list(ENUMS[item.enum]) if item.enum else []}
        for item in columns_of(table)
    ]  # fmt: skip
    return {"name": table.name, "class": table.table_class, "row": table.row, "columns": columns}


def _as_markdown(table: Table) -> str:
    lines = [
        f"## {table.name}",
        "",
        f"One row is {table.row} ({table.table_class}).",
        "",
        "| column | type | unit | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {item.name} | {item.type} | {item.unit} | {_meaning(item).replace('|', chr(92) + '|')} |"
        for item in columns_of(table)
    ]
    return "\n".join(lines)


def _meaning(column: Column) -> str:
    return f"{column.doc}: {', '.join(ENUMS[column.enum])}" if column.enum else column.doc


def _draw(tables: list[Table]) -> None:
    from rich import box
    from rich.table import Table as Drawing
    from rich.text import Text

    out = console()
    for table in tables:
        drawing = Drawing(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True)
        for name, ratio in (("column", None), ("type", None), ("unit", None), ("meaning", 1)):
            drawing.add_column(name, ratio=ratio, no_wrap=name == "column", overflow="fold")
        for item in columns_of(table):
            drawing.add_row(Text(item.name), Text(item.type), Text(item.unit), Text(_meaning(item)))
        out.print(Text.assemble((table.name, "bold cyan"), f"  one row is {table.row} ({table.table_class})"))
        out.print(drawing)
        out.print()
