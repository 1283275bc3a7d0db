"""Samplers in their threads: what fails or hangs is switched off with its reason, the others go on.

Waiting is for events, with a limit: how long a thread takes is not judged.
"""

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rankscope.hooks.registry import SamplerSpec
from rankscope.hooks.sampling import LocalProcess, Surroundings
from rankscope.schema.errors import HookUnavailable
from rankscope.schema.process_state import RunRef
from rankscope.tracer import sampling_host
from rankscope.tracer.sampling_host import LocalRank, SamplerHost

RUN, OTHER = RunRef("run-1", "/runs/1"), RunRef("run-2", "/runs/2")
AGENT = 77


def rank(number: int, run: RunRef = RUN, incarnation: int = 0) -> LocalRank:
    return LocalRank(run, LocalProcess(proc=100 + number, rank=number, incarnation=incarnation, pid=None))


class Bench:
    """A host with samplers made up by the test, each a function of the surroundings and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, samplers: dict[str, Any]) -> None:
        module = ModuleType("rankscope.hooks.made_up")
        for name, sample in samplers.items():
            setattr(module, name, self._maker(sample))
        monkeypatch.setitem(sys.modules, "rankscope.hooks.made_up", module)
        specs = [SamplerSpec(name, f"made_up:{name}", ("host_sample",), True, "") for name in samplers]
        self.host = SamplerHost(specs, 0.001, AGENT)
        self.rows: list[tuple[RunRef, Any]] = []

    @staticmethod
    def _maker(sample: Any) -> Any:
        def make(surroundings: Surroundings) -> Any:
            if isinstance(sample, Exception):
                raise sample
            made = type("Made", (), {"sample": lambda self, now_ns: sample(surroundings, now_ns)})
            return made()

        return make

    def update(self, *ranks: LocalRank) -> None:
        self.host.update(Surroundings("n", ROOT, ROOT, self.host.local_processes), ranks)

    def until(self, condition: Any, seconds: float = 20.0) -> None:
        """Take rows until `condition()` holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it never happened"
            self.take()
            time.sleep(0.002)

    def take(self, is_last: bool = False) -> None:
        for run, placed in self.host.take(time.monotonic_ns(), is_last).items():
            self.rows += [(run, row) for row in placed]

    def of(self, table: str, **wanted: Any) -> list[tuple[RunRef, Any]]:
        return [(run, row) for run, row in self.rows if row.table == table
                and all(row.row.get(name) == value for name, value in wanted.items())]  # fmt: skip


ROOT = Path("nowhere")
Benches = Callable[..., Bench]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Benches]:
    made: list[Bench] = []

    def make(**samplers: Any) -> Bench:
        made.append(Bench(monkeypatch, samplers))
        return made[-1]

    yield make
    for each in made:
        each.host.stop()


def good(_surroundings: Surroundings, now_ns: int) -> dict[str, Any]:
    return {"host_sample": [{"node": "n", "time_ns": now_ns}]}


def test_a_failing_sampler_is_switched_off_and_the_others_go_on(
    bench: Benches, swallowed: list[tuple[str, BaseException]]
) -> None:
    def bad(_surroundings: Surroundings, _now_ns: int) -> dict[str, Any]:
        raise ZeroDivisionError("planted")

    tried = bench(good=good, bad=bad)
    tried.update(rank(0))
    tried.until(lambda: tried.of("capture", hook="bad", is_on=False))
    seen = len(tried.of("host_sample"))
    tried.until(lambda: len(tried.of("host_sample")) > seen)
    (_, told) = tried.of("capture", hook="bad", is_on=False)[0]
    assert told.row["why"] == "ZeroDivisionError: planted" and told.row["num_errors"] == 1
    assert told.row["proc"] == AGENT and told.row.get("rank") is None
    tried.take(is_last=True)
    assert tried.of("capture", hook="good")[-1][1].row["is_on"] is True
    assert [hook for hook, _ in swallowed] == ["bad"]
    swallowed.clear()


def test_one_that_has_nothing_to_read_says_why(bench: Benches) -> None:
    tried = bench(good=good, absent=HookUnavailable("no such thing here"))
    tried.update(rank(0))
    tried.until(lambda: tried.of("capture", hook="absent", is_on=False, why="no such thing here"))
    assert tried.of("capture", hook="absent", num_errors=0)


def test_one_that_hangs_is_given_up_and_its_late_rows_are_not_taken(
    bench: Benches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling_host, "BLOCKED_NS", 20_000_000)
    entered, release, left = threading.Event(), threading.Event(), threading.Event()

    def stuck(_surroundings: Surroundings, now_ns: int) -> dict[str, Any]:
        entered.set()
        release.wait(20)
        left.set()
        return {"host_sample": [{"node": "late", "time_ns": now_ns}]}

    tried = bench(good=good, stuck=stuck)
    tried.update(rank(0))
    assert entered.wait(20)

    def is_off() -> bool:
        tried.update(rank(0))
        return bool(tried.of("capture", hook="stuck", is_on=False))

    tried.until(is_off)
    assert "did not come back" in tried.of("capture", hook="stuck", is_on=False)[0][1].row["why"]
    seen = len(tried.of("host_sample"))
    tried.until(lambda: len(tried.of("host_sample")) > seen)
    release.set()
    assert left.wait(20)
    tried.until(lambda: len(tried.of("host_sample")) > seen + 3)
    assert not tried.of("host_sample", node="late")


