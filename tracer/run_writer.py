"""Writing one run of this node: rows go to streams every two seconds, to sealed files later, none is lost between.

Where the run directory cannot be written (read-only, full, a quota, not there), rows go to streams in the launch
folder's spool, and the directory is tried again every ten seconds; what was spooled is then sealed there. Where the
spool cannot be written either, rows stay in memory, and once these are many the rings are not drained any further: what
they then overwrite is counted. On an object store streams always lie in the spool, and a sealed file is one PUT.

Longer than 300 lines because going to the run directory, leaving it and coming back are one set of states.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rankscope.schema import paths
from rankscope.schema.arrow import arrow_schema, rows_to_table
from rankscope.schema.errors import MixedRuns
from rankscope.schema.index import IndexEntry
from rankscope.schema.process_rows import PlacedRow
from rankscope.schema.process_state import Row, RunRef
from rankscope.schema.ring_rows import Part, parts_to_arrow
from rankscope.schema.tables import RING_TABLES, TABLES

from .adopt import Orphans, adopt, sealed_keys, without
from .compact import compact
from .drain import Batch
from .index import node_lock, read_index, relative, update_index
from .orphans import BEAT_NS, collect, is_agent_alive, remove_beat, tokens, write_beat
from .rundir import RunDir
from .segments import SEAL_NS, EntityRows, Segment
from .thinning import Thinning

RETRY_NS: Final = 10_000_000_000
MAX_QUEUED_ROWS: Final = 100_000
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """Who writes. token: names its streams; lock: the file whose record lock it holds."""

    node: str
    token: str
    boot_id: str
    lock: str
    folder: Path


@dataclass(slots=True)
class _Queue:
    final: list[pa.Table] = field(default_factory=list)
    provisional: list[pa.Table] = field(default_factory=list)


class RunWriter:
    """One run's writer on one node. held: keys (proc, record) of the rows that the drains have not given as final yet.

    rotated: called when provisional rows must be given again, since the stream that held them is gone. say: one line.
    budget_bytes: of this run on this node; see `thinning`.
    """

    def __init__(
        self, run: RunRef, me: AgentIdentity, held: Callable[[], pa.Table], rotated: Callable[[], None],
        say: Callable[[str], None], budget_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.run, self.place = run, RunDir(run.run_dir)
        self.num_queued, self.is_reached = 0, False
        self._me, self._held, self._rotated, self._say = me, held, rotated, say
        self._spool_path = str(me.folder / paths.SPOOL / f"{paths.hash63(run.run_id, run.run_dir):016x}")
        self._spool = RunDir(self._spool_path)
        self._queue: dict[Key, _Queue] = {}
        self._entity_queue: dict[str, list[Row]] = {}
        self._segments: dict[Key, Segment] = {}
        self._entities: dict[str, EntityRows] = {}
        self._known: dict[Key, pa.Table] = {}
        self._superseded: list[tuple[RunDir, str]] = []
        self._num_names, self._retry_ns, self._beat_ns = 0, 0, 0
        self._lowest, self._has_complained = 0, False
        self._thinning, self._sealed_bytes = Thinning(budget_bytes), 0

    @property
    def is_stuck(self) -> bool:
        """Nothing can be written anywhere, and enough waits in memory."""
        return self.num_queued >= MAX_QUEUED_ROWS

    def add(self, batches: list[Batch]) -> None:
        """Queue what a pass over the run's processes gave. The records of all are decoded together."""
        parts: dict[tuple[int, int, bool], list[Part]] = {}
        rows: dict[Key, list[Row]] = {}
        for batch in batches:
            for placed in batch.parts:
                parts.setdefault((placed.kind, placed.incarnation, placed.is_final), []).append(placed.part)
            for row in batch.rows:
                if row.incarnation is None:
                    self._entity_queue.setdefault(row.table, []).append(row.row)
                    self.num_queued += 1
                else:
                    rows.setdefault((row.table, row.incarnation), []).append(row.row)
            for placed_table in batch.tables:
                self._enqueue((placed_table.table, placed_table.incarnation), placed_table.rows, is_final=True)
        for (kind, incarnation, is_final), found in parts.items():
            self._enqueue((RING_TABLES[kind].name, incarnation), parts_to_arrow(kind, found), is_final)
        for key, made in rows.items():
            self._enqueue(key, rows_to_table(key[0], made), is_final=True)

    def _enqueue(self, key: Key, rows: pa.Table, is_final: bool) -> None:
        rows = self._thinning.thin(*key, rows)
        if not rows.num_rows:
            return
        queue = self._queue.setdefault(key, _Queue())
        (queue.final if is_final else queue.provisional).append(rows)
        self.num_queued += rows.num_rows

    def flush(self, now_ns: int) -> bool:
        """Bring everything queued to streams. False if it is still queued."""
        if not self.is_reached and now_ns >= self._retry_ns:
            self._reach(now_ns)
        if self.is_reached:
            try:
                self._append_all(now_ns)
                self._beat(now_ns)
                self._weigh(now_ns)
                return True
            except OSError as error:
                self._retreat(error, now_ns)
        try:
            self._spool.prepare(self.run, names_place=True)
            self._append_all(now_ns)
            self._weigh(now_ns)
            return True
        except (OSError, MixedRuns):
            self._abandon()
            return False

    def seal(self, now_ns: int, everything: bool = False) -> bool:
        """Seal the segments that are old enough. True if nothing of what was flushed is outside sealed files."""
        if not self.is_reached:
            return False
        old = [key for key, segment in self._segments.items() if everything or now_ns - segment.opened_ns >= SEAL_NS]
        if old or everything:
            try:
                self._seal(old)
            except OSError as error:
                self._retreat(error, now_ns)
                return False
        return not self._segments and not self._queue and not self._superseded

    def finish(self, now_ns: int, has_time: Callable[[], bool]) -> bool:
        """Flush, seal and merge everything. True if all of it is in sealed files; else local files must stay."""
        self._retry_ns = min(self._retry_ns, now_ns)
        self._tell_thinning(now_ns, is_last=True)
        if not self.flush(now_ns) or not self.seal(now_ns, everything=True):
            self._abandon()
            return False
        try:
            compact(self.place, self._me.node, self._name(), self._spool_path, has_time)
            remove_beat(self.place, self._me.node, self._me.token)
            self._clear_spool()
        except OSError as error:
            self._say(f"{self.run.run_dir}: {error}")
            return False
        return True

    def leave(self, now_ns: int) -> None:
        """Flush and go, with processes still alive: the streams stay for whoever comes next."""
        self.flush(now_ns)
        self._abandon()

    def _append_all(self, now_ns: int) -> None:
        streams = self.place if self.is_reached and self.place.is_local else self._spool
        for table in list(self._entity_queue):
            self._append_entities(streams, table)
        for key in list(self._queue):
            self._append(streams, key, now_ns)
        self._remove_superseded()

    def _append_entities(self, streams: RunDir, table: str) -> None:
        rows = self._entity_queue[table]
        entities = self._entities.get(table)
        if entities is None:
            entities = self._entities[table] = EntityRows(table, self._me.node, self._name())
        entities.append(streams, rows_to_table(table, rows))
        del self._entity_queue[table]
        self.num_queued -= len(rows)

    def _append(self, streams: RunDir, key: Key, now_ns: int) -> None:
        queue = self._queue[key]
        num_rows = sum(table.num_rows for table in [*queue.final, *queue.provisional])
        final, provisional = self._unknown(key, queue.final), self._unknown(key, queue.provisional)
        if final or provisional:
            self._segment(key, now_ns).append(streams, final, provisional)
        del self._queue[key]
        self.num_queued -= num_rows
        if final and self.is_reached:
            self._segment(key, now_ns).gather(self.place, final, self._spool_path)

    def _segment(self, key: Key, now_ns: int) -> Segment:
        segment = self._segments.get(key)
        if segment is None:
            segment = self._segments[key] = Segment(*key, self._me.node, self._name(), now_ns)
        return segment

    def _unknown(self, key: Key, tables: list[pa.Table]) -> list[pa.Table]:
        if self.is_reached and key not in self._known:
            lowest = self._lowest if TABLES[key[0]].ring_kind else 0
            self._known[key] = sealed_keys(self.place, *key, self._me.node, lowest)
        known = self._known.get(key)
        if known is None or not known.num_rows:
            return tables
        return [rows for table in tables if (rows := without(table, known, key[0])).num_rows]

    def _seal(self, old: list[Key]) -> None:
        with node_lock(self.place):
            entries = [self._segments[key].seal(self.place, self._spool_path) for key in old]
            entries += [entities.seal(self.place, self._spool_path) for entities in self._entities.values()]
            written: list[IndexEntry] = [entry for entry in entries if entry is not None]
            if written:
                update_index(self.place, self._me.node, written, [])
                self._weigh_sealed()
        streams = self.place if self.place.is_local else self._spool
        for key in old:
            segment = self._segments.pop(key)
            segment.close()
            streams.remove(segment.stream_name)
        for entities in self._entities.values():
            entities.close()
            streams.remove(entities.stream_name)
        self._entities.clear()
        self._rotated()

    def _reach(self, now_ns: int) -> None:
        """Go (back) to the run directory: seal there what was spooled, and what dead agents of this node left."""
        self._retry_ns = now_ns + RETRY_NS
        try:
            self._prepare()
            self.place.probe()
            if self.place.is_local:
                write_beat(self.place, self._me.node, self._me.token, self._me.boot_id, self._me.lock)
            else:
                self._spool.prepare(self.run, names_place=True)
            self._abandon()
            self._load_known()
            self._adopt()
            self._weigh_sealed()
        except OSError as error:
            self._complain(error)
            return
        self.is_reached, self._beat_ns = True, now_ns
        self._rotated()
        if self._has_complained:
            self._say(f"{self.run.run_dir} is written again")
            self._has_complained = False

    def _prepare(self) -> None:
        try:
            self.place.prepare(self.run)
        except MixedRuns as error:
            self.place = RunDir(paths.beside(self.run.run_dir, self.run.run_id))
            self._say(f"{error}: this run is written to {self.place.address}")
            self.place.prepare(self.run)

    def _load_known(self) -> None:
        """Note from which record on our drains may give again what an agent before us sealed."""
        ring_tables = {table.name for table in RING_TABLES.values()}
        keys = [self._held(), *(self._keys_in_hand(table) for table in ring_tables)]
        self._lowest = min((pc.min(key.column("record")).as_py() for key in keys if key.num_rows), default=0)
        self._known.clear()

    def _adopt(self) -> None:
        orphans: dict[tuple[str, int | None], Orphans] = {}
        problems: list[str] = []
        node, me = self._me.node, self._me
        dead = [t for t in tokens(self.place, node)
                if t == me.token or not is_agent_alive(self.place, node, t, me.boot_id)]  # fmt: skip
        found = [(self.place, name) for name in collect(self.place, node, dead, orphans, problems)]
        found += [(self._spool, name) for name in collect(self._spool, node, None, orphans, problems)]
        for each in orphans.values():
            adopt(self.place, each, self._name(), self._spool_path, self._leave_out(each.table))
        self._superseded += found
        for token in dead:
            if token != me.token:
                remove_beat(self.place, node, token)
        for problem in problems:
            self._say(problem)

    def _leave_out(self, table: str) -> pa.Table | None:
        """Keys of the rows of `table` that are in our hands and will be written by us."""
        if TABLES[table].key != ("proc", "record"):
            return None
        queued = self._keys_in_hand(table)
        return pa.concat_tables([self._held(), queued]) if TABLES[table].ring_kind else queued

    def _keys_in_hand(self, table: str) -> pa.Table:
        parts = [rows.select(["proc", "record"]) for (name, _), queue in self._queue.items() if name == table
                 for rows in [*queue.final, *queue.provisional]]  # fmt: skip
        return pa.concat_tables([arrow_schema(table).empty_table().select(["proc", "record"]), *parts])

    def _remove_superseded(self) -> None:
        """Delete the streams that were adopted, now that what was left out of them is written."""
        while self._superseded and self.is_reached:
            place, name = self._superseded[-1]
            place.remove(name)
            self._superseded.pop()

    def _retreat(self, error: OSError, now_ns: int) -> None:
        """The run directory failed: leave its streams as they are, and go on in the spool."""
        self._complain(error)
        self.is_reached, self._retry_ns = False, now_ns + RETRY_NS
        self._abandon()
        self._rotated()

    def _abandon(self) -> None:
        for segment in self._segments.values():
            segment.close()
        for entities in self._entities.values():
            entities.close()
        self._segments.clear()
        self._entities.clear()

    def _complain(self, error: OSError) -> None:
        if not self._has_complained:
            self._has_complained = True
            self._say(
                f"{self.run.run_dir} cannot be written ({error}); rows are kept in {self._spool_path} until it can"
            )

    def _beat(self, now_ns: int) -> None:
        if self.place.is_local and now_ns - self._beat_ns >= BEAT_NS:
            write_beat(self.place, self._me.node, self._me.token, self._me.boot_id, self._me.lock)
            self._beat_ns = now_ns

    def _weigh_sealed(self) -> None:
        if self._thinning.is_limited:
            self._sealed_bytes = sum(entry.num_bytes for entry in read_index(self.place, self._me.node))

    def _weigh(self, now_ns: int) -> None:
        """Hold what this node wrote against its budget."""
        if self._thinning.is_limited:
            folder = relative(paths.live_folder("", self._me.node))
            places = [self._spool, *([self.place] if self.is_reached and self.place.is_local else [])]
            streams = sum(place.size(f"{folder}/{name}") for place in places for name in place.list(folder))
            self._thinning.weigh(self._sealed_bytes + streams)
            self._tell_thinning(now_ns)

    def _tell_thinning(self, now_ns: int, is_last: bool = False) -> None:
        row = self._thinning.row(paths.hash63(self._me.token), now_ns, is_last)
        if row is not None:
            self.add([Batch(rows=[PlacedRow("capture", self._thinning.incarnation, row)])])

    def _clear_spool(self) -> None:
        self._spool.remove(paths.RUN_FILE)
        self._spool.remove_empty(relative(paths.live_folder("", self._me.node)))
        RunDir(str(self._me.folder)).remove_empty(f"{paths.SPOOL}/{Path(self._spool_path).name}")

    def _name(self) -> str:
        self._num_names += 1
        return f"{self._me.token}-{self._num_names:04d}"
