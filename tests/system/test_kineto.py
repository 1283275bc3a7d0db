"""Real GPU traces through the command line: import, verify, time; every number against the answers beside them."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import document, printed

from rankscope.cli import main

pytestmark = pytest.mark.skipif("RANKSCOPE_TEST_DATA" not in os.environ, reason="RANKSCOPE_TEST_DATA is not set")
DATA = Path(os.environ.get("RANKSCOPE_TEST_DATA", ""))
SETS = (
    "dlrm_v100_8ranks", "sampled_2_of_128", "v100_5steps", "a100_ns_collective_args", "ns_resolution", "b200_eager",
    "schema_2021_v100", "mi250_rocm62",
)  # fmt: skip
MEASURED = {
    "span_ns": "time.span", "compute_ns": "time.compute", "communication_ns": "time.communication",
    "copy_ns": "time.copy", "overlap_ns": "time.overlap", "exposed_communication_ns": "time.exposed_communication",
    "exposed_copy_ns": "time.exposed_copy", "idle_ns": "time.idle",
}  # fmt: skip
PARTS = ("time.compute", "time.exposed_communication", "time.exposed_copy", "time.exposed_other", "time.idle")


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))


def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "kineto" / "expected.json").read_text())["traces"]
    return found


def values(run: Path) -> dict[int, dict[str, Any]]:
    """Values of `rankscope time` by rank and name."""
    found: dict[int, dict[str, Any]] = {}
    for item in document("time", str(run))["measurements"]:
        found.setdefault(item["scope"]["rank"], {})[item["name"]] = item
    return found


def names_of(place: Path, *more: str) -> list[dict[str, Any]]:
    """What counted as what, in an order of its own: ties in time may come either way."""
    return sorted(document("time", str(place), *more)["names"], key=str)


def straight_from_the_traces(place: Path, ranks: Path) -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """The same, of traces that were not imported; their measurements differ in where they come from only."""
    told = document("time", str(place), "--rank-map", str(ranks))
    assert told["left_out"] == [] and told["run"]["dataset_digest"]
    found: dict[int, dict[str, Any]] = {}
    for item in told["measurements"]:
        assert item.pop("provenance")["dataset_digest"] == told["run"]["dataset_digest"]
        found.setdefault(item["scope"]["rank"], {})[item["name"]] = item
    return found, sorted(told["names"], key=str)


def without_provenance(found: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The numbers alone; what a run tells of each kind of group, only a run tells."""
    return {rank: {name: {key: told for key, told in item.items() if key != "provenance"}
                   for name, item in items.items() if not name.endswith("_by_kind")}
            for rank, items in found.items()}  # fmt: skip


def test_the_list_of_sets_is_that_of_the_answers() -> None:
    assert sorted(SETS) == sorted(expected())


@pytest.mark.parametrize("name", SETS)
def test_device_time_to_the_nanosecond(name: str, tmp_path: Path) -> None:
    ranks, run = tmp_path / "ranks.txt", tmp_path / "run"
    told = [f"{Path(row['file']).name} {row['rank'] or 0}" for row in expected()[name]]
    ranks.write_text("\n".join(told))
    imported = document("import", "kineto", str(DATA / "kineto" / name), "-o", str(run), "--rank-map", str(ranks))
    assert all(item["is_imported"] and not item["note"] for item in imported["files"])
    printed("verify", str(run))
    found = values(run)
    assert straight_from_the_traces(DATA / "kineto" / name, ranks) == (
        without_provenance(found), names_of(run),
    )  # fmt: skip
    assert len(found) == len(expected()[name])
    for row in expected()[name]:
        measured, answer = found[row["rank"] or 0], row["exact_device_events"]
        got = {key: measured[told]["value"] for key, told in MEASURED.items()}
        assert got == {key: answer[key] for key in MEASURED}
        assert measured["time.span"]["n"] == answer["num_device_events"]
        assert sum(measured[part]["value"] for part in PARTS) == answer["span_ns"]


