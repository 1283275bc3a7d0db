"""`rankscope checkpoints`: the whole text, the form of its JSON, the exit status; and the sections of the report."""

import json
import re

import numpy as np
import pytest
from run_builder import MS, RunBuilder

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.sample_indices import digest, signed


@pytest.fixture
def run_dir(tmp_path):
    build = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        for step in range(10):
            build.step(rank, step, 100 * step, 100 * step + 100)
            build.fact("sample_batch", rank, step=step, epoch=0, loader="Text", time_ns=(100 * step + 40) * MS,
                       wait_ns=(20 + step) * MS, num_samples=2, queue_depth=step % 3, num_workers=2)  # fmt: skip
        drawn = np.arange(rank, 20, 2, dtype=np.int64)
        build.fact("sample_epoch", rank, step=9, epoch=0, loader="Text", dataset_size=20, num_samples=10,
                   num_replicas=2, replica=rank, num_padded=0, padding_digest=0, is_complete=True, drops_last=False,
                   digest=signed(digest(drawn)), end_ns=1000 * MS)  # fmt: skip
        for step, mode, total in ((2, "sync", 30), (6, "async", 90)):
            start = 100 * step + 10
            build.fact("checkpoint", rank, step=step, action="save", mode=mode, path=f"/c/{step}", format="dcp",
                       start_ns=start * MS, blocking_end_ns=(start + 30) * MS, end_ns=(start + total) * MS, bytes=10**6,
                       num_files=1, world_size=2, outcome="ok")  # fmt: skip
    build.entities()
    return str(build.seal())


def test_the_whole_text(rankscope, run_dir, snapshot):
    ran = rankscope("checkpoints", run_dir)
    assert (ran.status, ran.err) == (0, "") and ran.out == snapshot


def test_the_sections_of_the_report(rankscope, run_dir, snapshot):
    text = rankscope("report", run_dir).out
    sections = re.split(r"\n\n", text)
    assert [part for part in sections if part.startswith(("Data loading", "Checkpoints"))] == snapshot
    assert "The training waits for data 24% of its time" in text


def test_json(rankscope, run_dir):
    document = json.loads(rankscope("checkpoints", run_dir, "--json").out)
    assert list(document) == ["run", "measurements", "verdicts"]
    found = {item["name"]: item for item in document["measurements"] if item["scope"].get("action") != "load"}
    assert found["checkpoint.blocking"]["value"] == 30 * MS and found["checkpoint.total"]["value"] == 60 * MS
    assert found["checkpoint.stall_fraction"]["value"] == 0.06 and found["checkpoint.interval"]["value"] == 400 * MS
    for item in document["measurements"]:
        assert set(item["scope"]) <= set(CATALOGUE[item["name"]].scopes)
        assert (item["value"] is None) == bool(item.get("reason"))


def test_findings_and_nothing(rankscope, tmp_path):
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 100)
    build.entities()
    assert rankscope("checkpoints", str(build.seal())).out == "no checkpoint was recorded\n"
    build.fact("checkpoint", 0, step=0, action="save", path="/c", format="torch", start_ns=1, outcome="unfinished")
    ran = rankscope("checkpoints", str(build.seal()), "--fail-on-findings")
    assert ran.status == 1 and "never ended on 1 of 1 ranks" in ran.out
    assert rankscope("checkpoints", str(tmp_path / "nothing")).status == 2
