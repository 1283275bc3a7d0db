"""Memory against answers worked out by hand."""

from pathlib import Path
from typing import Any

import pytest
from run_builder import MS, NODE, RunBuilder

from rankscope.analyzers.memory import memory
from rankscope.analyzers.run import Run
from rankscope.analyzers.theil_sen import theil_sen

GIB = 1 << 30


def _run(root: Path, allocated: list[int | None], **more: Any) -> Path:
    """One rank: step n ends at 100 (n + 1) ms with allocated[n]; step 0 does not count."""
    build = RunBuilder(root, world_size=1)
    for step, held in enumerate(allocated):
        build.step(0, step, 100 * step, 100 * step + 100)
        columns: dict[str, Any] = {
                   "step": step, "time_ns": (100 * step + 100) * MS, "allocated_bytes": held, "rss_bytes": 5000 - step,
                   "reserved_bytes": None if held is None else 2000, "device_uuid": None if held is None else "GPU-1",
                   "inactive_split_bytes": None if held is None else 500}  # fmt: skip
        build.fact("memory", 0, **(columns | more))
    build.add("device", device_uuid="GPU-1", node=NODE, memory_bytes=10_000)
    build.add("device_sample", 0, node=NODE, device_uuid="GPU-1", time_ns=1, memory_used_bytes=5000)
    build.entities()
    return build.seal()


def test_growth_and_the_step_at_which_the_device_is_full(tmp_path: Path) -> None:
    path = _run(tmp_path / "run", [9999, *(1000 + 10 * step for step in range(1, 11))],
                peak_reserved_bytes=2000, peak_allocated_bytes=1500)  # fmt: skip
    with Run.open(str(path)) as run:
        (rank,) = memory(run).ranks
    last, most = rank.allocated
    assert (last.value, most.value, rank.peak_reserved.value) == (1100, 9999, 2000)
    assert [item.value for item in rank.fragmentation] == [0.25, 0.25]
    assert rank.creep.value == 10 and rank.creep.interval is not None and rank.creep.n == 10
    assert (rank.creep.interval.low, rank.creep.interval.high) == (10, 10)
    # 5,000 bytes are in use, 2,000 of them reserved by this rank: 10,000 - 3,000 - 1,100 = 5,900 are left
    assert rank.exhaustion.value == 10 + 590
    assert [item.value for item in rank.rss] == [4990, 5000] and rank.rss_creep.value == -1


def test_no_growth_has_no_end(tmp_path: Path) -> None:
    noise = [0, 3, -2, 1, -3, 2, 0, -1, 1, 2, -2, 0]
    with Run.open(str(_run(tmp_path / "run", [1000 + value for value in noise]))) as run:
        (rank,) = memory(run).ranks
    assert rank.creep.interval is not None and rank.creep.interval.low <= 0 <= rank.creep.interval.high
    assert rank.exhaustion.value is None and "does not grow" in rank.exhaustion.reason


def test_without_a_device_only_the_process_is_known(tmp_path: Path) -> None:
    with Run.open(str(_run(tmp_path / "run", [None] * 8))) as run:
        (rank,) = memory(run).ranks
    for item in (*rank.allocated, rank.peak_reserved, *rank.fragmentation, rank.creep):
        assert item.value is None and "torch.cuda" in item.reason
    assert rank.rss[1].value == 5000 and rank.rss_creep.value == -1 and rank.num_ooms is None


def test_few_steps_have_no_trend_and_no_readings_no_ranks(tmp_path: Path) -> None:
    with Run.open(str(_run(tmp_path / "run", [1, 2, 3, 4]))) as run:
        (rank,) = memory(run).ranks
        assert rank.creep.value is None and "fewer than 5" in rank.creep.reason
    build = RunBuilder(tmp_path / "empty")
    build.step(0, 0, 0, 1)
    build.entities()
    with Run.open(str(build.seal())) as run:
        assert memory(run).ranks == () and memory(run).measurements == ()


def test_many_steps_are_thinned(tmp_path: Path) -> None:
    with Run.open(str(_run(tmp_path / "run", [step * 3 for step in range(1001)]))) as run:
        (rank,) = memory(run).ranks
    assert rank.creep.value == 3 and rank.creep.n == 77 and len(rank.series) == 77  # each 13th of 1,000


def test_theil_sen_by_hand() -> None:
    assert theil_sen([0, 1, 2, 3], [0, 1, 2, 30]) is None
    found = theil_sen([0, 1, 2, 3, 4], [0, 1, 2, 30, 4])
    # slopes 1 1 10 1, 1 14.5 1, 28 1, -26: sorted -26 1 1 1 1 1 1 10 14.5 28; S has variance 50 / 3
    assert found is not None and (found.slope, found.low, found.high) == (1, -26, 28)
    assert theil_sen([2, 2, 2, 2, 2], [1, 2, 3, 4, 5]) is None


def test_theil_sen_covers_the_truth() -> None:
    """Over 200 seeded noises, the 95 % interval holds the planted slope about 190 times."""
    import random

    hits = 0
    for seed in range(200):
        rng = random.Random(seed)
        found = theil_sen(range(40), [0.5 * x + rng.gauss(0, 3) for x in range(40)])
        assert found is not None
        hits += found.low <= 0.5 <= found.high
    assert hits == pytest.approx(190, abs=8)
