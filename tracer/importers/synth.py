"""`rankscope synth`: a run that nobody made, written as agents would have, with the truth of what is planted beside it.

Simulated step by step over all ranks (`synth_steps`), written node by node (`synth_rows`): one file a table and node,
sealed, sorted and indexed. Everything follows from the seed: the same plan gives the same rows. Memory: one row group a
thread, and 16 bytes an operation in a file where there are many. `truth.json` in the run directory tells the plan, the
clocks of the hosts, and what the simulation knows: the median transfer, the time that ranks computed.
"""

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute  # loads what writing calls; by several threads at once it may come too late

from rankscope.schema import paths
from rankscope.schema.arrow import rows_to_table
from rankscope.schema.errors import MixedRuns, UnreadableFile
from rankscope.schema.index import IndexEntry, encode_index
from rankscope.schema.merge import sort_rows
from rankscope.schema.process_state import Row, RunRef

from .. import rundir
from ..index import relative
from ..sealed_file import ParquetFile, describe
from ..segments import sealed_name
from . import synth_entities
from .synth_clock import HostClock, host_clocks
from .synth_layout import Layout
from .synth_plan import Plan
from .synth_rows import NodeRows
from .synth_steps import Simulation
from .synth_store import Store

K: Final = "synth"
"""The name of every file of facts: each is the only one of its table and node."""
Progress = Callable[[str, int, int], None]
"""(what is being done, how much of it is done, how much there is)."""


@dataclass(frozen=True, slots=True)
class Synthesised:
    """What was written."""

    run_id: str
    address: str
    num_rows: int
    num_files: int
    num_nodes: int


def synthesise(plan: Plan, address: str, progress: Progress = lambda what, done, total: None) -> Synthesised:
    """Write the run of `plan` to `address`, a folder or an address for pyarrow's file systems.

    Raises InputError (the plan cannot be), MixedRuns (there is something already), UnreadableFile (cannot be written).
    """
    plan.check()
    place = rundir.RunDir(address)
    if place.run_id() is not None or place.list(""):
        raise MixedRuns(f"{address} is not empty; give the synthetic run a folder of its own")
    run_id = f"synthetic-{paths.hash63(repr(plan)):016x}"
    try:
        return _write(plan, place, run_id, progress)
    except OSError as error:
        raise UnreadableFile(f"{address}: {error.strerror or error}") from error


def _write(plan: Plan, place: rundir.RunDir, run_id: str, progress: Progress) -> Synthesised:
    simulation, store = _simulated(plan, progress)
    layout = Layout.of(plan, simulation.slots, simulation.span_kinds, store)
    length = float(store.ends[:, -1].max())
    clocks = host_clocks(plan, length)
    nodes = [_Node(place, run_id, layout, store, clocks, number) for number in range(plan.num_nodes)]
    num_rows = num_files = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, entries in enumerate(pool.map(_Node.write, nodes), 1):
            num_rows += sum(entry.num_rows for entry in entries if "/node=" in entry.file)
            num_files += len(entries)
            progress("writing", number, len(nodes))
    truth = _truth(plan, run_id, simulation, layout, store, clocks)
    place.write(paths.TRUTH, json.dumps(truth, indent=1).encode() + b"\n")
    place.prepare(RunRef(run_id, place.address))
    return Synthesised(run_id, place.address, num_rows, num_files, len(nodes))


def _simulated(plan: Plan, progress: Progress) -> tuple[Simulation, Store]:
    simulation = Simulation(plan)
    store: Store | None = None
    for times in simulation.steps():
        store = store or Store(plan, times)
        store.keep(times)
        progress("simulating", times.step + 1, plan.steps)
    assert store is not None  # a plan has at least one step
    return simulation, store


