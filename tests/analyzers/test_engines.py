"""The same report from one process, from a pool of processes, with one thread and with two: bit for bit."""

import json
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

import pytest
from run_builder import WORLD, RunBuilder

from rankscope.analyzers import engines, parts
from rankscope.analyzers.engines import Engine, InProcess
from rankscope.analyzers.report import report
from rankscope.analyzers.run import Run
from rankscope.schema.errors import SettingsError


def text_of(run_dir: Path, engine: Engine, threads: int) -> str:
    """The whole report as JSON, every number with all its digits."""
    with Run.open(str(run_dir), threads=threads, engine=engine) as run:
        return json.dumps(report(run).as_json(), sort_keys=True, default=str)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six ranks on three nodes, two of them on one host, one node's rows not sealed yet; rank 3 comes 3 ms late."""
    root = tmp_path_factory.mktemp("engines") / "run"
    for number in range(3):
        build = RunBuilder(root, world_size=6, node=f"node-{number}")
        ranks = [2 * number, 2 * number + 1]
        for rank in ranks:
            late = 3 * (rank == 3)
            for step in range(12):
                start = 20 * step
                build.span(rank, step, "forward", start, start + 8 + late)
                for seq, group in ((2 * step, WORLD), (2 * step + 1, WORLD), (step, f"pair-{number}")):
                    begin = start + 8 + late + seq % 2
                    build.collective(rank, seq, begin, (begin, start + 14), start + 14, step=step, group_id=group)
                build.step(rank, step, start, start + 20)
        build.entities(ranks)
        build.group(f"pair-{number}", ranks, "tp")
        for row in build.rows["process", None]:
            row["boot_id"] = "boot-0" if number < 2 else "boot-2"
        build.stream() if number == 1 else build.seal()
    return root


@pytest.fixture(scope="module")
def plain(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one process with one thread says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path_factory.mktemp("local")))
        return text_of(run_dir, Engine(), 1)


def test_the_same_report_from_one_process_and_a_pool(
    run_dir: Path, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plain == text_of(run_dir, Engine(), 2)
    monkeypatch.setattr(parts, "PART_ROWS", 40)
    assert plain == text_of(run_dir, Engine("pool"), 2)


def test_a_large_run_is_read_by_a_pool_and_a_small_one_is_not() -> None:
    auto = Engine.parse("auto")
    assert auto.chosen(engines.POOL_ROWS, 2).kind == "pool"
    assert auto.chosen(engines.POOL_ROWS, 1).kind == "local"
    assert auto.chosen(engines.POOL_ROWS - 1, 64).kind == "local"
    assert Engine.parse("ray:head:10001") == Engine("ray", "head:10001")


@pytest.mark.parametrize("text", ["", "spark", "pool:4", "local:x"])
def test_what_is_no_engine_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="auto, local, pool, ray or ray:ADDRESS"):
        Engine.parse(text)


class _Broken(InProcess):
    """Every second call is lost with its worker."""

    def __init__(self) -> None:
        self.num = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.num += 1
        if self.num % 2:
            return super().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        future.set_exception(BrokenExecutor("a worker was killed"))
        return future


def test_parts_of_a_killed_worker_are_done_here(run_dir: Path, plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = _Broken()

    def executor(engine: Engine, num_workers: int) -> Executor:
        return broken

    monkeypatch.setattr(parts, "PART_ROWS", 40)
    monkeypatch.setattr(engines, "_executor", executor)
    assert plain == text_of(run_dir, Engine("pool"), 2)
    assert broken.num > 3


def test_an_error_in_a_part_passes_as_it_is() -> None:
    with InProcess() as executor, pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 // 0).result()
