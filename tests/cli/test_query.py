"""`rankscope query`: table, JSON, CSV."""

import csv
import io
import json
from pathlib import Path

import pytest
from command_line import Command
from run_builder import healthy_run

TABLE = """\
op           rank   n   bytes
─────────────────────────────
all_reduce      0   6    6000
all_reduce      1   6    6000
"""
SQL = "SELECT op, rank, count(*) AS n, sum(bytes_in) AS bytes FROM collective GROUP BY ALL ORDER BY rank"
EVERY_TYPE = (
    "SELECT 1 AS i, 1.5::DECIMAL(4, 2) AS d, 2::DECIMAL(38, 0) AS w, 'NaN'::DOUBLE AS f, NULL AS n, true AS b, "
    "[1, NULL] AS l, {'a': 1} AS s, MAP {1: 'x'} AS m, 'x,\"y\n' AS t, '\\x01'::BLOB AS y, DATE '2026-01-02' AS a, "
    "170141183460469231731::HUGEINT AS h"
)


@pytest.fixture
def run_dir(tmp_path: Path) -> str:
    return str(healthy_run(tmp_path / "run"))


def test_a_table(rankscope: Command, run_dir: str) -> None:
    ran = rankscope("query", run_dir, SQL)
    assert ran.status == 0 and [line.rstrip() for line in ran.out.splitlines()] == TABLE.splitlines()


def test_json_and_csv(rankscope: Command, run_dir: str) -> None:
    columns, rows = ["op", "rank", "n", "bytes"], [["all_reduce", 0, 6, 6000], ["all_reduce", 1, 6, 6000]]
    assert json.loads(rankscope("query", run_dir, SQL, "--json").out) == {"columns": columns, "rows": rows}
    read = list(csv.reader(io.StringIO(rankscope("query", run_dir, SQL, "--csv").out)))
    assert read == [columns, *([str(value) for value in row] for row in rows)]


def test_every_type_is_valid_json_and_csv(rankscope: Command, run_dir: str) -> None:
    answer = json.loads(rankscope("query", run_dir, EVERY_TYPE, "--json").out)
    assert answer["rows"] == [
        [
            1,
            1.5,
            2,
            None,
            None,
            True,
            [1, None],
            {"a": 1},
            {"1": "x"},
            'x,"y\n',
            "01",
            "2026-01-02",
            170141183460469231731,
        ]
    ]
    (header, row) = csv.reader(io.StringIO(rankscope("query", run_dir, EVERY_TYPE, "--csv").out, newline=""))
    assert len(header) == len(row) == 13 and row[9] == 'x,"y\n' and row[4] == ""
    assert rankscope("query", run_dir, EVERY_TYPE).status == 0


def test_no_rows(rankscope: Command, run_dir: str) -> None:
    sql = "SELECT * FROM memory"
    answer = json.loads(rankscope("query", run_dir, sql, "--json").out)
    assert answer["rows"] == [] and "allocated_bytes" in answer["columns"]
    assert rankscope("query", run_dir, sql, "--csv").out.count("\n") == 1


def test_a_long_answer_is_cut_only_as_a_table(rankscope: Command, run_dir: str) -> None:
    sql = "SELECT * FROM range(3000)"
    ran = rankscope("query", run_dir, sql)
    assert len(ran.out.splitlines()) == 102 and "first 100 rows" in ran.err
    assert len(json.loads(rankscope("query", run_dir, sql, "--json").out)["rows"]) == 3000


def test_refused_statements_are_one_line(rankscope: Command, run_dir: str) -> None:
    for sql in ("DROP VIEW step", "SELECT nonsense FROM step", "SELEC", f"COPY (SELECT 1) TO '{run_dir}/x'"):
        ran = rankscope("query", run_dir, sql)
        assert ran.status == 2 and ran.out == "" and ran.err.count("\n") == 1


def test_what_a_job_wrote_is_not_read_as_markup(rankscope: Command, run_dir: str) -> None:
    assert "[bold]x[/bold] :smile:" in rankscope("query", run_dir, "SELECT '[bold]x[/bold] :smile:' AS t").out
