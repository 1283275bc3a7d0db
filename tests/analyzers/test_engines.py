"""The same report from one process, from a pool of processes, with one thread and with two: bit for bit."""

from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

import pytest
from three_nodes import text_of, three_nodes

from rankscope.analyzers import engines, listing, parts, run
from rankscope.analyzers.engines import Engine, InProcess
from rankscope.schema.errors import SettingsError


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return three_nodes(tmp_path_factory.mktemp("engines") / "run")


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


def test_the_same_report_where_files_are_many(run_dir: Path, plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files read side by side, and table step kept in memory."""
    monkeypatch.setattr(listing, "_READERS", 1)
    monkeypatch.setattr(listing, "_BUNDLE", 1)
    monkeypatch.setattr(run, "_MANY_FILES", 1)
    assert plain == text_of(run_dir, Engine(), 1)


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
