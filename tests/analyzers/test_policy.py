"""Rules against runs with known numbers: pass, fail, cannot tell; bad policies are named."""

from pathlib import Path

import pytest
from run_builder import RunBuilder

from rankscope.analyzers.policy import Ruling, judge, read_policy
from rankscope.analyzers.run import Run
from rankscope.schema.errors import UnreadableFile

MS = 1_000_000


def run_of(root: Path, step_ms: int) -> Path:
    builder = RunBuilder(root, root.name, 1)
    for step in range(12):
        builder.fact("step", 0, step=step, start_ns=step * step_ms * MS, end_ns=(step + 1) * step_ms * MS,
                     boundary="explicit", samples=4)  # fmt: skip
    builder.entities()
    builder.seal()
    return root


def rulings(folder: Path, text: str, baseline: Path | None = None) -> tuple[Ruling, ...]:
    (folder / "policy.toml").write_text(text)
    rules = read_policy(str(folder / "policy.toml"))
    with Run.open(str(run_of(folder / "here", 100))) as run:
        if baseline is None:
            return judge(rules, run, 1.0)
        with Run.open(str(baseline)) as other:
            return judge(rules, run, 1.0, other)


def rule(measure: str, bound: str) -> str:
    return f'[[rule]]\nname = "a rule"\nowner = "team"\nmeasure = "{measure}"\n{bound}\n'


@pytest.mark.parametrize(
    ("measure", "bound", "outcome"),
    [
        ("step.tail_ratio", "max = 1.1", "pass"),
        ("step.tail_ratio", "max = 0.9", "fail"),
        ("throughput.samples", "min = 39.9", "pass"),
        ("throughput.samples", "min = 40.1", "fail"),
        ("throughput.samples", "min = 39\nmax = 41", "pass"),
        ("efficiency.mfu", "min = 0.4", "cannot tell"),
        ("step.duration", 'scope = { statistic = "p50" }\nmax = 102e6', "pass"),
        ("step.duration", 'scope = { statistic = "p12" }\nmax = 1', "cannot tell"),
        ("energy.run", "max = 1", "cannot tell"),
    ],
)
def test_outcomes(tmp_path: Path, measure: str, bound: str, outcome: str) -> None:
    (found,) = rulings(tmp_path, rule(measure, bound))
    assert found.outcome == outcome, found.text
    assert found.is_bad == (outcome != "pass")


def test_what_cannot_be_told_may_be_allowed(tmp_path: Path) -> None:
    (found,) = rulings(tmp_path, rule("efficiency.mfu", 'min = 0.4\nif_unknown = "pass"'))
    assert found.outcome == "cannot tell"
    assert not found.is_bad


def test_ratios_to_a_baseline(tmp_path: Path) -> None:
    text = rule("throughput.samples", "min_of_baseline = 0.95") + rule("throughput.samples", "min_of_baseline = 0.8")
    strict, loose = rulings(tmp_path, text, run_of(tmp_path / "before", 90))
    assert (strict.outcome, loose.outcome) == ("fail", "pass")
    with pytest.raises(UnreadableFile, match="--baseline"):
        rulings(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "rule"),
        ("rule = []", "no .*rule.* in it"),
        ("[[rule]\n", "policy.toml"),
        (rule("step.tail_ratio", ""), "no bound"),
        (rule("step.tail", "max = 1"), "step.tail_ratio"),
        (rule("step.tail_ratio", 'max = "one"'), "max"),
        (rule("step.tail_ratio", "max = 1\nmaximum = 2"), "maximum"),
        ('[[rule]]\nname = "x"\nmeasure = "step.tail_ratio"\nmax = 1\n', "owner"),
        ('[[rule]]\nname = "x"\nowner = " "\nmeasure = "step.tail_ratio"\nmax = 1\n', "needs a name and an owner"),
        (rule("step.tail_ratio", "max = inf"), "max = inf is no bound"),
        (rule("step.tail_ratio", "min = nan"), "min = nan is no bound"),
        (rule("step.tail_ratio", "max_of_baseline = inf"), "max_of_baseline = inf is no bound"),
        (rule("step.tail_ratio", "max = 1\nmin = 2"), "no number is at least 2 and at most 1"),
        (rule("scaling.efficiency", "min = 0.9"), "it takes several runs"),
        (rule("compare.ratio", "min = 0.9"), "it takes several runs"),
        (rule("efficiency.time_to_target", "max = 1"), "rankscope efficiency --target"),
    ],
)
def test_a_bad_policy_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(UnreadableFile, match=says):
        read_policy(str(tmp_path / "policy.toml"))


@pytest.mark.parametrize("name", ["release", "no-regression"])
def test_the_examples_are_policies(name: str) -> None:
    assert read_policy(str(Path(__file__).parents[2] / "examples/policies" / f"{name}.toml"))
