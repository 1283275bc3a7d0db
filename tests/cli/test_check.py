"""`rankscope check`: the gate as a CI job sees it: statuses, JUnit, and what a baseline is worth."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import Command
from run_builder import MS, RunBuilder

RULE = """
[[rule]]
name = {name}
owner = "team"
measure = "step.duration"
scope = {{ statistic = "p50" }}
{bound}
"""
UNKNOWN = """
[[rule]]
name = "unknown"
owner = "team"
measure = "efficiency.mfu"
min = 0.4
if_unknown = "pass"
"""


def a_run(root: Path, step_ms: int = 100, job: str = "train.py", **told: object) -> str:
    build = RunBuilder(root, root.name, 1)
    for step in range(12):
        build.fact("step", 0, step=step, start_ns=step * step_ms * MS, end_ns=(step + 1) * step_ms * MS,
                   boundary="explicit", samples=4)  # fmt: skip
    build.entities()
    build.rows["run", None][-1].update(told)
    build.add("artifact", kind="code", name=job, digest="d1")
    build.seal()
    return str(root)


def policy(folder: Path, bound: str, name: str = '"a rule"') -> str:
    path = folder / "policy.toml"
    path.write_text(RULE.format(name=name, bound=bound))
    return str(path)


def test_statuses(rankscope: Command, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    opened = rankscope("check", run, "--policy", policy(tmp_path, "max = 101e6"))
    assert (opened.status, opened.err) == (0, "") and "all 1 rules pass" in opened.out
    shut = rankscope("check", run, "--policy", policy(tmp_path, "max = 99e6"))
    assert (shut.status, shut.err) == (1, "") and "1 of 1 rules do not pass" in shut.out
    rules = tmp_path / "policy.toml"
    rules.write_text(RULE.format(name='"a rule"', bound="max = 101e6") + UNKNOWN)
    let_through = rankscope("check", run, "--policy", str(rules))
    assert let_through.status == 0 and "1 of 2 rules pass; of 1 nobody can tell" in let_through.out


def test_what_else_the_baseline_differs_in_is_said(rankscope: Command, tmp_path: Path) -> None:
    before, after = a_run(tmp_path / "before", precision="fp32"), a_run(tmp_path / "after", 90, precision="bf16")
    line = ["check", after, "--baseline", before, "--policy", policy(tmp_path, "max_of_baseline = 1.0")]
    assert "the baseline differs in precision: rankscope diff tells more" in rankscope(*line).out
    told = json.loads(rankscope(*line, "--json").out)
    assert [item["name"] for item in told["baseline_differences"]] == ["precision"]
    same = a_run(tmp_path / "same", precision="bf16")
    line[3] = same
    assert "differs" not in rankscope(*line).out


@pytest.mark.parametrize(
    ("baseline", "says"),
    [("other job", "runs of different jobs: other.py and train.py"), ("itself", "is the run itself")],
)
def test_what_is_no_baseline(rankscope: Command, tmp_path: Path, baseline: str, says: str) -> None:
    run = a_run(tmp_path / "run")
    other = run if baseline == "itself" else a_run(tmp_path / "other", job="other.py")
    ran = rankscope("check", run, "--baseline", other, "--policy", policy(tmp_path, "max_of_baseline = 1.0"))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert says in ran.err


def test_junit_is_xml_whatever_a_rule_is_called(rankscope: Command, tmp_path: Path) -> None:
    run, junit = a_run(tmp_path / "run"), tmp_path / "junit.xml"
    rules = policy(tmp_path, "max = 99e6", name='"caf\\u00e9 <&> \\u0001"')
    ran = rankscope("check", run, "--policy", rules, "--junit", str(junit))
    assert ran.status == 1
    suite = ElementTree.parse(junit).getroot()
    (case,) = suite
    assert (suite.get("tests"), suite.get("failures"), case.get("name")) == ("1", "1", "café <&> ? (team)")
    assert case[0].tag == "failure" and "at most 9.9e+07" in (case[0].get("message") or "")
    full = rankscope("check", run, "--policy", rules, "--junit", "/dev/full")
    assert (full.status, full.out, full.err) == (2, "", "rankscope: /dev/full: No space left on device\n")
