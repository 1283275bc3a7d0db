"""`rankscope time TRACES`: traces made here, answered without a run; what is wrong with one never costs the others."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import Command

US = 1_700_000_000_000_000


def kernel(at: int, duration: int, name: str = "gemm", category: str = "kernel", device: int = 0) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": US + at, "dur": duration,
            "args": {"device": device, "stream": 7, "correlation": at + 1}}  # fmt: skip


def write(path: Path, *events: dict[str, Any], rank: int | None = 0) -> Path:
    document: dict[str, Any] = {"traceEvents": list(events)}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document if rank is None else document | {"distributedInfo": {"rank": rank}}))
    return path


EXAMPLE = (kernel(0, 10), kernel(5, 15, "ncclKernel_AllReduce"), kernel(18, 7, "Memcpy DtoD", "gpu_memcpy"),
           kernel(30, 1))  # fmt: skip
"""Compute 11, communication 15 of which 10 exposed, a copy of 7 of which 5 exposed, idle 5: of 31 microseconds."""
PARTS = {"time.span": 31, "time.compute": 11, "time.communication": 15, "time.copy": 7, "time.overlap": 5,
         "time.exposed_communication": 10, "time.exposed_copy": 5, "time.exposed_other": 0, "time.idle": 5}  # fmt: skip


def measured(rankscope: Command, *arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    ran = rankscope("time", *arguments, "--json")
    assert ran.status == 0, ran
    found: dict[str, Any] = json.loads(ran.out)
    values: dict[str, Any] = {}
    for item in found["measurements"]:
        scope = item["scope"]
        key = f"{scope['rank']}" + (f" {scope['device']}" if "device" in scope else "")
        values.setdefault(key, {})[item["name"]] = item["value"]
    return found, values


def test_the_division_worked_out_by_hand(rankscope: Command, tmp_path: Path) -> None:
    found, values = measured(rankscope, str(write(tmp_path / "a.json", *EXAMPLE)))
    assert {name: values["0"][name] for name in PARTS} == {name: 1000 * us for name, us in PARTS.items()}
    assert values["0"]["ratio.overlap"] == pytest.approx(1 / 3)
    assert found["names"][0] == {"class": "communication", "name": "ncclKernel_AllReduce", "num": 1, "total_ns": 15_000}
    assert found["left_out"] == []


def test_two_devices_and_two_windows_of_one_rank(rankscope: Command, tmp_path: Path) -> None:
    write(tmp_path / "in/a.json", *EXAMPLE, kernel(3, 2, device=1))
    write(tmp_path / "in/b.json", kernel(1000, 10), kernel(1001, 3, device=1))
    _, values = measured(rankscope, str(tmp_path / "in"))
    assert set(values) == {"0 device 0", "0 device 1"}
    assert values["0 device 0"]["time.span"] == 1_010_000 and values["0 device 0"]["time.compute"] == 21_000
    assert values["0 device 1"]["time.compute"] == 5_000


def test_what_is_wrong_with_one_file_costs_only_that_file(rankscope: Command, tmp_path: Path) -> None:
    good = write(tmp_path / "in/good.json", *EXAMPLE)
    write(tmp_path / "in/twice.json", *EXAMPLE)
    write(tmp_path / "in/who.json", *EXAMPLE, rank=None)
    write(tmp_path / "in/host.json", {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": US, "dur": 3}, rank=5)
    (tmp_path / "in/text.json").write_text("not a trace")
    packed = gzip.compress(json.dumps({"distributedInfo": {"rank": 3}, "traceEvents": list(EXAMPLE) * 999}).encode(), 1)
    (tmp_path / "in/cut.json.gz").write_bytes(packed[: len(packed) // 2])
    found, values = measured(rankscope, str(tmp_path / "in"))
    assert values["0"]["time.span"] == 31_000 and set(values) == {"0", "3"}
    told = {line.partition(": ")[0].rpartition("/")[2]: line for line in found["left_out"]}
    assert set(told) == {"twice.json", "who.json", "host.json", "text.json", "cut.json.gz"}
    assert "another file is of rank 0" in told["twice.json"] and "--rank-map" in told["who.json"]
    assert "no activity of a device" in told["host.json"] and "not a Kineto trace" in told["text.json"]
    assert "a part of it: the gzip data end early" in told["cut.json.gz"]
    assert good.exists() and sorted(path.name for path in tmp_path.iterdir()) == ["here", "in"]


def test_the_table_says_what_was_left_out(rankscope: Command, tmp_path: Path) -> None:
    write(tmp_path / "in/a.json", *EXAMPLE)
    (tmp_path / "in/b.json").write_text("[]")
    ran = rankscope("time", str(tmp_path / "in"))
    assert ran.status == 0 and "35.5" in ran.out and f"left out: {tmp_path}/in/b.json: " in ran.out


@pytest.mark.parametrize("content", ["", "{}", "nothing", '{"traceEvents": []}'])
def test_no_trace_at_all_is_one_line(rankscope: Command, tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    ran = rankscope("time", str(path))
    assert (ran.status, ran.out) == (2, "") and ran.err.count("\n") == 1 and str(path) in ran.err


def test_a_file_that_is_no_trace_and_an_empty_folder(rankscope: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    for place in ("a.txt", "empty"):
        ran = rankscope("time", str(tmp_path / place))
        assert (ran.status, ran.out) == (2, "") and ran.err.count("\n") == 1 and place in ran.err


def test_traces_are_answered_without_a_database() -> None:
    """A second or so of loading is longer than the work."""
    program = (
        "import sys, json; from rankscope.cli.main import run;"
        "open('a.json', 'w').write(json.dumps({'traceEvents': " + repr(list(EXAMPLE)) + "}));"
        "status = run(['time', 'a.json', '--json']);"
        "sys.exit(status or ', '.join({'duckdb', 'numpy', 'pyarrow', 'rich', 'torch'} & set(sys.modules)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_so_is_a_small_run_that_was_imported(rankscope: Command, tmp_path: Path) -> None:
    write(tmp_path / "a.json", *EXAMPLE)
    assert rankscope("import", "kineto", str(tmp_path / "a.json"), "-o", str(tmp_path / "run")).status == 0
    program = (
        "import sys; from rankscope.cli.main import run;"
        f"status = run(['time', {str(tmp_path / 'run')!r}, '--json']);"
        "sys.exit(status or ', '.join({'duckdb', 'pyarrow.compute', 'rich', 'torch'} & set(sys.modules)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "") and '"value": 31000' in ran.stdout
