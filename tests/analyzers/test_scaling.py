"""Scaling and comparison over runs with known step times: efficiency, grade, confounders, quality, verdicts."""

import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_builder import RunBuilder
from scaling_series import step_times

from rankscope.analyzers.compare import Comparison, compare
from rankscope.analyzers.data_coordinates import DataCoordinates
from rankscope.analyzers.differences import differences
from rankscope.analyzers.manifest import Manifest
from rankscope.analyzers.run import Run
from rankscope.analyzers.scaling import Scaling, scaling_of_runs
from rankscope.analyzers.scaling_run import ScalingRun, scaling_run
from rankscope.analyzers.throughput import Amount, Steps
from rankscope.schema.errors import NoEvidence
from rankscope.tracer.importers.synth import synthesise
from rankscope.tracer.importers.synth_plan import Plan

MS = 1_000_000
NUM_STEPS = 60
MANIFEST = {"versions": {"torch": "2.13.0"}, "command": ["python", "train.py", "--lr", "0.1"],
            "code": {"commit": "abc"}, "environment": {"NCCL_ALGO": "Ring"}}  # fmt: skip

Artifacts = tuple[dict[str, str | None], ...]


def artifact(kind: str, name: str, version: str | None = None, digest: str | None = None) -> dict[str, str | None]:
    return {"kind": kind, "name": name, "version": version, "digest": digest, "source": None}


def make(
    ranks: int, times: np.ndarray | float, batch: float | None = 64, *, manifest: dict[str, Any] | None = None,
    artifacts: Artifacts = (), loss: float | None = None, job: str = "train.py", **told: Any,
) -> ScalingRun:  # fmt: skip
    """A run of `ranks` ranks as read: `times` in ms, `batch` samples a step over all ranks, `told` columns of run."""
    series = np.full(NUM_STEPS, float(times)) if isinstance(times, int | float) else times
    num = len(series)
    samples = Amount(None, reason="nobody tells") if batch is None else Amount(np.full(num, float(batch)), "told")
    made_from = Manifest(
        "", "", {"world_size": ranks, **told}, {}, manifest or MANIFEST,
        (artifact("code", job, digest="d1"), *artifacts),
        ({"num_cpus": 4, "memory_bytes": 1, "kernel": "k", "os": "Linux"},), (), (),
    )  # fmt: skip
    seen = np.arange(1.0, num + 1) * (batch or 0)
    return ScalingRun(
        "run", f"run-{next(_NUMBERS)}", "digest", ranks, ranks, 1, made_from,
        Steps(tuple((0, step) for step in range(num)), series * MS, samples, Amount(None, reason="none"),
              DataCoordinates({rank: rank for rank in range(ranks)})),
        {"rest": float(series.mean() * MS) if num else None},
        np.full(num if loss is not None else 0, loss or 0.0), seen[: num if loss is not None else 0], None, 1.0,
    )  # fmt: skip


_NUMBERS = count()


