"""What is counted of rings and journals: each row once, provisional ones too; who died is told once more."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from fake_rank import FakeRank

from rankscope.schema.process_rows import PlacedRow
from rankscope.schema.process_state import RunRef
from rankscope.tracer.drain import ProcessDrain
from rankscope.tracer.otlp.meter import Meter, Piece
from rankscope.tracer.otlp.series import HistogramValue
from rankscope.tracer.otlp.wanted import wanted

SECOND = 1_000_000_000
START = 10**17
RUN = RunRef("run-1", "/run")
PUSH = wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})
WORLD = (("training.collective.operation", "all_reduce"), ("training.group", "world"))


class Node:
    """Fake ranks on one clock, and the meter that sees their passes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.meter, self.now = folder, Meter(PUSH, "token", lambda: self.now), START
        self.ticks = itertools.count(0, 1000)
        self.drains: dict[int, ProcessDrain] = {}

    def rank(self, rank: int, size: int = 2, **more: Any) -> FakeRank:
        made = FakeRank(self.folder, str(self.folder / "run"), rank, world_size=size,
                        now=lambda: self.now + next(self.ticks), **more)  # fmt: skip
        made.line("clock", monotonic_ns=START, wall_ns=2 * START)
        self.drains[made.proc] = ProcessDrain(str(self.folder / f"{made.proc}.journal"))
        return made

    def look(self, after_s: float = 3, dead: tuple[int, ...] = ()) -> None:
        self.now += int(after_s * SECOND)
        for proc, drain in self.drains.items():
            if not drain.is_finished:
                drain.look()
                batch = drain.read(self.now, proc in dead)
                self.meter.saw(RUN, drain.state, [Piece(*part) for part in batch.parts], batch.rows, proc in dead)

    def values(self, name: str, is_push: bool = False) -> dict[Any, Any]:
        """By rank and other attributes, without the run's id."""
        snapshot = self.meter.snapshot(is_push)
        return {
            tuple(value for key, value in point.attributes if key != "training.run.id"): point.value
            for run in snapshot.runs for point in run.points if point.instrument.name == name
        }  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "launch")


def test_every_operation_is_counted_once(node: Node) -> None:
    """Waited for; seen complete by a poll, and waited for later; still open, and closed later."""
    rank = node.rank(0)
    rank.done(10)
    polled = rank.open()
    rank.close(polled, waited=False)
    open_one = rank.open()
    for _ in range(3):
        node.look()
    assert node.values("training.collective.io") == {(0, "all_reduce", "world"): 11 * 16}
    assert node.values("training.collective.pending") == {(0, "all_reduce", "world"): 1}
    before = node.values("training.collective.wait.time")[0, "all_reduce", "world"]
    rank.close(polled)
    rank.close(open_one)
    for _ in range(3):
        node.look()
    assert node.values("training.collective.io") == {(0, "all_reduce", "world"): 12 * 16}
    assert node.values("training.collective.pending") == {(0, "all_reduce", "world"): 0}
    durations = node.values("training.collective.duration")[0, "all_reduce", "world"]
    assert isinstance(durations, HistogramValue) and durations.num == sum(durations.counts) == 12
    assert node.values("training.collective.wait.time")[0, "all_reduce", "world"] == pytest.approx(before + 2e-6)
    node.look(dead=(1000,))
    assert node.values("training.collective.io") == {(0, "all_reduce", "world"): 12 * 16}


def test_steps_and_samples(node: Node) -> None:
    rank = node.rank(0)
    for step in range(5):
        rank.step(step)
    node.look()
    node.look()
    assert node.values("training.steps") == {(0,): 5}
    assert node.values("training.samples") == {(0,): 40}
    assert node.values("training.step.duration")[(0,)].num == 4  # step 0 is warm-up
    assert node.values("training.tokens") == {}


def test_only_the_first_rank_of_a_model_parallel_group_tells_samples(node: Node) -> None:
    first, second = node.rank(0), node.rank(1)
    first.line("group", id=2, group_id="t", size=2, backend="gloo", mesh_dimension="tp", member_starts=[0],
               member_strides=[1], member_counts=[2])  # fmt: skip
    second.line("group", id=2, group_id="t", size=2, backend="gloo", mesh_dimension="tp", member_starts=None)
    for rank in (first, second):
        rank.step(1)
    node.look()
    assert node.values("training.samples") == {(0,): 8}
    assert node.values("training.steps") == {(0,): 1, (1,): 1}


