"""An imported run answered from its files: every number is that of the database, or the files are not taken at all."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from rankscope.analyzers import small_run
from rankscope.analyzers.coverage import coverage
from rankscope.analyzers.exposure import exposure
from rankscope.analyzers.run import Run
from rankscope.analyzers.small_time import SmallTimes, small_times
from rankscope.analyzers.time import times
from rankscope.schema.measurement import Measurement
from rankscope.tracer.importers.kineto import import_kineto
from rankscope.tracer.importers.request import Request

US = 1_700_000_000_000_000
NAMES = (
    "gemm",
    "ncclDevKernel_AllReduce_Sum_f32",
    "ncclDevKernel_AllGather",
    "Memcpy DtoD",
    "relu",
    "broadcast_kernel",
)


def trace(seed: int, rank: int) -> dict[str, Any]:
    """Kernels on two devices and several streams that overlap, touch, lie in each other and last no time at all."""
    draw, events = random.Random(seed * 100 + rank), list[dict[str, Any]]()
    for at in range(draw.randrange(1, 120)):
        name = draw.choice(NAMES)
        arguments: dict[str, Any] = {
            "device": draw.choice((0, 0, 0, 1)),
            "stream": draw.choice((7, 20, 24)),
            "correlation": at,
        }
        if name.startswith("nccl") and draw.random() < 0.7:
            arguments |= {"Collective name": draw.choice(("allreduce", "_allgather_base")),
                          "Process Group Name": draw.choice(("0", "5")), "Process Group Ranks": "[0, 1]",
                          "Process Group Description": "mesh_tp", "dtype": "Float", "In msg nelems": 8}  # fmt: skip
        category = "gpu_memcpy" if name.startswith("Mem") else "kernel"
        events.append({"ph": "X", "cat": category, "name": name, "ts": US + draw.randrange(200),
                       "dur": draw.choice((0, 1, 5, 40)), "args": arguments})  # fmt: skip
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": US + at, "dur": 1,
                       "args": {"correlation": at}})  # fmt: skip
    events.append({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": US, "dur": 150})
    events.append({"ph": "X", "cat": "user_annotation", "name": "part", "ts": US + 3, "dur": 5})
    return {"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 3, "backend": "nccl"}}


def imported(folder: Path, seed: int = 1, ranks: int = 2) -> Path:
    (folder / "in").mkdir(parents=True)
    for rank in range(ranks):
        (folder / f"in/rank{rank}.json").write_text(json.dumps(trace(seed, rank)))
    import_kineto(Request((str(folder / "in"),), str(folder / "run")))
    return folder / "run"


def told(found: tuple[Measurement, ...]) -> list[dict[str, Any]]:
    """Everything but the database's version."""
    rows = [item.as_json() for item in found]
    return [row | {"provenance": row["provenance"] | {"duckdb_version": ""}} for row in rows]


def assert_same(run: Path, small: SmallTimes | None) -> None:
    assert small is not None
    with Run.open(str(run)) as reader:
        covered = coverage(reader).coverage.value
        assert covered is None or isinstance(covered, float)
        whole = times(reader, covered)
        assert told(small.times.measurements) == told(whole.measurements)
        assert (small.times.names, small.times.suspects) == (whole.names, whole.suspects)
        assert small.run.run_id == reader.run_id and small.run.digest == reader.digest
        if reader.size("collective").num_rows:
            assert small.exposure is not None
            shared = exposure(reader, covered)
            assert small.exposure.parts == shared.parts
            assert told(small.exposure.measurements) == told(shared.measurements)
        else:
            assert small.exposure is None


@pytest.mark.parametrize("seed", range(8))
def test_every_number_is_that_of_the_database(tmp_path: Path, seed: int) -> None:
    run = imported(tmp_path, seed, ranks=1 + seed % 3)
    assert_same(run, small_times(str(run)))


def test_two_devices_are_told_apart(tmp_path: Path) -> None:
    small = small_times(str(imported(tmp_path, seed=2)))
    assert small is not None
    assert {line.device for line in small.times.timelines} == {"device 0", "device 1"}


def test_many_rows_are_left_to_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = imported(tmp_path)
    monkeypatch.setattr(small_run, "MAX_ROWS", 10)
    assert small_times(str(run)) is None


def test_what_is_out_of_the_ordinary_is_left_to_the_database(tmp_path: Path) -> None:
    run = imported(tmp_path / "a")
    (run / "stray.txt").write_text("not of the run")
    assert small_times(str(run)) is None
    (run / "stray.txt").unlink()
    assert small_times(str(run)) is not None
    [kernels] = run.glob("kernel/**/*.parquet")
    whole = kernels.read_bytes()
    kernels.write_bytes(whole[: len(whole) // 2])
    assert small_times(str(run)) is None
    kernels.write_bytes(whole)
    shutil.copy(kernels, kernels.with_name("twice.parquet"))
    assert small_times(str(run)) is None
    assert small_times(str(tmp_path / "nowhere")) is None


def test_a_page_that_is_damaged_inside_is_left_to_the_database(tmp_path: Path) -> None:
    run = imported(tmp_path)
    [kernels] = run.glob("kernel/**/*.parquet")
    whole = bytearray(kernels.read_bytes())
    whole[4:400] = bytes(396)
    kernels.write_bytes(whole)
    assert small_times(str(run)) is None


def test_a_run_of_host_operators_only_has_no_timeline(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": US, "dur": 3}
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [event], "distributedInfo": {"rank": 0}}))
    import_kineto(Request((str(tmp_path / "a.json"),), str(tmp_path / "run")))
    assert small_times(str(tmp_path / "run")) is None
