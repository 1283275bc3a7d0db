"""What-if logs made by hand: what is no log, and what an operation becomes."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankscope.analyzers.run import Run
from rankscope.schema.errors import InputError
from rankscope.tracer.importers.request import Imported, Request
from rankscope.tracer.importers.what_if import import_what_if


def operation(optype: str, stage: int, start: float, duration: float = 0.5, **more: Any) -> dict[str, Any]:
    return {
        "dp_rank": 0, "stage": stage, "rank": 4 * stage, "step": 7, "optype": optype, "start_ts": start,
        "duration": duration, "seq_id": 0, "mc": 0, "mb_id": -1, "gmc": 0,
    } | more  # fmt: skip


def imported(tmp_path: Path, rows: list[dict[str, Any]]) -> Imported:
    path = tmp_path / "trace-X.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    (tmp_path / "meta-X.yaml").write_text("trial_name: X\nworld_size: 8\npp_size: 2\n")
    return import_what_if(Request((str(path),), str(tmp_path / "run")))


def test_what_an_operation_becomes(tmp_path: Path) -> None:
    rows = [
        operation("forward-compute", 0, 0.25, mb_id=3),
        operation("forward-send", 0, 1.0),
        operation("gossip", 0, 1.0),
        operation("forward-recv", 1, 0.5, 1.0),
        operation("forward-compute", 1, 0.0, step=9),
    ]
    found = imported(tmp_path, rows)
    assert (found.world_size, found.missing, found.files[0].num_skipped) == (8, (1, 2, 3, 5, 6, 7), 1)
    with Run.open(str(tmp_path / "run")) as run:
        assert run.rows("SELECT rank, kind, step, stage, microbatch, start_ns, end_ns FROM span ORDER BY rank") == [
            (0, "microbatch_forward", 0, 0, 3, 250_000_000, 750_000_000),
            (4, "microbatch_forward", 1, 1, None, 1_500_000_000, 2_000_000_000),
        ]
        assert run.rows("SELECT rank, op, role, src, dst, completed_ns FROM collective ORDER BY rank") == [
            (0, "send", "activations", 0, 4, 1_500_000_000), (4, "recv", "activations", 0, 4, 1_500_000_000)
        ]  # fmt: skip
        assert run.rows("SELECT pp, dp FROM run") == [(2, None)]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"stage": 1}], "no column dp_rank"),
        ([operation("gossip", 0, 0.0)], "0 known"),
        ([operation("gc", 0, 0.0, -1.0)], "1 of 1"),
    ],
)
def test_what_is_no_log(tmp_path: Path, rows: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(InputError, match=says):
        imported(tmp_path, rows)
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize(
    "bad",
    [
        {"start_ts": None}, {"start_ts": float("nan")}, {"start_ts": 1e300}, {"duration": -1.0}, {"duration": None},
        {"duration": float("inf")}, {"rank": None}, {"rank": -1}, {"rank": 1 << 40}, {"step": None}, {"stage": -2},
        {"optype": None}, {"optype": ""}, {"seq_id": None}, {"mb_id": None},
    ],
)  # fmt: skip
def test_a_damaged_operation_is_skipped_and_counted(tmp_path: Path, bad: dict[str, Any]) -> None:
    good = [operation("forward-compute", 0, 0.25), operation("backward-compute", 1, 0.5)]
    [report] = imported(tmp_path, [*good, operation("forward-compute", 0, 0.75) | bad]).files
    assert report.num_skipped == 1 and report.note == "1 unknown or damaged operations were skipped"
    with Run.open(str(tmp_path / "run")) as run:
        assert run.rows("SELECT rank, start_ns FROM span ORDER BY rank") == [(0, 250_000_000), (4, 500_000_000)]


@pytest.mark.parametrize("kind", ["truncated", "text", "empty", "no such columns", "words"])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "trace-X.parquet"
    column = "x" if kind == "words" else 0.0
    pq.write_table(pa.Table.from_pylist([operation("gc", 0, 0.0) | {"start_ts": column}]), path)
    body = {"truncated": path.read_bytes()[:-200], "text": b"not Parquet", "empty": b""}.get(kind, path.read_bytes())
    if kind == "no such columns":
        pq.write_table(pa.table({"a": [1]}), path)
    else:
        path.write_bytes(body)
    with pytest.raises(InputError) as raised:
        import_what_if(Request((str(path),), str(tmp_path / "run")))
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)
    assert not (tmp_path / "run" / "run.json").exists()


def test_an_empty_folder_and_several_jobs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match="no file that ends in"):
        import_what_if(Request((str(tmp_path / "in"),), str(tmp_path / "run")))
    for name in ("a", "b"):
        (tmp_path / f"in/{name}.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="one at a time"):
        import_what_if(Request((str(tmp_path / "in"),), str(tmp_path / "run")))


def test_odd_sizes_beside_the_log_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    path = tmp_path / "x/trace-X.parquet"
    pq.write_table(pa.Table.from_pylist([operation("gc", 0, 0.0)]), path)
    (tmp_path / "x/meta-X.yaml").write_text(f"world_size: {1 << 70}\npp_size: -3\ndp_size: 0\nvpp_size: many\n")
    assert import_what_if(Request((str(path),), str(tmp_path / "run"))).world_size == 1
