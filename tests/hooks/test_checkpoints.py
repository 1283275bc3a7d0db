"""Checkpoints in one process: rows against the files on disk, failures, what is no checkpoint, digests."""

import io
import threading
import time
import warnings
from contextlib import ExitStack
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

from rankscope.hooks import base, checkpoint_extent
from rankscope.schema.enums import code

dcp: Any = torch.distributed.checkpoint  # torch re-exports its functions here without saying so
STATE = {"a": torch.arange(1000.0), "b": torch.ones(3)}
HOOKS = ("steps", "checkpoints", "distributed_checkpoints", "safetensors_files")


@pytest.fixture
def log(recorder, install, monkeypatch):
    monkeypatch.setattr(base, "redact", str)
    with ExitStack() as undo, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of its own checkpoints
        install(recorder, undo, *HOOKS)
        yield recorder


def lines(recorder):
    return [body["row"] for kind, body in recorder.lines if kind == "row" and body["table"] == "checkpoint"]


def rows(recorder):
    """The last row of each operation, in order."""
    return list({row["record"]: row for row in lines(recorder)}.values())


def settled(recorder):
    """As `rows`, once no save is in progress: a future wakes who waits for it before its callbacks have run."""
    until = time.monotonic() + 30
    while any(row["outcome"] == "unfinished" for row in rows(recorder)) and time.monotonic() < until:
        time.sleep(0.001)
    return rows(recorder)


def on_disk(path):
    files = [path] if path.is_file() else list(path.iterdir())
    return len(files), sum(file.stat().st_size for file in files)


def _by_path(path):
    torch.save(STATE, path)
    torch.load(path)


def _by_file(path):
    with path.open("wb") as file:
        torch.save(STATE, file)
    with path.open("rb") as file:
        torch.load(file)


def _by_old_format(path):
    torch.save(STATE, str(path), _use_new_zipfile_serialization=False)
    torch.load(str(path))


def _by_safetensors(path):
    safetensors.torch.save_file(STATE, path)
    safetensors.torch.load_file(filename=path)


def _shared(path):
    dcp.save(dict(STATE), checkpoint_id=path)
    dcp.load({name: torch.empty_like(value) for name, value in STATE.items()}, checkpoint_id=path)


def _shared_by_storage(path):
    dcp.save(dict(STATE), storage_writer=FileSystemWriter(path, thread_count=3))
    dcp.load({name: torch.empty_like(value) for name, value in STATE.items()}, storage_reader=FileSystemReader(path))


@pytest.mark.parametrize(
    "act, form",
    [(_by_path, "torch"), (_by_file, "torch"), (_by_old_format, "torch"), (_by_safetensors, "safetensors"),
     (_shared, "dcp"), (_shared_by_storage, "dcp")],
    ids=lambda value: getattr(value, "__name__", value),
)  # fmt: skip
def test_a_save_and_a_load_equal_the_disk(log, tmp_path, act, form):
    path = tmp_path / "checkpoint"
    act(path)
    save, load = rows(log)
    assert [save["action"], load["action"]] == ["save", "load"] and save["world_size"] == 1
    assert (save["num_files"], save["bytes"]) == on_disk(path)
    # Of what threads wrote, a load opens only what it needs: not the empty files.
    assert load["bytes"] == save["bytes"] and load["num_files"] <= save["num_files"]
    for row in (save, load):
        assert (row["path"], row["format"], row["mode"], row["outcome"]) == (str(path), form, "sync", "ok")
    if form == "dcp":
        assert (load["whole_files"], load["whole_bytes"], load["read_ratio"]) == (*on_disk(path), 1.0)
        assert row["start_ns"] < row["blocking_end_ns"] == row["end_ns"]
    begun = [row for row in lines(log) if row["outcome"] == "unfinished"]
    assert len(begun) == 2 and all("end_ns" not in row for row in begun)
    assert log.spans() == [f"checkpoint:{form} save", f"checkpoint:{form} load"] and log.phase == 0


def test_a_load_of_some_keys_says_which_share(log, tmp_path):
    path = tmp_path / "checkpoint"
    dcp.save(dict(STATE), checkpoint_id=path)
    (path / "config.json").write_text("{}")
    (path / "__7_0.distcp").write_bytes(b"left over from a larger world")
    disk = on_disk(path)
    dcp.load({"b": torch.empty_like(STATE["b"])}, checkpoint_id=path)
    save, load = rows(log)
    assert (load["whole_files"], load["whole_bytes"]) == (save["num_files"], save["bytes"])
    assert disk[0] == load["whole_files"] + 2
    lengths = {index.fqn: info.length for index, info in FileSystemReader(path).read_metadata().storage_data.items()}
    assert load["read_ratio"] == lengths["b"] / (lengths["a"] + lengths["b"])


