"""Data loading and checkpoints of real jobs: against delays that were planted, samples drawn, and files on disk."""

import json
from pathlib import Path

import numpy as np
import pytest
from torch.distributed.checkpoint.filesystem import FileSystemReader

from rankscope.analyzers.checkpoints import checkpoints
from rankscope.analyzers.loading import loading
from rankscope.analyzers.run import Run
from rankscope.cli import main
from rankscope.schema.sample_indices import digest, signed

pytestmark = [pytest.mark.system, pytest.mark.slow]

JOB = Path(__file__).parent / "jobs" / "inputs.py"
DELAY_NS, SIZE = 50_000_000, 50


@pytest.fixture
def run_job(torchrun, tmp_path, monkeypatch):
    """`run_job(nproc, *parts) -> (open run, folder of the job's own notes)`."""
    opened = []

    def start(nproc, *parts):
        out = tmp_path / "out"
        out.mkdir()
        environment = {"INPUTS_OUT": str(out), "INPUTS_PARTS": ",".join(parts), "RANKSCOPE_AGENT": "now"}
        job = torchrun(JOB, nproc, env=environment).check()
        job.settle()
        monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
        opened.append(Run.open(str(job.run_dir)))
        return opened[-1], out

    yield start
    for run in opened:
        run.close()


@pytest.mark.timeout(900)
def test_planted_delays_and_samples_of_four_ranks(run_job):
    run, out = run_job(4, "data")
    notes = [json.loads((out / f"{rank}.json").read_text()) for rank in range(4)]
    _check_batches(run, notes)
    found = loading(run)
    per_rank = -(-SIZE // 4)
    assert len(found.epochs) == 6
    for line in found.epochs:
        assert (line.drawn.num_samples, line.drawn.num_padded, line.dataset_size) == (4 * per_rank, 2, SIZE)
        assert (line.duplicated.value, line.missing.value, line.drawn.is_wrong) == (0, 0, False)
    # the share depends on how long the machine takes to start; the waits themselves are compared above
    stall = found.stall.value
    assert isinstance(stall, float) and 0.05 < stall < 1 and len(found.by_rank) == 4


def _check_batches(run, notes):
    """Digest and wait of every batch. Loaders of one rank come one after the other, so time tells them apart."""
    for rank, note in enumerate(notes):
        rows = run.rows(f"SELECT digest, num_samples, num_workers, wait_ns FROM sample_batch WHERE rank = {rank} "
                        "ORDER BY time_ns")  # fmt: skip
        drawn = [batch for part in note.values() for batch in part["drawn"]]
        assert [row[0] for row in rows] == [signed(digest(np.array(batch, np.int64))) for batch in drawn]
        assert [row[1] for row in rows] == [len(batch) for batch in drawn]
        begin = 0
        for name, part in note.items():
            mine = rows[begin : begin + len(part["drawn"])]
            begin += len(mine)
            assert {row[2] for row in mine} == {0 if name == "0" else 2}
            # The job's own clock around the same calls is the witness.
            waited = sum(row[3] for row in mine)
            assert waited == pytest.approx(part["waited_ns"], rel=0.1)
            if name == "0":
                assert min(row[3] for row in mine) >= DELAY_NS
            else:  # two workers sleep side by side, also while this process does other things
                assert waited > DELAY_NS * len(mine) / 4
        assert begin == len(rows)


@pytest.mark.parametrize("nproc", [1, 4])
def test_rows_equal_the_disk(run_job, nproc, capsys, monkeypatch):
    run, out = run_job(nproc, "checkpoints")
    found = {(item.first.action, Path(item.first.path or "").name): item for item in checkpoints(run).operations}
    shared = {("save", "sync"), ("save", "async"), ("load", "sync"), ("load", "async")}
    by_one = {("save", "plain.pt"), ("load", "plain.pt"), ("save", "model.safetensors"),
              *(("save", f"rank{rank}.pt") for rank in range(nproc))}  # fmt: skip
    by_all = {("load", "rank0.pt"), ("load", "model.safetensors")}
    assert set(found) == shared | by_one | by_all
    for (action, name), item in found.items():
        assert (item.num_files, item.num_bytes) == _on_disk(out / name)
        assert item.outcome == "ok" and item.finding == ""
        assert len(item.parts) == (1 if (action, name) in by_one else nproc)
        assert action == "load" or item.first.world_size == nproc
        for part in item.parts:
            assert part.blocking_end_ns is not None and part.end_ns is not None
            assert part.start_ns < part.blocking_end_ns <= part.end_ns
            assert (part.mode == "async") == ((action, name) == ("save", "async"))
            assert part.mode == "sync" or part.end_ns > part.blocking_end_ns
    assert found["save", "sync"].first.layout == found["save", "async"].first.layout == f"dp={nproc}"
    _check_load(found["load", "sync"], out / "sync", nproc)
    _check_shares(found["load", "sync"], found["load", "async"], out / "async")
    assert run.rows("SELECT count(*) FROM checkpoint WHERE outcome <> 'ok'") == [(0,)]
    monkeypatch.setenv("COLUMNS", "300")
    assert main.run(["checkpoints", run.place.address]) == 0
    _check_print(capsys.readouterr().out, found)


def _on_disk(path):
    files = list(path.iterdir()) if path.is_dir() else [path]
    return len(files), sum(file.stat().st_size for file in files)


def _check_load(load, folder, nproc):
    """A rank reads the metadata, its own shard, and whatever is stored once for all; rank by rank against the names."""
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    assert load.first.world_size == nproc
    for part in load.parts:
        assert 2 <= part.num_files <= len(sizes)
        assert sizes[".metadata"] + sizes[f"__{part.rank}_0.distcp"] <= part.num_bytes <= sum(sizes.values())
        if part.num_files == len(sizes):
            assert part.num_bytes == sum(sizes.values())


def _check_shares(whole, some, folder):
    """All of one, of the other all but "b" and "n"."""
    stored = FileSystemReader(folder).read_metadata().storage_data
    lengths = {name: sum(info.length for index, info in stored.items() if index.fqn == name) for name in "wbn"}
    assert whole.read_ratio == 1 and some.read_ratio == lengths["w"] / sum(lengths.values())
    assert sum(part.whole_files is not None for part in (*whole.parts, *some.parts)) == 2


def _check_print(text, found):
    lines = [line.split() for line in text.splitlines()]
    for (action, name), item in found.items():
        mode = ["async"] if item.first.mode == "async" else []
        begin = [action, *mode, item.first.format, str(len(item.parts)), str(item.num_files)]
        assert any(line[1 : 1 + len(begin)] == begin for line in lines), (name, text)
    assert "of the stored bytes asked for" in text
