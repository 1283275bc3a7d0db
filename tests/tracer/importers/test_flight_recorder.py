"""Flight-recorder dumps made by hand: what a pickle may hold, what is a dump, whose it is, what its status tells."""

import json
import os
import pickle
from pathlib import Path
from random import Random
from typing import Any

import pytest
from run_rows import rows
from spoiling import damage, spoil

from rankscope.schema.errors import InputError, NoEvidence, UnreadableFile
from rankscope.tracer.importers.flight_recorder import group_id, import_flight_recorder
from rankscope.tracer.importers.flight_recorder_dump import read_dump
from rankscope.tracer.importers.request import Imported, Request


def entry(seq: int, **more: Any) -> dict[str, Any]:
    return {
        "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce", "time_created_ns": 1000 + seq, "input_sizes": [[4, 5]],
        "input_dtypes": ["BFloat16"], "output_sizes": [[4, 5]], "output_dtypes": ["BFloat16"], "state": "scheduled",
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "is_p2p": False,
    } | more  # fmt: skip


def dump(*entries: dict[str, Any], ranks: str = "[0, 1]", enqueued: int = 7, completed: int = 6) -> dict[str, Any]:
    return {
        "version": "2.9", "entries": list(entries),
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": enqueued, "last_completed_collective": completed}},
    }  # fmt: skip


def imported(tmp_path: Path, dumps: dict[str, Any], **more: Any) -> Imported:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for name, document in dumps.items():
        body = document if isinstance(document, bytes) else pickle.dumps(document)
        (folder / name).write_bytes(json.dumps(document).encode() if name.endswith(".json") else body)
    return import_flight_recorder(Request((str(folder),), str(tmp_path / "run"), **more))


def test_pickle_and_json_are_the_same_rows(tmp_path: Path) -> None:
    found = imported(tmp_path, {"dump_0": dump(entry(7)), "dump_1.json": dump(entry(7))})
    assert [(item.rank, item.num_rows, item.is_imported) for item in found.files] == [(0, 2, True), (1, 2, True)]
    columns = "rank, group_id, op, dtype, bytes_in, seq, state, timing_source, issued_ns, completed_ns"
    assert rows(tmp_path, f"SELECT {columns} FROM collective WHERE op IS NOT NULL ORDER BY rank") == [
        (rank, group_id("0"), "all_reduce", "bfloat16", 40, 7, "issued", None, 1007, None) for rank in (0, 1)
    ]


def test_an_empty_dump_tells_how_far_its_rank_came(tmp_path: Path) -> None:
    found = imported(tmp_path, {"dump_0": dump(entry(7)), "dump_1": dump(enqueued=6)})
    assert found.files[1].is_imported and "empty record" in found.files[1].note
    status = "SELECT rank, op, seq, state FROM collective WHERE op IS NULL ORDER BY rank"
    assert rows(tmp_path, status) == [(0, None, 6, "completed"), (1, None, 6, "completed")]


def test_a_status_that_counts_sends_too_is_not_believed(tmp_path: Path) -> None:
    send = entry(2, profiling_name="nccl:send 1->0", p2p_seq_id=5, is_p2p=True)
    imported(tmp_path, {"dump_4": dump(send, ranks="[3, 4]"), "dump_3": dump(ranks="[3, 4]")})
    assert rows(tmp_path, "SELECT rank, op, src, dst, seq FROM collective") == [(4, "send", 4, 3, 5)]


def test_members_are_united_and_missing_files_counted(tmp_path: Path) -> None:
    found = imported(tmp_path, {"dump_0": dump(entry(7), ranks="[0, 3]"), "dump_1": dump(entry(7), ranks="[1]")})
    assert (found.world_size, found.missing) == (4, (2, 3))
    assert rows(tmp_path, "SELECT size, description FROM process_group") == [(3, "default_pg")]


def test_ranks_by_map_and_logs_are_left_alone(tmp_path: Path) -> None:
    found = imported(
        tmp_path, {"first": dump(entry(7)), "dump_0": dump(entry(7)), "fault.log": b"x"}, ranks={"first": 1}
    )
    assert sorted((os.path.basename(item.path), item.rank) for item in found.files) == [("dump_0", 0), ("first", 1)]


