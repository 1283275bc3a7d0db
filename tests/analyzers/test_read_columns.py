"""Columns of files as arrays: whatever the files hold, the same as their rows."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from any_run import written

from rankscope.analyzers.columns import NULL, Columns
from rankscope.analyzers.read_columns import as_columns, read_columns
from rankscope.analyzers.run import Run

NUMBERS = ("proc", "rank", "seq", "src", "bytes_in", "issued_ns", "completed_ns", "device_start_ns", "stage")
TEXTS = ("group_id", "op", "tier", "state", "timing_source", "phase", "role")


def told(columns: Columns, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows that the arrays stand for."""
    found = []
    for row in range(columns.num_rows):
        values: dict[str, Any] = {}
        for name in (*names, "incarnation"):
            if name in columns.codes:
                code = int(columns.codes[name][row])
                values[name] = None if code < 0 else columns.texts[name][code]
            else:
                number = int(columns.numbers[name][row])
                values[name] = None if number == NULL else number
        found.append(values)
    return found


def together(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Processes in the order of their first rows, the rows of each as they stand."""
    places: dict[tuple[Any, Any], int] = {}
    for row in rows:
        places.setdefault((row["incarnation"], row["proc"]), len(places))
    return sorted(rows, key=lambda row: places[row["incarnation"], row["proc"]])


@pytest.mark.parametrize("seed", range(8))
def test_arrays_hold_what_the_files_hold(tmp_path: Path, seed: int) -> None:
    names = (*NUMBERS, *TEXTS)
    with Run.open(str(written(tmp_path / "run", seed, is_one_host=True))) as run:
        files = [item for item in run.listing.sealed if item.table == "collective"]
        found = told(read_columns(run.place, files, names, "collective"), names) if files else []
        rows = run.connection.sql(f"SELECT {', '.join(names)}, incarnation FROM collective").to_arrow_table()
        loose = sum(len(part) for part in run.unsealed.facts.get("collective", {}).values())
    assert told(as_columns(rows), names) == together(rows.to_pylist())
    assert found == together(found)
    key = str
    if not loose:
        assert sorted(found, key=key) == sorted(rows.to_pylist(), key=key)


def test_a_column_that_older_files_lack_is_null(tmp_path: Path) -> None:
    with Run.open(str(written(tmp_path / "run", 1, is_one_host=True))) as run:
        item = next(item for item in run.listing.sealed if item.table == "collective")
        older = replace(item, columns=item.columns - {"phase", "bytes_in"})
        found = read_columns(run.place, [older], ("proc", "phase", "bytes_in"), "collective")
    assert set(found.codes["phase"].tolist()) == {-1} and set(found.numbers["bytes_in"].tolist()) == {NULL}


def test_a_file_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    with Run.open(str(written(tmp_path / "run", 1, is_one_host=True))) as run:
        item = next(item for item in run.listing.sealed if item.table == "collective")
        with pytest.raises(OSError, match="changed while it was read"):
            read_columns(run.place, [replace(item, num_rows=item.num_rows + 1)], ("proc",), "collective")


def test_chunks_with_dictionaries_of_their_own(tmp_path: Path) -> None:
    chance = random.Random(3)
    chunks = [
        pa.array([chance.choice(("a", "b", None, str(number))) for _ in range(9)]).dictionary_encode()
        for number in range(4)
    ]
    whole = pa.chunked_array([*chunks, pa.array([None, None], chunks[0].type)])
    columns = as_columns(pa.table({"op": whole, "incarnation": pa.array(np.zeros(len(whole), np.int64))}))
    assert [row["op"] for row in told(columns, ("op",))] == whole.to_pylist()
