"""Writing what an importer found as an ordinary run: sealed files, entities, an index. Verify, query and report work.

Rows go through the same segments as the agent's, without streams: an import that is broken off leaves no run behind
that looks whole, since run.json is written last.
"""

from typing import Any

import pyarrow as pa

from rankscope.schema import paths
from rankscope.schema.arrow import rows_to_table
from rankscope.schema.errors import MixedRuns, UnreadableFile
from rankscope.schema.process_state import Row, RunRef

from .. import rundir
from ..index import node_lock, update_index
from ..segments import Segment, seal_entities

INCARNATION = 0


class ImportedRun:
    """One run being written. address: a folder, or an address for pyarrow's file systems.

    Use it as a context manager: left by an exception, what is not sealed is removed. Raises MixedRuns where there is a
    run already, UnreadableFile where nothing can be written.
    """

    def __init__(self, address: str, run_id: str, node: str) -> None:
        self.run = RunRef(run_id, address)
        self._place, self._node = rundir.RunDir(address), node
        self._segments: dict[str, Segment] = {}
        self._spool = "" if self._place.is_local else str(paths.local_base() / paths.SPOOL)
        self._k = f"{paths.hash63(run_id):016x}"[:8]
        if self._place.run_id() is not None or self._place.list(""):
            raise MixedRuns(f"{address} is not empty; give the imported run a folder of its own")

    def __enter__(self) -> "ImportedRun":
        return self

    def __exit__(self, *_: object) -> None:
        for segment in self._segments.values():
            segment.close()

    def add(self, table: str, rows: pa.Table) -> None:
        """Rows of a fact table. Raises UnreadableFile (the run cannot be written)."""
        if not rows.num_rows:
            return
        segment = self._segments.get(table)
        if segment is None:
            segment = self._segments[table] = Segment(table, INCARNATION, self._node, f"{self._k}-{table}", 0)
        try:
            segment.gather(self._place, [rows], self._spool)
        except OSError as error:
            raise UnreadableFile(f"{self.run.run_dir}: {error.strerror or error}") from error

    def finish(self, entities: dict[str, list[Row]]) -> int:
        """Seal everything; the number of rows of facts. entities: rows by table. Raises UnreadableFile."""
        try:
            with node_lock(self._place):
                entries = [entry for segment in self._segments.values()
                           if (entry := segment.seal(self._place, self._spool)) is not None]  # fmt: skip
                num_rows = sum(entry.num_rows for entry in entries)
                for table, rows in entities.items():
                    data: list[Any] = [rows_to_table(table, rows)]
                    entries.append(seal_entities(self._place, table, self._node, data, [], self._spool))
                update_index(self._place, self._node, entries, [])
                self._place.prepare(self.run)
        except OSError as error:
            raise UnreadableFile(f"{self.run.run_dir}: {error.strerror or error}") from error
        return num_rows
