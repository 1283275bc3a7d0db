"""Mounts against answers worked out by hand."""

from pathlib import Path

from run_builder import MS, NODE, RunBuilder

from rankscope.analyzers.run import Run
from rankscope.analyzers.storage import Mount, storage


def found(build: RunBuilder) -> tuple[Mount, ...]:
    build.entities()
    with Run.open(str(build.seal())) as run:
        return storage(run).mounts


def test_bytes_and_latency_over_all_operations(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    readings = ((0, 0, 0, None), (1000, 500, 10, 2_000), (1000, 500, 10, None), (4000, 500, 40, 6_000))
    for at, (read, written, operations, latency) in enumerate(readings):
        build.add("mount_sample", 0, node=NODE, mount="/data", kind="nfs", time_ns=at * MS, read_bytes=read,
                  write_bytes=written, num_operations=operations, latency_ns=latency)  # fmt: skip
        build.add("mount_sample", 0, node=NODE, mount="/mute", kind="nfs", time_ns=at * MS,
                  reason={"read_bytes": "not counted", "latency_ns": "not timed"})  # fmt: skip
    data, mute = found(build)
    assert (data.read.value, data.written.value, data.num_operations) == (4000, 500, 40)
    assert data.latency.value == (10 * 2_000 + 30 * 6_000) // 40 and data.most_latency_ns == 6_000
    assert data.latency.n == 40 and data.series == (1_500_000, 0, 3_000_000)
    assert mute.read.value is None and mute.read.reason == "not counted" and mute.latency.reason == "not timed"


def test_one_reading_is_no_difference_and_none_is_nothing(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.add("mount_sample", 0, node=NODE, mount="/", kind="local", time_ns=0, read_bytes=1, write_bytes=1)
    (only,) = found(build)
    assert only.read.value is None and "only one reading" in only.read.reason
    empty = RunBuilder(tmp_path / "empty")
    empty.step(0, 0, 0, 1)
    assert found(empty) == ()
