"""The engine ray: a cluster of two nodes on this machine, one of whose workers is killed while it works."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from three_nodes import text_of, three_nodes

from rankscope.analyzers import parts
from rankscope.analyzers.engines import Engine, RayExecutor
from rankscope.schema.errors import SettingsError

pytestmark = pytest.mark.slow
TASK = "ray::_call"
"""The title of a worker while it computes a part."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of two nodes of one core each."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    made = Cluster()
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=100_000_000, include_dashboard=False)
    yield made.address
    made.shutdown()


class Killer:
    """Kills the first worker that computes a part."""

    def __init__(self) -> None:
        self.killed, self._is_over = list[int](), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self.killed and not self._is_over.wait(0.002):
            for process in psutil.Process().children(recursive=True):
                try:
                    is_busy = process.cmdline()[:1] == [TASK]
                except psutil.Error:
                    continue
                if is_busy and not self.killed:
                    os.kill(process.pid, signal.SIGKILL)
                    self.killed.append(process.pid)


def test_the_same_report_although_a_worker_is_killed(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = three_nodes(tmp_path / "run")
    plain = text_of(run_dir, Engine(), 1)
    monkeypatch.setattr(parts, "PART_ROWS", 20)
    killer = Killer()
    found = text_of(run_dir, Engine("ray", cluster), 2)
    killer.stop()
    assert len(killer.killed) == 1
    assert found == plain


def test_without_ray_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"rankscope\[ray\]"):
        RayExecutor("")
