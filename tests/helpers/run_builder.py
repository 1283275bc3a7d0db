"""Small runs with known answers: rows are given, files are written as an agent would seal or stream them."""

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.schema.arrow import rows_to_table
from rankscope.schema.paths import entity_file, fact_folder, live_folder, stream_name
from rankscope.schema.tables import TABLES
from rankscope.schema.version import ONTOLOGY_VERSION

NODE = "host-a-11111111"
BOOT_ID = "11111111-aaaa"
MS = 1_000_000
WORLD = "world-group"

Rows = list[dict[str, Any]]


def proc_of(rank: int, incarnation: int = 0) -> int:
    """The process of a rank: 1000 and up, another one in every incarnation."""
    return 1000 + rank + 100_000 * incarnation


@dataclass
class RunBuilder:
    """Collects rows; `seal` and `stream` write what was collected since, and forget it."""

    root: Path
    run_id: str = "run-1"
    world_size: int = 2
    node: str = NODE
    records: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    rows: dict[tuple[str, int | None], Rows] = field(default_factory=lambda: defaultdict(list))
    numbers: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, table: str, partition: int | None = None, /, **columns: Any) -> dict[str, Any]:
        """One row of `table`; facts and readings need the incarnation of their partition."""
        self.rows[table, partition].append(columns)
        return columns

    def fact(self, table: str, rank: int, incarnation: int = 0, **columns: Any) -> dict[str, Any]:
        """One row of a process, with the next record number of its ring."""
        proc = proc_of(rank, incarnation)
        if "record" not in columns:
            columns["record"] = self.records[proc]
            self.records[proc] += 1
        return self.add(table, incarnation, proc=proc, rank=rank, **columns)

    def entities(
        self, ranks: list[int] | None = None, exit_kind: str = "clean", incarnation: int = 0, dropped: int = 0,
        ends: dict[int, dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        """The run, the node, the processes of `ranks` (all) and the world group. Comes last: it counts records.

        ends: columns of single ranks' processes.
        """
        self.add(
            "run",
            run_id=self.run_id,
            job_id="job-1",
            world_size=self.world_size,
            created_ns=0,
            ontology_version=ONTOLOGY_VERSION,
        )
        self.add("node", node=self.node, host=self.node.rsplit("-", 1)[0], boot_id=BOOT_ID)
        for rank in range(self.world_size) if ranks is None else ranks:
            proc = proc_of(rank, incarnation)
            row = {"proc": proc, "rank": rank, "local_rank": rank, "node": self.node, "boot_id": BOOT_ID,
                   "host": self.node.rsplit("-", 1)[0], "pid": 100 + rank, "incarnation": incarnation,
                   "exit_kind": exit_kind, "num_records": self.records[proc] + dropped,
                   "num_dropped": dropped}  # fmt: skip
            self.add("process", **(row | (ends or {}).get(rank, {})))
        self.group(WORLD, list(range(self.world_size)), "world", incarnation)

    def group(self, group_id: str, members: list[int], dimension: str | None = None, incarnation: int = 0) -> None:
        """A group of consecutive members."""
        self.add(
            "process_group",
            group_id=group_id,
            incarnation=incarnation,
            member_starts=[members[0]],
            member_strides=[1],
            member_counts=[len(members)],
            size=len(members),
            backend="gloo",
            mesh_dimension=dimension,
        )

    def collective(
        self, rank: int, seq: int, issued: int, waited: tuple[int, int] | None, completed: int | None, **more: Any
    ) -> None:
        """An all_reduce of 1,000 bytes in the world group; times in ms after the start."""
        columns: dict[str, Any] = {
            "step": 1, "group_id": WORLD, "op": "all_reduce", "seq": seq, "reduce_op": "sum", "dtype": "float32",
            "bytes_in": 1000, "bytes_out": 1000, "is_async": False, "issued_ns": issued * MS,
            "wait_begin_ns": waited[0] * MS if waited else None, "wait_end_ns": waited[1] * MS if waited else None,
            "completed_ns": completed * MS if completed is not None else None,
            "state": "issued" if completed is None else "completed",
            "timing_source": None if completed is None else "wait" if waited else "poll", "tier": "class",
        }  # fmt: skip
        incarnation = more.pop("incarnation", 0)
        self.fact("collective", rank, incarnation, **(columns | more))

    def step(self, rank: int, step: int, start: int, end: int, **more: Any) -> None:
        """A step from `start` to `end`, in ms."""
        columns = {
            "step": step,
            "start_ns": start * MS,
            "end_ns": end * MS,
            "boundary": "optimizer",
            "is_skipped": False,
        }
        incarnation = more.pop("incarnation", 0)
        self.fact("step", rank, incarnation, **(columns | more))

    def span(self, rank: int, step: int, kind: str, start: int, end: int, **more: Any) -> None:
        """A span from `start` to `end`, in ms."""
        self.fact("span", rank, 0, **({"step": step, "kind": kind, "start_ns": start * MS, "end_ns": end * MS} | more))

    def seal(self, *, shuffle: random.Random | None = None) -> Path:
        """Write the collected rows as Parquet."""
        self._describe()
        for (table, incarnation), rows in self.rows.items():
            if shuffle:
                shuffle.shuffle(rows)
            path = self._sealed_path(table, incarnation)
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows_to_table(table, rows), path, compression="zstd")
        self.rows.clear()
        return self.root

    def stream(self, batches: int = 1) -> Path:
        """Write the collected rows as Arrow streams that nobody sealed."""
        self._describe()
        folder = Path(live_folder(str(self.root), self.node))
        folder.mkdir(parents=True, exist_ok=True)
        for (table, incarnation), rows in self.rows.items():
            is_entity = TABLES[table].table_class == "entity"
            name = stream_name(table, None if is_entity else incarnation, self._k(table, incarnation))
            data = rows_to_table(table, rows)
            with pa.ipc.new_stream(folder / name, data.schema) as writer:
                writer.write_table(data, max_chunksize=max(1, -(-data.num_rows // batches)))
        self.rows.clear()
        return self.root

    def _sealed_path(self, table: str, incarnation: int | None) -> Path:
        if TABLES[table].table_class == "entity":
            return Path(entity_file(str(self.root), table, self.node))
        folder = Path(fact_folder(str(self.root), table, incarnation or 0, self.node))
        return folder / f"{self._k(table, incarnation)}.parquet"

    def _k(self, table: str, incarnation: int | None) -> str:
        key = f"{table}.{incarnation}"
        self.numbers[key] += 1
        return f"agent-{self.numbers[key]}"

    def _describe(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "run.json").write_text(json.dumps({"run_id": self.run_id, "ontology_version": ONTOLOGY_VERSION}))


def healthy_run(root: Path, *, shuffle: random.Random | None = None, pieces: int = 1) -> Path:
    """Two ranks, five steps of 100 ms, one of 300 ms; one all_reduce a step, for which rank 1 is 20 ms late.

    Worked out by hand: counted steps are 1..5 on both ranks; durations 100, 100, 100, 100, 300 ms. In each step rank 0
    issues at +50 and waits till +80, rank 1 issues at +70 and waits till +80: host waits 30 and 10 ms, waits by arrival
    20 and 0 ms, transfer 10 ms.
    """
    build = RunBuilder(root)
    start = 0
    for step, duration in enumerate([400, 100, 100, 100, 100, 300]):
        for rank in (0, 1):
            begin = start + (50 if rank == 0 else 70)
            build.span(rank, step, "forward", start, start + 40)
            build.collective(rank, step, begin, (begin, start + 80), start + 80, step=step)
            build.step(rank, step, start, start + duration)
        start += duration
        if pieces > 1 and step % 2 == 1:
            build.seal(shuffle=shuffle)
    for rank in (0, 1):
        build.add(
            "capture",
            0,
            proc=proc_of(rank),
            rank=rank,
            record=10_000,
            time_ns=start * MS,
            hook="process_groups",
            tier="class",
            is_on=True,
            num_rows=6,
            num_dropped=0,
            num_errors=0,
            num_calls=640,
            num_timed_calls=10,
            timed_ns=50_000,
            timed_ns_squared=250e6,
        )
    build.entities()
    return build.seal(shuffle=shuffle)