def written(folder: Path, ranks: int, times: list[float], batch: int) -> ScalingRun:
    """The same from the files of a run, whose first step is left out."""
    builder = RunBuilder(folder, folder.name, ranks)
    for rank in range(ranks):
        start = 0
        for step, length in enumerate([50.0, *times]):
            end = start + int(length * MS)
            builder.fact("step", rank, step=step, start_ns=start, end_ns=end, boundary="explicit",
                         samples=batch // ranks)  # fmt: skip
            builder.fact("metric", rank, step=step, time_ns=end, name="loss", value=1.0 + rank)
            start = end
    builder.entities()
    builder.rows["run", None][-1].update(manifest=json.dumps(MANIFEST))
    builder.add("artifact", kind="code", name="train.py", digest="d1")
    builder.seal()
    with Run.open(str(builder.root)) as run:
        return scaling_run(run)


def efficiency(found: Scaling) -> Any:
    return pytest.approx([size.efficiency.value for size in found.sizes])


def test_strong_scaling_by_hand() -> None:
    found = scaling_of_runs([make(1, 100.0), make(2, 60.0), make(4, 40.0)])
    assert (found.mode, found.metric) == ("strong", "samples")
    assert efficiency(found) == [1.0, 100 / (60 * 2), 100 / (40 * 4)]
    assert [size.throughput for size in found.sizes] == pytest.approx([640, 64 / 0.06, 1600])


def test_weak_scaling_by_hand() -> None:
    found = scaling_of_runs([make(1, 100.0, 16), make(2, 110.0, 32), make(4, 125.0, 64)])
    assert found.mode == "weak"
    assert efficiency(found) == [1.0, 100 / 110, 100 / 125]
    assert found.losses[-1].extra_ns == pytest.approx(25 * MS)


def test_the_grade_needs_repeats_and_nothing_else_that_differs() -> None:
    once = [make(1, 100.0), make(2, 60.0)]
    found = scaling_of_runs(once)
    assert found.grade == "mostly controlled"
    assert "only one run at size 1, 2" in found.grade_reasons[0]
    assert scaling_of_runs([*once, make(1, 101.0), make(2, 61.0)]).grade == "controlled"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"precision": "bf16"}, "precision"),
        ({"artifacts": (artifact("dependency", "torch", "2.14.1"),)}, "torch version"),
        ({"artifacts": (artifact("dataset", "corpus", digest="other"),)}, "dataset corpus"),
        ({"manifest": {**MANIFEST, "command": ["python", "train.py", "--lr", "0.2"]}}, "option --lr"),
        ({"manifest": {**MANIFEST, "environment": {"NCCL_ALGO": "Tree"}}}, "NCCL ALGO"),
        ({"batch": 96}, "global batch"),
    ],
)
def test_every_planted_confounder_is_named(change: dict[str, Any], name: str) -> None:
    known = (artifact("dataset", "corpus", digest="one"), artifact("dependency", "torch", "2.13.0"))
    plain: dict[str, Any] = {"precision": "fp32", "artifacts": known}
    if "artifacts" in change:
        kept = [item for item in plain["artifacts"] if item["kind"] != change["artifacts"][0]["kind"]]
        change = {**change, "artifacts": (*kept, *change["artifacts"])}
    runs = [make(1, 100.0, **plain), make(1, 100.0, **plain), make(2, 60.0, **{**plain, **change}),
            make(2, 60.0, **{**plain, **change})]  # fmt: skip
    found = scaling_of_runs(runs)
    assert found.grade == "confounded"
    assert name in {item.name for item in found.confounders}
    assert name in found.grade_reasons[0]
    compared = compare(make(2, 60.0, **plain), make(2, 50.0, **{**plain, **change}))
    assert compared.verdict == "not comparable"
    assert name in compared.text


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ({"command": ["python", "t.py", "-o", "a", "-o", "z"]}, {"command": ["python", "t.py", "-o", "b", "-o", "z"]},
         {"option -o"}),
        ({"environment": {"RANKSCOPE_KERNELS": "10:5"}}, {"environment": {}}, {"RANKSCOPE KERNELS"}),
        ({"environment": {"RANKSCOPE_HOOKS": "-memory", "RANKSCOPE_RUN_ID": "x"}}, {"environment": {}}, set()),
    ],
)  # fmt: skip
def test_what_is_told_several_times_counts_whole(one: dict[str, Any], other: dict[str, Any], names: set[str]) -> None:
    found = differences(make(1, 100.0, manifest=one).made_from, make(1, 100.0, manifest=other).made_from)
    assert {item.name for item in found if item.kind == "confounder"} == names
    two_digests = tuple(artifact("dataset", "corpus", digest=digest) for digest in ("one", "two"))
    found = differences(make(1, 100.0, artifacts=two_digests).made_from,
                        make(1, 100.0, artifacts=two_digests[1:]).made_from)  # fmt: skip
    assert [(item.name, item.left, item.right) for item in found] == [("dataset corpus", "one, two", "two")]


def test_repeats_that_differ_much_leave_efficiency_and_losses_in_agreement() -> None:
    """By hand: steps of 33 and 129 ms, mean 81; 60 and 92, mean 76. The mean of the rates would say 74 %."""
    runs = [make(1, 33.0, 8), make(1, 129.0, 8), make(2, 60.0, 16), make(2, 92.0, 16)]
    found = scaling_of_runs(runs)
    assert found.mode == "weak"
    assert efficiency(found) == [1.0, 81 / 76]
    assert found.losses[0].extra_ns == pytest.approx(-5 * MS)
    assert found.sizes[0].throughput == pytest.approx(8 / 0.081)


def group(dimension: str, size: int, num: int) -> dict[str, Any]:
    return {"mesh_dimension": dimension, "backend": "nccl", "size": size, "num_groups": num}


