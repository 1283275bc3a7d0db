"""Clocks of synthetic runs against their truth, few seeds of benchmarks/clocks.py; what must not change anything."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from clock_truth import hosts_against_truth, limit_ns
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.analyzers.clock_bounds import UNBOUNDED_NS, bounds
from rankscope.analyzers.clock_fit import FOREVER_NS, correction, fit
from rankscope.analyzers.clocks import align
from rankscope.analyzers.pipeline import pipeline
from rankscope.analyzers.run import Run
from rankscope.analyzers.what_if import what_if
from rankscope.tracer.importers.synth import synthesise
from rankscope.tracer.importers.synth_plan import Plan, Straggler

TRANSFER_NS = 400_000
OFF: dict[str, Any] = {"clock_offset_ns": 50_000_000, "drift_ppm": 20.0, "num_slews": 2}
LAYOUTS: dict[str, dict[str, Any]] = {
    "broadcasts": {"dp": 8, "collectives": 12},
    "sends": {"dp": 4, "pp": 2, "microbatches": 4, "collectives": 24},
}
WAITS = """
    SELECT c.rank, c.op, c.seq, max({time}) OVER (PARTITION BY c.group_id, c.op, c.seq) - {time} AS wait_ns
    FROM collective c JOIN process p USING (proc) WHERE c.op IN ('all_gather_into_tensor', 'all_reduce') ORDER BY ALL"""


def plan(layout: str, seed: int, **more: Any) -> Plan:
    late = Straggler(seed % 8, "compute", 3 * TRANSFER_NS)
    return Plan(ranks=8, ranks_per_node=2, steps=40, seed=seed, step_ns=20_000_000, transfer_ns=TRANSFER_NS,
                stragglers=(late,), **LAYOUTS[layout], **more)  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(2))
def test_error_and_bound_contain_the_truth(tmp_path: Path, layout: str, seed: int) -> None:
    synthesise(plan(layout, seed, **OFF), str(tmp_path / "run"))
    with Run.open(str(tmp_path / "run")) as run:
        found = hosts_against_truth(run, tmp_path / "run")
    assert len(found) == 3
    for item in found:
        assert item.contained == 1 and item.is_bounded and item.error_ns <= limit_ns(tmp_path / "run")
        # it vetoes, though it cannot name: it is as wide as a late rank and two transfers
        assert item.error_ns < item.bound_width_ns < 10 * TRANSFER_NS


def waits(run_dir: Path, time: str = "aligned_ns(p.boot_id, c.issued_ns)") -> tuple[Any, int]:
    with Run.open(str(run_dir)) as run:
        known = [host.error_ns for host in align(run).hosts]
        worst = sum(sorted(error for error in known if error is not None)[-2:])
        return np.array([row[3] for row in run.rows(WAITS.format(time=time))]), worst


def test_moving_the_clocks_changes_no_wait(tmp_path: Path) -> None:
    synthesise(plan("broadcasts", 1), str(tmp_path / "plain"))
    synthesise(plan("broadcasts", 1, **OFF), str(tmp_path / "moved"))
    true, _ = waits(tmp_path / "plain", "c.issued_ns")
    found, error = waits(tmp_path / "moved")
    naive, _ = waits(tmp_path / "moved", "c.issued_ns")
    assert np.abs(found - true).max() <= error < TRANSFER_NS / 4
    assert np.abs(naive - true).max() > 10 * TRANSFER_NS


def test_moving_the_clocks_changes_no_replay(tmp_path: Path) -> None:
    slowdowns = []
    for name, off in {"plain": {}, "moved": OFF}.items():
        synthesise(plan("sends", 1, **off), str(tmp_path / name))
        with Run.open(str(tmp_path / name)) as run:
            found = what_if(run)
        assert found is not None and found.slowdown.value is not None and found.replay_error.value is not None
        assert (found.slowdown.provenance.clock_error_ns or 0) < TRANSFER_NS / 4
        slowdowns.append((float(found.slowdown.value), float(found.replay_error.value)))
    assert slowdowns[0] == pytest.approx(slowdowns[1], abs=0.002)


def test_neither_the_order_of_rows_nor_the_number_of_threads_matters(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    synthesise(plan("sends", 2, **OFF), str(run_dir))
    with Run.open(str(run_dir), threads=1) as run:
        before = align(run)
    for number, path in enumerate(sorted(run_dir.glob("*/*/*/*.parquet"))):
        table = pq.ParquetFile(path).read()
        order = list(range(table.num_rows))
        random.Random(number).shuffle(order)
        pq.write_table(table.take(order), path)
    with Run.open(str(run_dir), threads=2) as run:
        assert align(run) == before


@settings(max_examples=40)
@given(
    st.integers(1, 400),
    st.integers(-(10**15), 10**15),
    st.integers(0, 10**18),
    st.floats(-400e-6, 400e-6),
    st.integers(0, 2**32),
)
def test_a_line_is_found_wherever_the_clocks_stand(
    number: int, offset: int, begin: int, drift: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    times = begin + np.sort(rng.integers(0, 10**10, number))
    truth = offset + np.rint((times - begin) * drift).astype(np.int64)
    windows = fit(times, truth + rng.integers(-5_000, 5_000, number))
    assert windows[0].from_ns == -FOREVER_NS and windows[-1].until_ns == FOREVER_NS
    assert all(left.until_ns == right.from_ns for left, right in pairwise(windows))
    worst = max(window.error_ns for window in windows if window.error_ns is not None)
    assert np.abs(correction(times, windows) - truth).max() <= worst + 10_000 + (number < 8) * abs(drift) * 10**10


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(-(10**6), 10**6)), min_size=1, max_size=30))
def test_bounds_against_every_pair(told: list[tuple[int, int]]) -> None:
    times, low = (np.array(column, np.int64) for column in zip(*told, strict=True))
    found = bounds(times, low, np.full(len(low), UNBOUNDED_NS))
    for time, bound in zip(found.times, found.low, strict=True):
        exact = max(value - abs(int(time) - at) / 1_000 for at, value in told)
        assert exact - 4 <= bound <= exact


def test_moving_the_clocks_changes_no_bubble(tmp_path: Path) -> None:
    idle = []
    for name, off in {"plain": {}, "moved": OFF}.items():
        synthesise(plan("sends", 2, **off), str(tmp_path / name))
        with Run.open(str(tmp_path / name)) as run:
            found = pipeline(run)
        assert found is not None and not found.mean_bubble.provenance.caveats
        idle.append([item.idle.value for item in found.ranks])
    assert idle[0] == pytest.approx(idle[1], abs=0.002)
