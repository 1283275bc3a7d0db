"""`rankscope scale`: points measured elsewhere, as people keep them, and what cannot be asked."""

import json
import os
import threading
from pathlib import Path

import pytest
from command_line import Command
from run_builder import healthy_run

HEAD = "series,n_accelerators,metric,value\n"
CURVE = "".join(f"a,{size},tokens_per_s,{value}\n" for size, value in ((8, 100), (16, 180), (32, 330)))


def points(folder: Path, text: str) -> str:
    path = folder / "points.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_forecast_of_points(rankscope: Command, tmp_path: Path, mark: str) -> None:
    """By hand: the last step's slope is 0.874, so 0.6 x 0.126 of a doubling is bent off what is carried, 660."""
    ran = rankscope("scale", "--points", points(tmp_path, mark + HEAD + CURVE), "--at", "64", "--json")
    told = json.loads(ran.out)
    assert (ran.status, told["left_out"]) == (0, [])
    (forecast,) = (item for item in told["measurements"] if item["name"] == "scaling.forecast")
    assert forecast["value"] == pytest.approx(660 * 2 ** (-0.6 * (1 - 0.8745)), rel=1e-4)
    assert forecast["interval"]["low"] < forecast["value"] < forecast["interval"]["high"]


def test_a_series_of_one_size_does_not_spoil_the_others(rankscope: Command, tmp_path: Path) -> None:
    file = points(tmp_path, HEAD + CURVE + "b,8,tokens_per_s,100\n")
    ran = rankscope("scale", "--points", file)
    assert ran.status == 0 and "left out (one size: efficiency needs two): b" in ran.out
    alone = rankscope("scale", "--points", file, "--series", "b")
    assert (alone.status, alone.out) == (2, "") and "one size" in alone.err


def test_points_may_come_through_a_pipe(rankscope: Command, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(HEAD + CURVE,))
    writer.start()
    told = json.loads(rankscope("scale", "--points", str(pipe), "--json").out)
    writer.join(10)
    kept = json.loads(rankscope("scale", "--points", points(tmp_path, HEAD + CURVE), "--json").out)
    digests = [item["measurements"][0]["provenance"]["dataset_digest"] for item in (told, kept)]
    assert digests[0] == digests[1]


def test_what_cannot_be_asked(rankscope: Command, tmp_path: Path) -> None:
    run = str(healthy_run(tmp_path / "run"))
    for line, says in (
        ([run, run], "the same run twice: it is no repeat of itself"),
        ([run, "--series", "a"], "--series names one of --points CSV"),
        (["--points", points(tmp_path, HEAD + CURVE), "--image", str(tmp_path / "curve")], "says the kind of image"),
        ([run, "--points", points(tmp_path, HEAD + CURVE)], "either runs or --points"),
    ):
        ran = rankscope("scale", *line)
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1), ran
        assert says in ran.err
    assert not list(tmp_path.glob("curve*"))
    twice = rankscope("compare", run, run)
    assert (twice.status, twice.out) == (2, "") and "the same run twice" in twice.err