@pytest.mark.parametrize(
    ("sizes", "groups", "kinds"),
    [
        ((8, 8), ((group("dp", 8, 1),), (group("dp", 4, 2),)), {"confounder"}),
        ((8, 16), ((group("dp", 8, 1),), (group("dp", 16, 1),)), {"scale"}),
        ((8, 16), ((group("tp", 4, 2),), (group("tp", 4, 4),)), {"scale"}),
        ((8, 16), ((group("tp", 4, 2),), (group("tp", 8, 2),)), {"confounder"}),
    ],
)
def test_a_layout_is_of_the_scale_only_where_the_size_differs(
    sizes: tuple[int, int], groups: tuple[Any, Any], kinds: set[str]
) -> None:
    one, other = (replace(make(size, 100.0).made_from, groups=of) for size, of in zip(sizes, groups, strict=True))
    found = [item for item in differences(one, other) if item.field.startswith("groups.")]
    assert {item.kind for item in found} == kinds
    assert all(item.name.endswith(" (nccl)") and " groups of " in item.name for item in found)


def test_other_hosts_are_no_matter_of_scale_between_runs_of_one_size() -> None:
    one, other = make(8, 100.0), make(8, 90.0)
    other = replace(other, made_from=replace(other.made_from, nodes=one.made_from.nodes * 2))
    assert compare(one, other).text == "not comparable: number of hosts differs"


def test_options_that_follow_from_the_size_are_no_confounder() -> None:
    def told(batch: int) -> dict[str, Any]:
        return {"manifest": {**MANIFEST, "command": ["python", "train.py", f"--batch-per-rank={batch}"]}}

    found = scaling_of_runs([make(1, 100.0, **told(64)), make(2, 60.0, **told(32))])
    assert found.grade == "mostly controlled"


def test_runs_that_tell_no_samples_are_not_comparable() -> None:
    found = scaling_of_runs([make(1, 100.0, None), make(2, 60.0, None)])
    assert found.grade == "not comparable"
    assert all(size.efficiency.value is None and size.efficiency.reason for size in found.sizes)


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(NoEvidence, match="at least two sizes"):
        scaling_of_runs([make(2, 60.0), make(2, 61.0)])
    with pytest.raises(NoEvidence, match="different jobs"):
        scaling_of_runs([make(1, 100.0), make(2, 100.0, job="other.py")])
    with pytest.raises(NoEvidence, match="different jobs"):
        compare(make(2, 100.0), make(2, 100.0, job="other.py"))
    with pytest.raises(NoEvidence, match="no counted step"):
        scaling_of_runs([make(1, np.empty(0)), make(2, 60.0)])
    one, two = make(1, 100.0), make(2, 60.0)
    with pytest.raises(NoEvidence, match="the same run twice: it is no repeat"):
        scaling_of_runs([one, two, one, two])
    with pytest.raises(NoEvidence, match="the same run twice"):
        compare(one, one)


def test_too_few_steps_for_an_interval_are_said() -> None:
    runs = [make(ranks, np.full(num, 60.0)) for ranks, num in ((1, 60), (1, 60), (2, 5), (2, 60))]
    found = scaling_of_runs(runs)
    assert found.grade == "mostly controlled"
    assert found.grade_reasons == ("fewer than 8 counted steps at size 2: no interval",)
    measured = found.sizes[1].efficiency
    assert measured.interval is None
    assert "no interval: fewer than 8 counted steps here or at size 1" in measured.provenance.caveats


def test_without_samples_a_comparison_says_what_it_takes_for_granted() -> None:
    found = compare(make(2, step_times(1, 100.0, 0.02), None), make(2, step_times(2, 80.0, 0.02)))
    assert found.verdict == "faster"
    assert found.text.endswith("by step time: nobody tells the samples of a step, so only at the same batch")
    told = compare(make(2, step_times(1, 100.0, 0.02)), make(2, step_times(2, 80.0, 0.02)))
    assert re.fullmatch(r"faster by \d+\.\d % \(\d+\.\d \.\. \d+\.\d\)", told.text)


def test_losses_that_are_logged_seldom_are_compared_all_the_same() -> None:
    often, seldom = make(1, 100.0, loss=1.0), make(1, 100.0, loss=2.0)
    last = [0, 39]  # nothing in the last tenth of the samples of the other
    seldom = replace(seldom, loss=np.array([3.0, 2.0]), loss_samples=seldom.loss_samples[last])
    early = replace(often, loss=np.array([2.0, 1.0]), loss_samples=often.loss_samples[[0, 59]])
    losses = next(item for item in compare(early, seldom).quantities if item.name == "loss at equal samples")
    assert losses.left == pytest.approx(2 - 39 / 59) and losses.right == 2.0
    assert losses.ratio.value == pytest.approx(2 / (2 - 39 / 59))