class _Node:
    """Writes one node's files."""

    def __init__(
        self,
        place: rundir.RunDir,
        run_id: str,
        layout: Layout,
        store: Store,
        clocks: tuple[HostClock, ...],
        number: int,
    ) -> None:
        self._place, self._run_id, self._layout, self._store = place, run_id, layout, store
        self._clocks, self._number, self._clock = clocks, number, clocks[number]
        self._spool = "" if place.is_local else str(paths.local_base() / paths.SPOOL)
        self._entries: list[IndexEntry] = []

    def write(self) -> list[IndexEntry]:
        """All tables, then the index. Raises OSError."""
        rows = NodeRows(self._layout, self._store, self._number, self._clock)
        self._facts("collective", rows.collectives())
        self._facts("span", (sort_rows(group, "span") for group in rows.spans()))
        self._facts("step", rows.steps())
        for table, found in self._small().items():
            if found:
                self._facts(table, [sort_rows(rows_to_table(table, found), table)])
        own = synth_entities.entities(self._layout, self._run_id, self._number, self._clock)
        for table, found in own.items():
            self._sealed(table, relative(paths.entity_file("", table, self._clock.node)), [rows_to_table(table, found)])
        self._index()
        return self._entries

    def _small(self) -> dict[str, list[Row]]:
        plan, number, clock, store = self._layout.plan, self._number, self._clock, self._store
        length = float(store.ends[:, -1].max())
        return {
            "clock": synth_entities.clock_rows(plan, number, clock, self._clocks[0], length),
            "capture": synth_entities.capture_rows(self._layout, number, clock, length),
            "process_sample": synth_entities.process_samples(plan, number, clock, store),
            "device_sample": synth_entities.device_samples(plan, number, clock, store),
            "checkpoint": synth_entities.checkpoint_rows(self._layout, number, clock, store),
        }  # fmt: skip

    def _facts(self, table: str, groups: Iterable[pa.Table]) -> None:
        name = sealed_name(table, synth_entities.INCARNATION, self._clock.node, K)
        self._sealed(table, name, groups)

    def _sealed(self, table: str, name: str, groups: Iterable[pa.Table]) -> None:
        staged = self._place.staging_path(name, self._spool)
        file = ParquetFile(staged, table, [])
        try:
            for group in groups:
                file.add(group)
            file.close()
            self._entries.append(describe(staged, name))
            self._publish(staged, name)
        except BaseException:
            file.abandon()
            raise

    def _index(self) -> None:
        name = relative(paths.index_file("", self._clock.node))
        staged = self._place.staging_path(name, self._spool)
        with rundir.private_file(staged) as file:
            file.write(encode_index(self._entries))
        self._publish(staged, name)

    def _publish(self, staged: str, name: str) -> None:
        """Without waiting for the disk, as an agent would: this run can be made again."""
        if self._place.is_local:
            os.replace(staged, self._place.local_path(name))
        else:
            self._place.publish(staged, name)


def _truth(
    plan: Plan, run_id: str, simulation: Simulation, layout: Layout, store: Store, clocks: tuple[HostClock, ...]
) -> dict[str, Any]:
    busy = _computed(layout, store)
    window = store.ends[:, 1:] - store.starts[:, 1:] if plan.steps > 1 else store.ends - store.starts
    return {
        "run_id": run_id, "plan": plan.as_json(), "clocks": [clock.as_json() for clock in clocks],
        "num_collectives": int(sum(len(layout.slots[rank // (plan.dp * plan.tp)]) for rank in range(plan.ranks))
                               * plan.steps),
        "median_transfer_ns": float(np.median(simulation.transfers)) if simulation.transfers else None,
        "median_step_ns": float(np.median(window)), "compute_share": busy,
        "ideal_bubble": (plan.pp - 1) / (plan.microbatches + plan.pp - 1),
    }  # fmt: skip


def _computed(layout: Layout, store: Store) -> list[float]:
    """Share of its steps that the first rank of each stage computed, the first step left out."""
    plan, found = layout.plan, []
    for stage, kinds in enumerate(layout.span_kinds):
        rank = stage * plan.dp * plan.tp
        compute = [i for i, kind in enumerate(kinds) if kind.kind in ("forward", "backward", "microbatch_forward")]
        spans = store.span_end[rank, 1:][:, compute] - store.span_start[rank, 1:][:, compute]
        length = store.ends[rank, 1:] - store.starts[rank, 1:]
        found.append(float(np.sum(spans) / np.sum(length)) if plan.steps > 1 else float("nan"))
    return found
