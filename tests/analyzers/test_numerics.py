"""Numerics against answers worked out by hand."""

from pathlib import Path

import pytest
from run_builder import MS, RunBuilder

from rankscope.analyzers.numerics import LEAST_STEPS, Numerics, numerics
from rankscope.analyzers.run import Run

INF, NAN = float("inf"), float("nan")


class Job:
    """A run of two ranks, to which metrics are added."""

    def __init__(self, root: Path) -> None:
        self.build = RunBuilder(root)

    def log(self, name: str, step: int, *values: float | None, replicated: bool = False, incarnation: int = 0) -> None:
        """What rank 0, rank 1, ... told in one step; None: nothing."""
        for rank, value in enumerate(values):
            if value is not None:
                self.build.fact("metric", rank, incarnation, step=step, name=name, value=value, time_ns=step * MS,
                                is_replicated=replicated)  # fmt: skip

    def step(self, step: int, is_skipped: bool = False) -> None:
        for rank in (0, 1):
            self.build.step(rank, step, step, step + 1, is_skipped=is_skipped)

    def numerics(self) -> Numerics:
        self.build.entities()
        with Run.open(str(self.build.seal())) as run:
            return numerics(run, 1.0)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "run")


def _values(found: Numerics, name: str) -> dict[str, float | int | str | None]:
    return {str(item.scope.get("metric")): item.value for item in found.measurements if item.name == f"numerics.{name}"}


def test_a_run_without_metrics_tells_none_with_reasons(job: Job) -> None:
    job.step(0)
    found = job.numerics()
    assert [item.value for item in found.measurements] == [None] * 4
    assert all(item.reason for item in found.measurements) and found.curve == () and found.findings == ()


def test_steps_that_are_not_finite_with_first_step_and_ranks(job: Job) -> None:
    for step, (zero, one) in enumerate([(1.0, 1.0), (1.0, NAN), (INF, NAN), (1.0, 1.0)]):
        job.log("loss", step, zero, one)
        job.log("grad_norm", step, 2.0, 2.0)
        job.log("lr", step, NAN, NAN)
    found = job.numerics()
    assert _values(found, "nonfinite_steps") == {"grad_norm": 0, "loss": 2}
    (finding,) = found.of("nonfinite")
    assert (finding.metric, finding.first, finding.ranks, finding.count.n) == ("loss", (0, 1), (1,), 4)


def test_infinite_norms_of_skipped_steps_are_told_apart(job: Job) -> None:
    for step in range(4):
        job.step(step, is_skipped=step == 1)
        job.log("grad_norm", step, INF if step in (1, 3) else 1.0, 1.0)
    (finding,) = job.numerics().of("nonfinite")
    assert finding.count.value == 2 and finding.detail == "1 of them skipped by the loss scaler"


def test_a_spike_is_more_than_6_mad_from_the_median_of_the_steps_before(job: Job) -> None:
    # 0, 1, 0, 1, ...: median 0.5, MAD 0.5; 3.5 is 6 MAD away and no spike. It and 4.01 stand where zeros did, so that
    # from then on the median is 1: 4.01 is 6.02 MAD away, -3 is 8.
    for step in range(40):
        value = {30: 3.5, 32: 4.01, 34: -3.0}.get(step, float(step % 2))
        job.log("loss", step, value, value)
    found = job.numerics()
    assert _values(found, "spikes") == {"loss": 2}
    (finding,) = found.of("spikes")
    assert finding.first == (0, 32) and finding.detail == "-3 in step 34"


def test_too_few_steps_or_equal_values_are_no_evidence(job: Job) -> None:
    for step in range(LEAST_STEPS):
        job.log("loss", step, float(step % 2), None)
    for step in range(60):
        job.log("grad_norm", step, 1.0 if step < 50 else 9.0, None)
    assert _values(job.numerics(), "spikes") == {"grad_norm": None, "loss": None}


def test_a_healthy_noisy_descent_has_no_spike(job: Job) -> None:
    for step in range(300):
        noise = ((step * 7919) % 101 - 50) / 50
        job.log("loss", step, 10 * 0.99**step + 0.1 * noise, 10 * 0.99**step - 0.1 * noise)
    assert _values(job.numerics(), "spikes") == {"loss": 0}


def test_a_loss_scale_collapses_once_for_each_fall(job: Job) -> None:
    scales = [65536.0, 32768.0, 16384.0, 65536.0, *(65536.0 / 2**n for n in range(1, 10)), 65536.0, 0.5, 0.25, 65536.0]
    for step, scale in enumerate(scales):
        job.log("loss_scale", step, scale, scale)
    found = job.numerics()
    assert _values(found, "loss_scale_collapses") == {"loss_scale": 2}
    (finding,) = found.of("collapses")
    assert finding.first == (0, 11) and finding.detail == "between 0.25 and 65536"
    assert _values(found, "nonfinite_steps") == {"None": None}  # a scale is no loss


def test_only_what_is_declared_replicated_can_drift(job: Job) -> None:
    for step in range(5):
        job.log("loss", step, 1.0, 2.0)
        job.log("sum", step, 8.0, 8.0 if step < 3 else 8.4, 8.0, replicated=True)
        job.log("alone", step, 1.0, None, replicated=True)
        job.log("nan", step, NAN, NAN, replicated=True)
    found = job.numerics()
    assert _values(found, "replicated_drift") == {"nan": 0, "sum": 2}
    (finding,) = found.of("drift")
    assert (finding.first, finding.ranks) == ((0, 3), (1,)) and finding.detail == "by up to 4.8 %"


def test_two_ranks_that_differ_accuse_nobody(job: Job) -> None:
    job.log("sum", 0, 1.0, 2.0, replicated=True)
    (finding,) = job.numerics().of("drift")
    assert finding.ranks == ()


def test_the_curve_is_the_mean_over_ranks_in_order_of_steps(job: Job) -> None:
    for step in range(240):
        job.log("train/loss", step, float(step), float(step + 2))
        job.log("aux_loss", step, 5.0, None) if step < 3 else None
    found = job.numerics()
    assert found.curve_name == "train/loss" and len(found.curve) == 60
    first, last = found.curve[0], found.curve[-1]
    assert (first.first_step, first.last_step, first.mean, first.low, first.high) == (0, 3, 2.5, 1.0, 4.0)
    assert (last.first_step, last.last_step, last.mean) == (236, 239, 238.5)
