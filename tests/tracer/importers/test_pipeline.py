"""Pipeline logs made by hand: what an iteration needs, where iterations lie in time, which files are left out."""

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from spoiling import damage, spoil

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
        (folder / name).write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
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
    "bad",
    [
        {"fwd_end": []},
        {"bwd_end": [0.5]},
        {"total": None},
        {"fwd_end": [float("inf")]},
        {"fwd_start": ["x"]},
        {"total": 1e300},
        {"bwd_end": [1 << 70]},
        {"fwd_start": [True]},
    ],
)
def test_a_bad_iteration_is_skipped_and_counted(tmp_path: Path, bad: dict[str, Any]) -> None:
    found = imported(tmp_path, {"pp_rank_0.json": {"1": iteration(3), "2": iteration(3) | bad}})
    assert [(item.num_skipped, item.num_rows) for item in found.files] == [(1, 3)]
    assert "1 iterations" in found.files[0].note
    with Run.open(str(tmp_path / "run")) as run:
        assert run.rows("SELECT num_records, num_dropped FROM process") == [(4, 1)]


def test_nothing_that_can_be_imported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no iteration"):
        imported(tmp_path, {"pp_rank_0.json": {"a": 1}})


@pytest.mark.parametrize("seed", range(int(os.environ.get("RANKSCOPE_FUZZ_SEEDS", "8"))))
def test_whatever_a_log_holds_it_never_costs_another_rank(seed: int, tmp_path: Path) -> None:
    random, log = Random(seed), {str(number): iteration(3) for number in range(4)}
    odd = damage(json.dumps(spoil(log, random)).encode(), random)
    config = spoil({"pp_size": 3, "vp_size": 1, "dp_size": 2, "world_size": 6}, random)
    found = imported(tmp_path, {"config.json": config, "pp_rank_0.json": odd, "pp_rank_1.json": log})
    files = {Path(item.path).name: item for item in found.files}
    assert files["pp_rank_1.json"].num_rows == 12 and files["pp_rank_1.json"].note == ""
    assert files["pp_rank_0.json"].is_imported or files["pp_rank_0.json"].note
    with Run.open(str(tmp_path / "run")) as run:
        assert run.rows("SELECT count(*) FROM span WHERE rank = 1") == [(8,)]


def test_one_bad_file_two_of_a_rank_and_a_missing_rank(tmp_path: Path) -> None:
    log = {"1": iteration(3)}
    bad = json.dumps(log).encode()
    found = imported(tmp_path, {
        "config.json": {"pp_size": 5}, "pp_rank_0.json": log, "pp_rank_1.json": bad[:30],
        "pp_rank_2.json": bad.replace(b"total", b"tot\xffal"), "rank_0_again.json": log, "who.json": log,
        "pp_rank_3.json": b"",
    })  # fmt: skip
    told = {Path(item.path).name: (item.is_imported, item.note) for item in found.files}
    assert told["pp_rank_0.json"] == (True, "") and told["rank_0_again.json"] == (False, "another file is of rank 0")
    for name in ("pp_rank_1.json", "pp_rank_2.json", "pp_rank_3.json"):
        assert not told[name][0] and told[name][1].startswith("not JSON")
    assert "--rank-map" in told["who.json"][1] and found.missing == (1, 2, 3, 4)


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file that ends in"):
        imported(tmp_path, {})