def test_a_dead_rank_is_told_once_more_and_disappears(node: Node) -> None:
    first, second = node.rank(0), node.rank(1)
    first.step(1)
    second.step(1)
    node.look()
    assert node.values("training.steps", is_push=True) == {(0,): 1, (1,): 1}
    second.step(2)
    node.look(dead=(1001,))
    assert node.values("training.steps", is_push=True) == {(0,): 1, (1,): 2}
    assert node.values("training.steps", is_push=True) == {(0,): 1}
    assert node.values("training.step.duration", is_push=True).keys() == {(0,)}
    node.look(dead=(1000,))
    assert node.values("training.steps", is_push=True) == {(0,): 1}
    assert node.meter.snapshot(True).runs == ()


def test_a_rank_that_was_restarted_counts_on(node: Node) -> None:
    old = node.rank(1)
    old.step(1)
    node.look()
    node.look(dead=(1001,))
    new = node.rank(1, proc=7)
    new.step(1)
    new.step(2)
    node.look()
    assert node.values("training.steps", is_push=True) == {(1,): 3}
    assert node.values("training.steps", is_push=True) == {(1,): 3}


def test_who_came_late_of_ranks_on_this_node(node: Node) -> None:
    """Rank 1 comes 1 ms after rank 0, three times; each waits until both are there."""
    ranks = [node.rank(0), node.rank(1)]
    for number in range(3):
        base = START + number * 10_000_000
        for place, rank in enumerate(ranks):
            times = iter([base + place * 1_000_000, base + place * 1_000_000, base + 2_000_000])
            rank.now = lambda times=times: next(times)
            rank.close(rank.open())
    node.now += SECOND
    node.look()
    lags = node.values("training.rank.lag")
    assert lags == pytest.approx({(0,): 0.0, (1,): 1e-3})
    skew = node.values("training.collective.skew")[("world",)]
    assert (skew.num, skew.least, skew.most) == (3, pytest.approx(1e-3), pytest.approx(1e-3))


def test_readings_of_the_node(node: Node) -> None:
    node.rank(0)
    node.look()
    rows = [
        PlacedRow("device", None, {"device_uuid": "GPU-1", "name": "H200", "memory_bytes": 100}),
        PlacedRow("device_sample", 0, {"device_uuid": "GPU-1", "sm_utilisation_ratio": 0.5, "memory_used_bytes": 25,
                                       "power_watts": None, "pcie_rx_bytes": 7}),
        PlacedRow("nic_sample", 0, {"nic": "eth0", "kind": "ethernet", "rx_bytes": 5, "tx_bytes": 6, "rx_errors": 0}),
        PlacedRow("nic_sample", 0, {"nic": "mlx5_0:1", "kind": "infiniband", "rx_bytes": 8, "is_up": True}),
        PlacedRow("process_sample", 0, {"proc": 1000, "rank": 0, "cpu_user_ns": 2 * SECOND, "rss_bytes": 3}),
        PlacedRow("host_sample", 0, {"cpu_utilisation_ratio": 0.25, "memory_used_bytes": 1, "memory_limit_bytes": 4}),
    ]  # fmt: skip
    node.meter.sampled(RUN, rows)
    assert node.values("hw.gpu.utilization") == {("GPU-1", "H200", "general"): 0.5}
    assert node.values("hw.gpu.memory.utilization") == {("GPU-1", "H200"): 0.25}
    assert node.values("hw.power") == {}
    assert node.values("hw.gpu.io") == {("GPU-1", "pcie", "receive"): 7}
    assert node.values("system.network.io") == {("eth0", "receive"): 5, ("eth0", "transmit"): 6}
    assert node.values("hw.network.up") == {("mlx5_0:1", "network"): 1}
    assert node.values("process.cpu.time") == {(0, "user"): 2.0}
    assert node.values("system.memory.utilization") == {("used",): 0.25}


def test_spans_of_sampled_steps(node: Node) -> None:
    rank = node.rank(0)
    for step in range(41):
        rank.step(step)
    node.look()
    node.look()
    spans = [span for _, span in node.meter.spans()]
    assert [(span.name, dict(span.attributes)["training.step"]) for span in spans] == [
        (name, step) for step in (0, 20, 40) for name in ("training.step", "training.rank.step")
    ]
    assert spans[0].start_ns - 2 * START < SECOND  # the wall clock
    assert spans[1].parent_id == spans[0].span_id and len({span.trace_id for span in spans}) == 3
