"""Whether a run directory could be written: by the nearest folder that exists, and never an error."""

import os

import pytest

from rankscope.analyzers.report import report
from rankscope.analyzers.run import Run
from rankscope.tracer import reachable


def test_what_can_be_made_is_no_problem(tmp_path):
    assert reachable.problem(str(tmp_path / "a" / "b")) is None
    assert reachable.problem(str(tmp_path)) is None
    assert reachable.problem("s3://bucket/run") is None


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "a").write_text("")
    assert reachable.problem(str(tmp_path / "a" / "b" / "c")) == f"{tmp_path}/a is no folder"


def test_the_nearest_folder_is_asked(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(path))
    assert reachable.problem(str(tmp_path / "a" / "b")) == f"{tmp_path} is not writable"
    assert asked == [tmp_path]


@pytest.mark.system
def test_the_job_says_it_once_and_so_does_the_report(torchrun, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "run"
    job = torchrun(
        "import rankscope.auto, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\ndist.all_reduce(torch.ones(1))\ndist.destroy_process_group()\n",
        2, env={"RANKSCOPE_DIR": str(place), "RANKSCOPE_AGENT": "now"},
    ).check()  # fmt: skip
    lines = [line for line in job.stderr.splitlines() if "cannot be written now" in line]
    assert len(lines) == 1 and f"{tmp_path}/file is no folder" in lines[0]
    job.settle()
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    with Run.open(str(place)) as run:
        said = [line.text for line in report(run).headlines]
    assert [text for text in said if text.startswith(f"The run directory could not be written: {place} cannot")]
