"""Pipeline logs made by hand: what an iteration needs, where iterations lie in time, which files are left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.analyzers.run import Run
from rankscope.schema.errors import InputError
from rankscope.tracer.importers.pipeline import import_pipeline
from rankscope.tracer.importers.request import Imported, Request


def iteration(total: float, **more: Any) -> dict[str, Any]:
    return {"total": total, "fwd_start": [0.5], "fwd_end": [1], "bwd_start": [1], "bwd_end": [2.25]} | more


def imported(tmp_path: Path, files: dict[str, Any]) -> Imported:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, document in files.items():
        (folder / name).write_text(json.dumps(document))
    return import_pipeline(Request((str(folder),), str(tmp_path / "run")))


def test_iterations_follow_one_another(tmp_path: Path) -> None:
    log = {"1": iteration(3), "2": iteration(4)}
    found = imported(tmp_path, {"pp_rank_0.json": log, "pp_rank_1.json": log | {"1": iteration(5)}})
    assert (found.world_size, found.num_rows) == (2, 12)
    with Run.open(str(tmp_path / "run")) as run:
        assert run.rows("SELECT step, global_step, start_ns, end_ns FROM step WHERE rank = 0 ORDER BY step") == [
            (0, 1, 0, 3_000_000), (1, 2, 5_000_000, 9_000_000)
        ]  # fmt: skip
        assert run.rows("SELECT kind, start_ns, end_ns, stage, microbatch FROM span WHERE rank = 1 AND step = 1") == [
            ("microbatch_forward", 5_500_000, 6_000_000, 1, 0), ("backward", 6_000_000, 7_250_000, 1, 0)
        ]  # fmt: skip


@pytest.mark.parametrize(
    "bad", [{"fwd_end": []}, {"bwd_end": [0.5]}, {"total": None}, {"fwd_end": [float("inf")]}, {"fwd_start": ["x"]}]
)
def test_a_bad_iteration_is_skipped_and_counted(tmp_path: Path, bad: dict[str, Any]) -> None:
    found = imported(tmp_path, {"pp_rank_0.json": {"1": iteration(3), "2": iteration(3) | bad}})
    assert [(item.num_skipped, item.num_rows) for item in found.files] == [(1, 3)]


def test_nothing_that_can_be_imported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no iteration"):
        imported(tmp_path, {"pp_rank_0.json": {"a": 1}})