def test_one_bad_file_does_not_cost_the_others(tmp_path: Path) -> None:
    found = imported(
        tmp_path, {"dump_0": dump(entry(7), {"state": "cut"}), "dump_1": pickle.dumps(dump(entry(7)))[:-20]}
    )
    assert [(item.is_imported, item.num_skipped) for item in found.files] == [(True, 1), (False, 0)]
    assert found.missing == (1,)


class _Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (os.system, ("touch owned",))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (pickle.dumps(_Evil()), "asks for"),
        (pickle.dumps([1]), "not a dump"),
        (b'{"entries": []}', "names no version"),
        (b'{"entries": [', "neither a pickle nor JSON"),
        (json.dumps(dump(ranks="[0, ")).encode(), "tables of groups"),
    ],
)
def test_what_is_no_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump_0").write_bytes(body)
    with pytest.raises(UnreadableFile, match=says):
        read_dump("dump_0")
    with pytest.raises(InputError):
        import_flight_recorder(Request(("dump_0",), str(tmp_path / "run")))
    assert not (tmp_path / "owned").exists() and not (tmp_path / "run" / "run.json").exists()


def test_a_folder_without_dumps(tmp_path: Path) -> None:
    with pytest.raises(NoEvidence, match="ends in a rank"):
        imported(tmp_path, {"fault.log": b"x"})


@pytest.mark.parametrize(
    "bad",
    [
        {"collective_seq_id": "7"}, {"p2p_seq_id": None}, {"time_created_ns": 1 << 70}, {"time_created_ns": "now"},
        {"process_group": None}, {"pg_id": "first"}, {"time_discovered_started_ns": 0.5},
    ],
)  # fmt: skip
def test_an_entry_with_something_else_in_its_place_is_skipped_and_counted(tmp_path: Path, bad: dict[str, Any]) -> None:
    found = imported(tmp_path, {"dump_0": dump(entry(7), entry(6, **bad)), "dump_1": dump(entry(7))})
    assert [(item.num_skipped, item.note) for item in found.files] == [(1, "1 damaged entries were skipped"), (0, "")]
    assert rows(tmp_path, "SELECT count(*) FROM collective WHERE op IS NOT NULL") == [(2,)]
    assert rows(tmp_path, "SELECT num_dropped FROM process ORDER BY rank") == [(1,), (0,)]


@pytest.mark.parametrize("sizes", [[["a"]], [None], 5, [[-4]], [[1 << 62, 4]], []])
def test_odd_sizes_are_no_bytes(tmp_path: Path, sizes: Any) -> None:
    imported(tmp_path, {"dump_0": dump(entry(7, input_sizes=sizes))})
    assert rows(tmp_path, "SELECT bytes_in, bytes_out FROM collective WHERE op IS NOT NULL") == [(None, 40)]


@pytest.mark.parametrize("seed", range(int(os.environ.get("RANKSCOPE_FUZZ_SEEDS", "8"))))
@pytest.mark.parametrize("is_json", [True, False], ids=["JSON", "pickle"])
def test_whatever_a_dump_holds_it_never_costs_another_rank(seed: int, is_json: bool, tmp_path: Path) -> None:
    random = Random(seed)
    odd = spoil(dump(entry(7), entry(6, is_p2p=True, profiling_name="nccl:send 0->1")), random)
    body = damage(json.dumps(odd).encode() if is_json else pickle.dumps(odd), random)
    found = imported(tmp_path, {"dump_0": body, "dump_1": dump(entry(7))})
    assert [item.is_imported for item in found.files][1:] == [True]
    assert found.files[0].is_imported or found.files[0].note
    assert rows(tmp_path, "SELECT count(*) FROM collective WHERE rank = 1 AND op IS NOT NULL") == [(1,)]


def test_two_dumps_of_one_rank_text_that_is_no_utf_8_and_a_missing_rank(tmp_path: Path) -> None:
    """The first of a rank counts."""
    bad = json.dumps(dump(entry(7))).encode().replace(b"default_pg", b"default\xff\xfe")
    found = imported(tmp_path, {"a_0": dump(entry(7), ranks="[0, 1, 2]"), "b_0": dump(entry(7)), "c_1": bad})
    assert [item.is_imported for item in found.files] == [True, False, False]
    assert found.files[1].note == "another file is of rank 0" and "JSON" in found.files[2].note
    assert found.missing == (1, 2)
