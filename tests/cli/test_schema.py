"""`rankscope schema`: every table and column, in three forms."""

import json
from pathlib import Path

from command_line import Command

from rankscope.cli.schema import columns_of
from rankscope.schema.tables import TABLES


def test_json_holds_everything(rankscope: Command) -> None:
    document = json.loads(rankscope("schema", "--json").out)
    assert [table["name"] for table in document["tables"]] == list(TABLES)
    collective = next(table for table in document["tables"] if table["name"] == "collective")
    columns = {column["name"]: column for column in collective["columns"]}
    assert columns["issued_ns"] == {
        "name": "issued_ns",
        "type": "int64",
        "unit": "ns",
        "description": "the operation was issued",
        "otel": "",
        "values": [],
    }
    assert "all_reduce" in columns["op"]["values"] and {"incarnation", "node"} <= set(columns)


def test_the_columns_are_those_of_the_views(rankscope: Command, tmp_path: Path) -> None:
    from run_builder import healthy_run

    run_dir = str(healthy_run(tmp_path / "run"))
    for table in TABLES.values():
        answer = json.loads(rankscope("query", run_dir, f"SELECT * FROM {table.name} LIMIT 0", "--json").out)
        assert answer["columns"] == [column.name for column in columns_of(table)]


def test_text_and_markdown_name_every_column_with_its_meaning(rankscope: Command) -> None:
    text, markdown = rankscope("schema").out, rankscope("schema", "--markdown").out
    for table in TABLES.values():
        assert f"## {table.name}\n" in markdown and f"{table.name}  one row is" in text
        for column in table.columns:
            assert f"| {column.name} | {column.type} | {column.unit} | " in markdown
            assert f"\n{column.name} " in text


def test_one_table(rankscope: Command) -> None:
    out = rankscope("schema", "clock", "--markdown").out
    assert out.count("## ") == 1 and "## clock" in out
