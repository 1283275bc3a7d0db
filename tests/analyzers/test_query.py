"""Is `query` safe: only SELECT, only the run's files, nothing written, nothing set?"""

from pathlib import Path

import pytest
from run_builder import RunBuilder, healthy_run

from rankscope.analyzers.query import query
from rankscope.analyzers.run import Run
from rankscope.schema.errors import QueryError


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    return healthy_run(tmp_path / "run")


ALLOWED = [
    "SELECT count(*) FROM collective",
    "FROM step",
    "VALUES (1, 2)",
    "SELECT 1;",
    "SELECT 1 -- comment",
    "SELECT 'é;'; -- é; comment",
    "SELECT 1 /* ; */ ;; ",
    "WITH x AS (SELECT op FROM collective) SELECT * FROM x ORDER BY op",
    "DESCRIBE collective",
    "SUMMARIZE step",
    "SELECT a.rank FROM step a JOIN collective b USING (proc) UNION ALL SELECT 1",
    "SELECT log_bucket(5)",
]

REFUSED = [
    "",
    ";",
    "SELECT 1; SELECT 2",
    "COPY (SELECT 1) TO '{dir}/x.csv'",
    "WITH x AS (COPY (SELECT 1) TO '{dir}/x.csv') SELECT * FROM x",
    "SELECT * FROM (WITH x AS (COPY (SELECT 1) TO '{dir}/x.csv') SELECT * FROM x)",
    "CREATE TABLE t AS SELECT 1",
    "WITH x AS (CREATE TABLE t (a INT)) SELECT 1",
    "DROP VIEW step",
    "INSERT INTO step VALUES (1)",
    "DELETE FROM step",
    "ATTACH '{dir}/x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET threads = 1",
    "RESET enable_external_access",
    "PRAGMA version",
    "EXPLAIN ANALYZE SELECT 1",
    "CALL pragma_version()",
    "EXPORT DATABASE '{dir}/x'",
    "SELECT * FROM read_text('{out}/secret.txt')",
    "SELECT * FROM read_csv('{out}/secret.txt')",
    "SELECT * FROM '{out}/secret.txt'",
    "SELECT * FROM glob('{out}/*')",
    "SELECT * FROM read_text('{dir}/../secret.txt')",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELEC 1",
    "SELECT nonsense FROM step",
    "SELECT * FROM local_variable",
    "SELECT 1) AS a, (SELECT 2",
    "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
]


@pytest.mark.parametrize("sql", ALLOWED)
def test_select_statements_are_answered(run_dir: Path, sql: str) -> None:
    with Run.open(str(run_dir)) as run:
        answer = query(run, sql)
        assert len(list(answer.rows)) >= 1 and answer.columns


@pytest.mark.parametrize("sql", REFUSED)
def test_everything_else_is_refused_in_one_line_and_changes_nothing(run_dir: Path, sql: str) -> None:
    local_variable = [1]
    before = sorted(run_dir.parent.rglob("*"))
    with Run.open(str(run_dir)) as run:
        with pytest.raises(QueryError) as caught:
            list(query(run, sql.format(dir=run_dir, out=run_dir.parent)).rows)
        assert str(caught.value) and "\n" not in str(caught.value)
        assert list(query(run, "SELECT count(*) FROM step").rows) == [(12,)]
    assert sorted(run_dir.parent.rglob("*")) == before and local_variable


def test_unsealed_rows_can_be_asked_for_too(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run[1]")
    build.collective(0, 0, 1, None, None, record=0)
    build.seal()
    build.collective(0, 0, 1, (1, 2), 2, record=0)
    build.entities()
    build.stream()
    with Run.open(str(build.root)) as run:
        assert list(query(run, "SELECT state, node IS NOT NULL FROM collective").rows) == [("completed", True)]


def test_the_lock_is_for_good(run_dir: Path) -> None:
    with Run.open(str(run_dir)) as run:
        list(query(run, "SELECT 1").rows)
        list(query(run, "SELECT 2").rows)
        settings = dict(run.connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    assert settings["enable_external_access"] == "false" and settings["lock_configuration"] == "true"


@pytest.mark.parametrize("sql", ["SHOW TABLES", " show  all tables ;"])
def test_tables_are_listed_without_what_they_are_made_of(tmp_path: Path, sql: str) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 1)
    build.entities()
    with Run.open(str(build.seal())) as run:
        answer = query(run, sql)
        names = [row[answer.columns.index("name")] for row in answer.rows]
    assert {"collective", "process", "run", "step"} <= set(names)
    assert not [name for name in names if name.startswith("_")]