@pytest.mark.parametrize("name", SETS)
def test_hta_mode_prints_what_hta_prints(name: str) -> None:
    found = document("time", "--hta", str(DATA / "kineto" / name))["hta"]
    assert len(found) == len(expected()[name])
    for measured, row in zip(found, expected()[name], strict=True):
        answer = {key: value for key, value in row["hta"].items() if key != "rank"}
        assert {key: measured[key] for key in answer} == answer


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Eight ranks of one job."""
    run = tmp_path_factory.mktemp("dlrm") / "run"
    printed("import", "kineto", str(DATA / "kineto" / "dlrm_v100_8ranks"), "-o", str(run))
    yield run


def test_collectives_of_eight_ranks_are_matched_in_order(dlrm: Path) -> None:
    """Kernels carry no arguments there: operation by annotation, group and sequence by the stream."""
    answers = json.loads((DATA / "kineto" / "dlrm_v100_8ranks_collectives.json").read_text())
    rows = document("query", str(dlrm), "SELECT seq, op, rank, device_start_ns, device_end_ns, issued_ns FROM "
                    "collective ORDER BY seq, rank")["rows"]  # fmt: skip
    assert len(rows) == 8 * len(answers)
    for seq, op, rank, start, end, issued in rows:
        answer = answers[seq]
        assert (start, end - start) == (1000 * answer[f"rank_{rank}_ts"], 1000 * answer[f"rank_{rank}_dur"])
        assert op == ("all_reduce" if seq in (4, 6, 7) else "all_to_all")
        assert issued <= start


def test_an_imported_run_is_an_ordinary_run(dlrm: Path) -> None:
    report = printed("report", str(dlrm))
    assert "8 ranks" in report and "missing ranks       none" in report
    assert re.search(r"coverage +100(\.0+)? %", report)
    [[kernels, spans, steps]] = document(
        "query", str(dlrm), "SELECT (SELECT count(*) FROM kernel), (SELECT count(*) FROM span), "
        "(SELECT count(*) FROM step WHERE global_step = 10 AND end_ns > start_ns)")["rows"]  # fmt: skip
    assert (kernels, steps) == (2244, 8) and spans > 0


def test_arguments_of_collectives_become_sizes_and_groups(tmp_path: Path) -> None:
    run = tmp_path / "run"
    printed("import", "kineto", str(DATA / "kineto" / "a100_ns_collective_args"), "-o", str(run))
    [[bytes_in, dtype, size]] = document(
        "query", str(run), "SELECT c.bytes_in, c.dtype, g.size FROM collective c JOIN process_group g USING (group_id) "
        "WHERE c.op = 'all_reduce' ORDER BY c.device_start_ns LIMIT 1")["rows"]  # fmt: skip
    assert (dtype, size) == ("float32", 2) and bytes_in > 0 and bytes_in % 4 == 0


def test_kernels_named_like_communication_are_pointed_out_and_can_be_mended(tmp_path: Path) -> None:
    """torch's symmetric-memory all-reduce is not in the table; a user's own line puts it there."""
    source, rules = str(DATA / "kineto" / "b200_eager"), tmp_path / "own.txt"
    printed("import", "kineto", source, "-o", str(tmp_path / "a"))
    assert "multimem_all_reduce_kernel" in printed("time", str(tmp_path / "a")).split("named like communication")[1]
    rules.write_text("communication multimem_all_reduce\n")
    printed("import", "kineto", source, "-o", str(tmp_path / "b"), "--classes", str(rules))
    text = printed("time", str(tmp_path / "b"))
    assert "named like communication" not in text
    before, after = (values(tmp_path / name)[0]["time.communication"]["value"] for name in "ab")
    assert before == 21_953 and after > 2_000_000


@pytest.mark.parametrize(
    ("name", "rank", "rows"), [("rank_non_gpu", 0, 2424), ("rank-34.Jul_15_10_52_41.1074.pt.trace", 34, 4)]
)
def test_a_trace_of_a_job_without_devices_gives_its_operators(name: str, rank: int, rows: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    imported = document(
        "import", "kineto", str(DATA / "kineto" / "rank_discovery" / f"{name}.json.gz"), "-o", str(run)
    )  # fmt: skip
    assert [item["rank"] for item in imported["files"]] == [rank]
    [[num]] = document("query", str(run), "SELECT count(*) FROM kernel WHERE category = 'cpu_op'")["rows"]
    assert num == rows
    assert "operators of the host only" in printed("time", str(run))


def test_synchronisation_records_are_no_device_work(tmp_path: Path) -> None:
    run = tmp_path / "run"
    source = DATA / "kineto" / "rank_discovery" / "event_sync_trace.json.gz"
    printed("import", "kineto", str(source), "-o", str(run))
    found = document("query", str(run), "SELECT category, count(*) FROM kernel GROUP BY ALL ORDER BY ALL")["rows"]
    assert found == [["gpu_memcpy", 1], ["kernel", 4]]


def test_a_rank_that_nobody_knows_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = DATA / "kineto" / "rank_discovery" / "rank_not_found.json.gz"
    assert main.run(["import", "kineto", str(source), "-o", str(tmp_path / "run")]) == main.BAD_INPUT
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "--rank-map" in said and not (tmp_path / "run").exists()
