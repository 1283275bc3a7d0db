"""Eight real ranks through import and `rankscope collectives`: waits and skews of each as worked out apart."""

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli import main

pytestmark = pytest.mark.skipif("RANKSCOPE_TEST_DATA" not in os.environ, reason="RANKSCOPE_TEST_DATA is not set")
DATA = Path(os.environ.get("RANKSCOPE_TEST_DATA", "")) / "kineto"
US = 1000


def rankscope(*arguments: str) -> str:
    """What a command printed; it must end well."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main.run(list(arguments)) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("dlrm") / "run"
    rankscope("import", "kineto", str(DATA / "dlrm_v100_8ranks"), "-o", str(run))
    return run


def test_waits_and_skews_of_eight_ranks(dlrm: Path) -> None:
    answers = json.loads((DATA / "dlrm_v100_8ranks_collectives.json").read_text())
    found: dict[str, Any] = json.loads(rankscope("collectives", str(dlrm), "--json", "--operations", "all"))
    assert [item["seq"] for item in found["operations"]] == [int(answer["collective_id"]) for answer in answers]
    for operation, answer in zip(found["operations"], answers, strict=True):
        waits = {member["rank"]: member["wait_ns"] for member in operation["members"]}
        assert waits == {rank: US * answer[f"rank_{rank}_wait_time"] for rank in range(8)}
        starts = [member["arrival_ns"] for member in operation["members"]]
        assert max(starts) - min(starts) == US * answer["skew in start time"]
        assert operation["end_skew_ns"] == US * answer["skew in end time"]
        assert operation["wait_ns"] == 8 * US * answer["avg_wait_time"]
        assert waits[operation["last_rank"]] == 0  # the last one waits for nobody
        assert operation["timing_source"] == "device" and operation["size_bytes"] is operation["busbw"] is None
    caused = {item["scope"]["rank"]: item["value"] for item in found["measurements"]
              if item["name"] == "collective.wait_caused"}  # fmt: skip
    assert sum(caused.values()) == round(8 * US * sum(answer["avg_wait_time"] for answer in answers))


def test_what_people_see(dlrm: Path) -> None:
    text = rankscope("collectives", str(dlrm), "--operations", "1")
    assert "8 matched collectives 97 % is waiting" in text
    assert "all_to_all 0 in world, step 0: rank 7 last, transfer 10.0 µs, end skew 2.00 µs" in text
    lines = [line.split() for line in text.splitlines() if line.strip().startswith("rank ") and "waited" in line]
    assert [line[1] for line in lines[1:]] == ["7", "6", "2", "0", "5", "4", "3", "1"]


def test_traces_of_two_ranks_in_a_hundred_name_nobody_wrongly(tmp_path: Path) -> None:
    """Two of 128 ranks: what the numbers of their operations put together and does not end together is left out."""
    run = tmp_path / "run"
    rankscope("import", "kineto", str(DATA / "sampled_2_of_128"), "-o", str(run))
    found = json.loads(rankscope("collectives", str(run), "--json"))
    assert sum(item["num_operations"] for item in found["unmatched"]) > 0
    assert {item["reason"] for item in found["unmatched"]} == {
        "it seems to end before its last member came: its times contradict each other",
        "not every member left a row of it",
    }