def test_a_crowd_of_files_that_the_metadata_does_not_name_is_not_looked_at(log, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_extent, "MAX_UNNAMED", 1)
    path = tmp_path / "checkpoint"
    dcp.save(dict(STATE), checkpoint_id=path)
    for writer in (3, 4):
        (path / f"__{writer}_0.distcp").touch()
    dcp.load(dict(STATE), checkpoint_id=path)
    load = rows(log)[-1]
    assert "whole_files" not in load and load["whole_bytes"] == on_disk(path)[1]


class Slow(FileSystemWriter):
    """Writes when it is told to."""

    def __init__(self, path):
        super().__init__(path)
        self.may_write = threading.Event()

    def write_data(self, plan, planner):
        assert self.may_write.wait(30)
        return super().write_data(plan, planner)


def test_the_background_part_of_an_asynchronous_save(log, tmp_path):
    writer = Slow(tmp_path / "async")
    future = dcp.async_save(dict(STATE), storage_writer=writer)
    (row,) = rows(log)
    assert row["outcome"] == "unfinished" and row["blocking_end_ns"] > row["start_ns"] and "end_ns" not in row
    assert log.phase == 0
    torch.save(STATE, tmp_path / "meanwhile")
    writer.may_write.set()
    future.result()
    row, other = settled(log)
    assert (row["mode"], row["outcome"], row["path"]) == ("async", "ok", str(tmp_path / "async"))
    assert (row["num_files"], row["bytes"]) == on_disk(tmp_path / "async")
    assert row["blocking_end_ns"] < other["start_ns"] < row["end_ns"]
    assert log.spans() == ["checkpoint:dcp save", "checkpoint:torch save"]


def test_failures_pass_and_are_told(log, tmp_path):
    with pytest.raises(RuntimeError):
        torch.save(STATE, tmp_path / "no folder" / "file")
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "nothing")
    with pytest.raises(dcp.api.CheckpointException):
        dcp.load(dict(STATE), checkpoint_id=tmp_path / "nothing")

    class Broken(FileSystemWriter):
        def write_data(self, plan, planner):
            raise OSError("disk full")

    future = dcp.async_save(dict(STATE), storage_writer=Broken(tmp_path / "broken"))
    with pytest.raises(dcp.api.CheckpointException):
        future.result()
    failed = settled(log)
    assert [row["outcome"] for row in failed] == ["failed"] * 4
    assert [row["mode"] for row in failed] == ["sync"] * 3 + ["async"] and log.phase == 0


def test_what_is_no_checkpoint(log, tmp_path):
    buffer = io.BytesIO()
    torch.save(STATE, buffer)
    buffer.seek(0)
    torch.load(buffer)
    torch.save(STATE, tmp_path / "sample")
    log.phase = code("phase", "data")
    torch.load(tmp_path / "sample")
    assert [row["action"] for row in rows(log)] == ["save"]


def test_the_step_of_a_checkpoint_is_left_out(log, tmp_path):
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter])
    for step in range(4):
        if step == 2:
            log.global_step = 102
            torch.save(STATE, tmp_path / "file")
        optimizer.step()
    (row,) = rows(log)
    assert (row["step"], row["global_step"]) == (2, 102)
    assert [row.values["left_out"] for row in log.of("step")] == [
        code("left_out", "warmup"), 0, code("left_out", "checkpoint"),
        0,
    ]  # fmt: skip


def test_digests_on_request(recorder, install, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSCOPE_CHECKPOINT_DIGESTS", "1")
    with ExitStack() as undo:
        install(recorder, undo, *HOOKS)
        for name in ("one", "two"):
            torch.save(STATE, tmp_path / name)
            torch.load(tmp_path / name)
        torch.save({"a": STATE["b"]}, tmp_path / "one")
        for thread in threading.enumerate():
            if thread.name == "rankscope-digest":
                thread.join(10)
    digests = [row["digest"] for row in rows(recorder)]
    assert digests[0] == digests[1] and digests[2] == digests[3]
    assert len(set(digests)) == 3 and all(len(digest) == 16 for digest in digests)
    assert {row["path"] for row in rows(recorder)} == {"[redacted]"}