def test_the_same_from_files(tmp_path: Path) -> None:
    one = written(tmp_path / "one", 1, [100.0] * 20, 64)
    two = written(tmp_path / "two", 2, [60.0] * 20, 64)
    found = scaling_of_runs([one, two])
    assert (found.mode, found.grade) == ("strong", "mostly controlled")
    assert efficiency(found) == [1.0, 100 / 120]
    assert two.batch == 64
    assert list(two.loss) == [1.5] * 20
    assert two.loss_samples[-1] == 20 * 64
    assert compare(one, two).verdict == "not comparable", "the number of ranks differs"


def test_the_wait_for_a_stage_s_neighbour_is_the_bubble_and_no_communication(tmp_path: Path) -> None:
    """A pipeline of 4 stages: of a step of 29 ms, 18 are computation; 6 ms of its bubble are waits for a neighbour."""
    synthesise(
        Plan(ranks=4, steps=12, collectives=40, dp=1, pp=4, microbatches=8, step_ns=20 * MS), str(tmp_path / "run")
    )
    with Run.open(str(tmp_path / "run")) as run:
        parts = scaling_run(run).parts_ns
        (neighbours,) = run.rows("SELECT sum(wait_end_ns - wait_begin_ns) / 4 / 11 FROM collective "
                                 "WHERE op IN ('send', 'recv') AND step > 0")[0]  # fmt: skip
    assert neighbours > 5 * MS
    assert all(parts[name] is not None for name in ("data", "communication", "bubble", "rest"))
    assert (parts["communication"] or 0) < 4 * MS
    assert (parts["rest"] or 0) > 14 * MS


def test_loss_at_equal_samples_needs_three_seeds() -> None:
    seeds = [make(1, 100.0, loss=value) for value in (1.00, 1.02, 0.98)]
    fine = scaling_of_runs([*seeds, make(2, 60.0, loss=1.01)])
    worse = scaling_of_runs([*seeds, make(2, 60.0, loss=1.30)])
    few = scaling_of_runs([*seeds[:2], make(2, 60.0, loss=1.01)])
    assert fine.quality is not None and fine.quality.holds is True
    assert worse.quality is not None and worse.quality.holds is False
    assert few.quality is not None and few.quality.holds is None


def test_the_same_code_twice_is_no_difference_in_95_of_100() -> None:
    runs = [make(1, step_times(seed, 100.0)) for seed in range(200)]
    verdicts = [compare(*runs[2 * pair : 2 * pair + 2]).verdict for pair in range(100)]
    assert verdicts.count("no difference") >= 95


def test_waits_are_compared_with_an_interval(tmp_path: Path) -> None:
    """Waits for data of about 10 and 5 ms, for an operation of 20 and 20 ms, in steps of 100."""
    runs = []
    for name, wait in (("before", 10), ("after", 5)):
        builder, noise = RunBuilder(tmp_path / name, name, 2), np.random.default_rng(wait)
        for rank in (0, 1):
            for step in range(41):
                start, data = step * 100 * MS, int(wait * MS * (1 + 0.1 * noise.normal()))
                builder.fact("step", rank, step=step, start_ns=start, end_ns=start + 100 * MS, boundary="explicit")
                builder.fact("span", rank, step=step, kind="data", start_ns=start, end_ns=start + data)
                told = start + 50 * MS, start + 50 * MS, start + int(20 * MS * (1 + 0.1 * noise.normal())) + 50 * MS
                builder.fact("collective", rank, step=step, op="all_reduce", seq=step, issued_ns=told[0],
                             wait_begin_ns=told[1], wait_end_ns=told[2], completed_ns=told[2])  # fmt: skip
        builder.entities()
        builder.seal()
        with Run.open(str(builder.root)) as run:
            runs.append(scaling_run(run, has_series=True))
    ratios = {item.name: item.ratio for item in compare(*runs).quantities}
    for name, truth in (("data per step", 0.5), ("communication per step", 1.0)):
        interval = ratios[name].interval
        assert interval is not None and ratios[name].n == 80
        assert interval.low < truth < interval.high < 1.2 * interval.low
    assert ratios["rest per step"].interval is None


def test_a_planted_gain_is_found_with_its_size() -> None:
    found: Comparison = compare(make(2, step_times(1, 100.0, 0.02)), make(2, step_times(2, 90.0, 0.02)))
    assert found.verdict == "faster"
    ratio = next(item.ratio for item in found.quantities if item.name == "samples per second")
    assert ratio.interval is not None
    assert ratio.interval.low <= 100 / 90 <= ratio.interval.high
    assert compare(make(2, step_times(2, 90.0, 0.02)), make(2, step_times(1, 100.0, 0.02))).verdict == "slower"