def test_rows_go_to_the_runs_that_live_here(bench: Benches) -> None:
    def sample(surroundings: Surroundings, now_ns: int) -> dict[str, Any]:
        rows = [{"proc": process.proc, "time_ns": now_ns} for process in surroundings.processes()]
        return {"host_sample": [{"node": "n"}], "process_sample": rows, "node": [{"node": "n", "nics": []}]}

    tried = bench(sample=sample)
    tried.update(rank(0, RUN, 1), rank(1, RUN, 1), rank(2, OTHER, 3))
    tried.until(lambda: len(tried.of("process_sample", proc=102)) >= 2)
    assert {(run, row.incarnation) for run, row in tried.of("host_sample")} == {(RUN, 1), (OTHER, 3)}
    assert {(run, row.incarnation) for run, row in tried.of("process_sample", proc=100)} == {(RUN, 1)}
    assert {(run, row.incarnation) for run, row in tried.of("process_sample", proc=102)} == {(OTHER, 3)}
    assert {(run, row.incarnation) for run, row in tried.of("node")} == {(RUN, None), (OTHER, None)}


def test_once_more_after_the_last_rank_and_then_no_more(bench: Benches) -> None:
    calls: list[int] = []

    def sample(surroundings: Surroundings, now_ns: int) -> dict[str, Any]:
        calls.append(len(surroundings.processes()))
        return good(surroundings, now_ns)

    tried = bench(sample=sample)
    tried.take(is_last=True)
    assert not calls and not tried.rows  # nobody lives: nothing is read, nothing is told
    tried.update(rank(0))
    tried.until(lambda: len(calls) >= 3)
    tried.update()
    tried.until(lambda: 0 in calls)
    time.sleep(0.05)
    assert calls.count(0) <= 2  # the one that was under way, and the last
    tried.take(is_last=True)
    assert len(tried.of("host_sample")) == len(calls) == tried.of("capture", hook="sample")[-1][1].row["num_rows"]


def test_a_costly_sampler_is_called_less_often(bench: Benches) -> None:
    calls: list[int] = []

    def costly(surroundings: Surroundings, now_ns: int) -> dict[str, Any]:
        calls.append(now_ns)
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        return good(surroundings, now_ns)

    tried = bench(costly=costly)
    tried.update(rank(0))
    tried.until(lambda: len(calls) >= 4)
    assert min(after - before for before, after in pairwise(calls)) >= 150_000_000


def test_long_steps_are_sampled_once_each_and_the_end_is_not_waited_for(bench: Benches) -> None:
    calls: list[tuple[int, int]] = []

    def sample(surroundings: Surroundings, now_ns: int) -> dict[str, Any]:
        calls.append((now_ns, len(surroundings.processes())))
        return good(surroundings, now_ns)

    tried = bench(sample=sample)
    tried.host.step_s = 0.2
    tried.update(rank(0))
    tried.until(lambda: len(calls) >= 4)
    assert min(after[0] - before[0] for before, after in pairwise(calls)) >= 200_000_000
    tried.host.step_s = 1e9
    assert tried.host._workers[0]._pause_s() == sampling_host.SLOWEST_S
    tried.update()
    began = time.monotonic()
    tried.until(lambda: calls[-1][1] == 0)
    assert time.monotonic() - began < sampling_host.SLOWEST_S / 2


def test_rows_nobody_takes_are_dropped_and_counted(bench: Benches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_host, "MAX_WAITING", 5)
    tried = bench(good=good)
    tried.update(rank(0))
    deadline = time.monotonic() + 20
    worker = tried.host._workers[0]
    while not worker.report(0, 0)["num_dropped"]:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    tried.take()
    assert len(tried.of("host_sample")) == 5


def test_no_thread_is_left_once_it_is_stopped(bench: Benches) -> None:
    tried = bench(ends=good)
    tried.update(rank(0))
    tried.until(lambda: tried.of("host_sample"))
    (thread,) = (each for each in threading.enumerate() if each.name == "rankscope-ends")
    tried.host.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_a_library_that_is_not_installed_is_no_failure(bench: Benches, tmp_path: Path) -> None:
    tried = bench(good=good)
    (tmp_path / "made_up.py").write_text("import a_library_that_nobody_has")
    spec = importlib.util.spec_from_file_location("rankscope.hooks.made_up", tmp_path / "made_up.py")
    assert spec is not None

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> object:
            return spec if name == "rankscope.hooks.made_up" else None

    sys.modules.pop("rankscope.hooks.made_up")
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    try:
        tried.update(rank(0))
        why = "the library a_library_that_nobody_has is not installed"
        tried.until(lambda: tried.of("capture", hook="good", is_on=False, why=why))
    finally:
        sys.meta_path.remove(Finder)  # type: ignore[arg-type]
    assert tried.of("capture", hook="good")[-1][1].row["num_errors"] == 0
