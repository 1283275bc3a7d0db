"""`rankscope clocks`: what is printed of several hosts and of one, and the form of its JSON."""

import json
from pathlib import Path

import pytest
from command_line import Command
from run_builder import RunBuilder, healthy_run

HOSTS = ("--ranks", "8", "--ranks-per-node", "2", "--steps", "30", "--collectives", "12", "--step-ms", "5")


@pytest.fixture
def four_hosts(rankscope: Command, tmp_path: Path) -> str:
    run_dir = str(tmp_path / "run")
    planted = ("--clock-offset-ms", "50", "--drift-ppm", "20", "--slews", "1", "--straggler", "5:compute:1ms")
    assert rankscope("synth", "-o", run_dir, *HOSTS, *planted).status == 0
    return run_dir


def test_a_line_a_host(rankscope: Command, four_hosts: str) -> None:
    ran = rankscope("clocks", four_hosts)
    assert (ran.status, ran.err) == (0, "")
    lines = [line.split() for line in ran.out.splitlines() if line.startswith("synth-")]
    assert [line[0] for line in lines] == [f"synth-{number:04d}" for number in range(4)]
    assert "the reference" in ran.out and "ppm" in ran.out and " .. " in ran.out
    assert "Times of 4 hosts are compared with an error of at most" in ran.out
    report = rankscope("report", four_hosts)
    assert "Times of 4 hosts are compared" in report.out and "rankscope clocks" in report.out


def test_json_has_every_host_and_window(rankscope: Command, four_hosts: str) -> None:
    found = json.loads(rankscope("clocks", four_hosts, "--json").out)
    assert found["run"]["address"] == four_hosts and found["verdicts"] == []
    names = ["clock.offset", "clock.error", "clock.drift", "clock.bound"]
    assert [item["name"] for item in found["measurements"]] == names * 4
    by_name = {(item["name"], item["scope"]["node"]): item for item in found["measurements"]}
    truth = json.loads((Path(four_hosts) / "truth.json").read_text())
    for clock in truth["clocks"][1:]:
        offset, bound = by_name["clock.offset", clock["node"]], by_name["clock.bound", clock["node"]]
        ahead = clock["ahead_ns"][0] - truth["clocks"][0]["ahead_ns"][0]
        assert abs(offset["value"] - ahead) < 5_000_000  # what it drifts in a minute
        assert bound["interval"]["low"] < offset["interval"]["low"] < offset["interval"]["high"]
        assert by_name["clock.error", clock["node"]]["value"] < 200_000 and offset["n"] > 100
    assert {window["node"] for window in found["windows"]} == {clock["node"] for clock in truth["clocks"]}


def test_one_host_needs_no_alignment(rankscope: Command, tmp_path: Path) -> None:
    run_dir = str(healthy_run(tmp_path / "run"))
    assert "All ranks ran on host-a: they share one clock" in rankscope("clocks", run_dir).out
    found = json.loads(rankscope("clocks", run_dir, "--json").out)
    assert {item["name"]: item["value"] for item in found["measurements"]} == {
        "clock.offset": 0, "clock.error": 0, "clock.drift": 0.0, "clock.bound": 0,
    }  # fmt: skip


def test_an_import_without_hosts_is_not_said_to_have_run_on_one(rankscope: Command, tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.entities()
    for row in (*build.rows["process", None], *build.rows["node", None]):
        row |= {"host": None, "node": "imported", "boot_id": "imported"}
    run_dir = str(build.seal())
    assert "No host is told by what was imported" in rankscope("clocks", run_dir).out
    assert "1 node" not in rankscope("report", run_dir).out.splitlines()[0]
