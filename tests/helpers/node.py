"""A node in a test: its launch folder, the agent run to its end in this process, and what then lies in the run."""

import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_rank import NODE, FakeRank

from rankscope.schema import paths
from rankscope.schema.arrow import conform
from rankscope.schema.leftovers import find_leftovers
from rankscope.schema.merge import merge_rows
from rankscope.schema.streams import read_stream
from rankscope.schema.tables import TABLES
from rankscope.tracer import agent
from rankscope.tracer.rundir import RunDir
from rankscope.tracer.verify import sealed_names, verify


class Node:
    """One node with one launch, below `base`; `make_node` also points the local directory there."""

    def __init__(self, base: Path) -> None:
        self.base, self.run_dir = base, base / "run"
        self.folder = paths.local_base() / "launch"

    def rank(self, rank: int = 0, **changed: Any) -> FakeRank:
        """A rank of the launch, in this process: dead to the agent."""
        return FakeRank(self.folder, str(self.run_dir), rank, **changed)

    def agent(self, stop: threading.Event | None = None) -> None:
        """Run an agent until it leaves."""
        agent.NodeAgent(self.folder).run(stop or threading.Event())

    def sealed(self, table: str) -> list[dict[str, Any]]:
        """The rows of the sealed files of a table, in file order."""
        paths = sealed_paths(self.run_dir, table)
        return [row for path in paths for row in conform(pq.read_table(path, partitioning=None), table).to_pylist()]

    def everything(self, table: str) -> list[dict[str, Any]]:
        """What a reader sees of a table: sealed files, then streams, then leftovers; one row a key."""
        return read_everything(self.run_dir, table)

    def local_files(self) -> list[str]:
        """Names of the journals, rings and spooled files that are left on the node."""
        return sorted(
            path.name for path in self.folder.rglob("*")
            if path.is_file() and path.name not in (paths.AGENT_LOCK, paths.AGENT_LOG)
        )  # fmt: skip

    def check_intact(self) -> None:
        """Every sealed file is as the index says, nothing is unsealed, and any Parquet tool reads it."""
        assert verify(str(self.run_dir)).problems == ()
        for table in TABLES:
            for path in sealed_paths(self.run_dir, table):
                duckdb.execute(f"SELECT count(*) FROM '{path}'").fetchall()


def read_everything(run_dir: Path, table: str) -> list[dict[str, Any]]:
    """What a reader sees of a table: sealed files, then streams, then leftovers; one row a key."""
    parts = [conform(pq.read_table(path, partitioning=None), table) for path in sealed_paths(run_dir, table)]
    parts += [read_stream(str(path), table) for path in sorted(run_dir.glob(f"live/*/{table}.*.arrows"))]
    for leftover in find_leftovers(str(run_dir)):
        parts += [rows for key, rows in leftover.tables().items() if key[0] == table]
    if not parts:
        return []
    found: list[dict[str, Any]] = merge_rows(pa.concat_tables(parts).unify_dictionaries(), table).to_pylist()
    return found


def sealed_paths(run_dir: Path, table: str) -> list[Path]:
    """The sealed files of a table."""
    return [run_dir / name for name in sealed_names(RunDir(str(run_dir))) if name.split("/")[0] == table]


def make_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node below `tmp_path` whose agent does not wait for restarted ranks."""
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))
    monkeypatch.setattr(agent, "GRACE_NS", 0)
    monkeypatch.setattr(agent, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(paths, "TMPFS_BASE", tmp_path / "shm")
    return Node(tmp_path)


__all__ = ["NODE", "Node", "make_node", "read_everything"]
