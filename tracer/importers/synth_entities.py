"""The small tables of a synthetic run: who ran where, groups, clock readings, the capture's own account, and samples
of processes and devices where a straggler is to be known by them.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rankscope.schema.paths import hash63
from rankscope.schema.process_state import Row
from rankscope.schema.version import ONTOLOGY_VERSION

from .synth_clock import BOOTED_NS, EPOCH_NS, HostClock
from .synth_layout import Layout, group_id, groups_of, parts, proc_of
from .synth_plan import Plan
from .synth_planted import stage_of
from .synth_program import DIMENSIONS
from .synth_store import Store

INCARNATION: Final = 0
READING_NS: Final = 60_000_000_000
"""A process reads its clocks once a minute."""
SAMPLE_NS: Final = 1_000_000_000
MAXIMUM_ERROR_NS: Final = 20_000_000
"""What the kernels say that their wall clocks may be off by; they are off by less than half of it."""
_ROUND_TRIP_NS: Final = (120_000, 400_000)
_THROTTLED: Final = "hw_thermal_slowdown"
_CPU_SHARE: Final = 0.97


def entities(layout: Layout, run_id: str, node: int, clock: HostClock) -> dict[str, list[Row]]:
    """Rows by table of one node; the run and the groups are told by the first one."""
    plan = layout.plan
    found: dict[str, list[Row]] = {"node": [{"node": clock.node, "host": clock.name, "boot_id": clock.boot_id,
                                            "num_cpus": 8 * plan.ranks_per_node, "os": "synthetic"}]}  # fmt: skip
    found["process"] = [_process(layout, rank, clock) for rank in _ranks(plan, node)]
    if any(item.cause == "throttle" for item in plan.stragglers):
        found["device"] = [{"device_uuid": _device(plan, rank), "node": clock.node, "name": "synthetic"}
                           for rank in _ranks(plan, node)]  # fmt: skip
    if node == 0:
        found["run"] = [{
            "run_id": run_id, "job_id": "synthetic", "created_ns": EPOCH_NS, "ontology_version": ONTOLOGY_VERSION,
            "world_size": plan.ranks, "dp": plan.dp, "tp": plan.tp, "pp": plan.pp, "sharding": "fsdp",
        }]  # fmt: skip
        found["process_group"] = list(_groups(layout))
    return found


def clock_rows(plan: Plan, node: int, clock: HostClock, reference: HostClock, length_ns: float) -> list[Row]:
    """Clock readings of a node's processes; the first of each node also asks the host of rank 0, and is answered."""
    rng = np.random.default_rng([plan.seed, 2, node])
    wall_error = rng.uniform(-MAXIMUM_ERROR_NS, MAXIMUM_ERROR_NS) / 2
    found = []
    for i, rank in enumerate(_ranks(plan, node)):
        for moment in np.arange(-1e9, length_ns, READING_NS):
            row: Row = {
                "proc": proc_of(plan, rank), "rank": rank, "boot_id": clock.boot_id,
                "monotonic_ns": _stamp(clock, moment), "wall_ns": EPOCH_NS + round(moment + wall_error),
                "estimated_error_ns": MAXIMUM_ERROR_NS // 10, "maximum_error_ns": MAXIMUM_ERROR_NS,
                "is_synchronised": True,
            }  # fmt: skip
            if i == 0 and node > 0:
                trip = rng.uniform(*_ROUND_TRIP_NS)
                answered = _stamp(reference, moment - trip * rng.uniform(0.1, 0.9))
                row |= {"store_round_trip_ns": int(np.ceil(trip)) + 1, "peer_boot_id": reference.boot_id,
                        "peer_monotonic_ns": answered}  # fmt: skip
            found.append(row)
    return found


def capture_rows(layout: Layout, node: int, clock: HostClock, length_ns: float) -> list[Row]:
    """What the hooks would have told of themselves: 5 us an entry."""
    found = []
    for rank in _ranks(layout.plan, node):
        calls = layout.num_records(rank)
        found.append({
            "proc": proc_of(layout.plan, rank), "rank": rank, "time_ns": _stamp(clock, length_ns),
            "hook": "process_groups", "tier": "native", "is_on": True, "num_rows": calls, "num_dropped": 0,
            "num_errors": 0, "num_calls": calls, "num_timed_calls": calls // 64, "timed_ns": calls // 64 * 5_000,
            "timed_ns_squared": calls // 64 * 26e6, "ring_path": "/dev/shm/synthetic", "is_tmpfs": True,
        })  # fmt: skip
    return found


def process_samples(plan: Plan, node: int, clock: HostClock, store: Store) -> list[Row]:
    """One reading a second of each process: the CPU time it had, and what it waited for a CPU."""
    found = []
    for rank in _ranks(plan, node):
        ends = store.ends[rank]
        starved = np.cumsum([sum(item.delay_ns for item in plan.stragglers if item.rank == rank
                                 and item.cause == "cpu_contention" and item.is_on(step))
                             for step in range(plan.steps)])  # fmt: skip
        for moment in _moments(store, rank):
            waited = float(np.interp(moment, ends, starved)) + 0.0005 * moment
            found.append({
                "proc": proc_of(plan, rank), "rank": rank, "time_ns": _stamp(clock, moment),
                "cpu_user_ns": round(_CPU_SHARE * (moment - waited)), "cpu_system_ns": round(0.01 * moment),
                "run_queue_wait_ns": round(waited), "num_involuntary_switches": round(waited / 4e6),
                "num_voluntary_switches": round(moment / 1e6), "num_threads": 8,
            })  # fmt: skip
    return found


def device_samples(plan: Plan, node: int, clock: HostClock, store: Store) -> list[Row]:
    """One reading a second of each device, where a straggler is throttled; none else."""
    if not any(item.cause == "throttle" for item in plan.stragglers):
        return []
    found = []
    for rank in _ranks(plan, node):
        for moment in _moments(store, rank):
            step = int(np.searchsorted(store.ends[rank], moment))
            is_hot = any(item.rank == rank and item.cause == "throttle" and item.is_on(min(step, plan.steps - 1))
                         for item in plan.stragglers)  # fmt: skip
            found.append({
                "node": clock.node, "device_uuid": _device(plan, rank), "time_ns": _stamp(clock, moment),
                "sm_utilisation_ratio": 0.95, "temperature_celsius": 92.0 if is_hot else 61.0,
                "power_watts": 420.0 if is_hot else 640.0, "sm_clock_hertz": 1.1e9 if is_hot else 1.98e9,
                "throttle_reasons": _THROTTLED if is_hot else "",
            })  # fmt: skip
    return found


def checkpoint_rows(layout: Layout, node: int, clock: HostClock, store: Store) -> list[Row]:
    """The saves that stragglers by that cause made, one a step."""
    plan, found = layout.plan, list[Row]()
    for item in plan.stragglers:
        if item.cause != "checkpoint" or item.rank not in _ranks(plan, node):
            continue
        at = [kind.kind for kind in layout.span_kinds[stage_of(plan, item.rank)]].index("checkpoint")
        for step in filter(item.is_on, range(plan.steps)):
            begin, end = store.span_start[item.rank, step, at], store.span_end[item.rank, step, at]
            found.append({
                "proc": proc_of(plan, item.rank), "rank": item.rank, "record": 1_000_000_000_000 + step, "step": step,
                "action": "save", "mode": "sync", "format": "torch", "start_ns": _stamp(clock, begin),
                "blocking_end_ns": _stamp(clock, end), "end_ns": _stamp(clock, end), "outcome": "ok",
            })  # fmt: skip
    return found


def _process(layout: Layout, rank: int, clock: HostClock) -> Row:
    plan = layout.plan
    stage, data, tensor = np.unravel_index(rank, (plan.pp, plan.dp, plan.tp))
    device: dict[str, Any] = {}
    if any(item.cause == "throttle" for item in plan.stragglers):
        device["device_uuid"] = _device(plan, rank)
    return device | {
        "proc": proc_of(plan, rank), "rank": rank, "local_rank": rank % plan.ranks_per_node, "node": clock.node,
        "host": clock.name, "boot_id": clock.boot_id, "pid": 1000 + rank % plan.ranks_per_node,
        "started_ns": EPOCH_NS - 10_000_000_000, "incarnation": INCARNATION, "restart_count": 0, "from_record": 0,
        "mesh_dp": int(data), "mesh_tp": int(tensor), "mesh_pp": int(stage), "exit_kind": "clean",
        "num_records": layout.num_records(rank), "num_dropped": 0,
    }  # fmt: skip


def _groups(layout: Layout) -> Iterator[Row]:
    for dimension in DIMENSIONS:
        for members in groups_of(layout.plan, dimension):
            stride = int(members[1] - members[0])
            yield {
                "group_id": group_id(layout.plan, dimension, members), "incarnation": INCARNATION,
                "member_starts": [int(members[0])], "member_strides": [stride], "member_counts": [len(members)],
                "size": len(members), "backend": "nccl", "mesh_dimension": dimension,
                "mesh_dimension_source": "declared", "description": dimension, "ordinal": 0,
                "created_ns": BOOTED_NS,
            }  # fmt: skip


def _ranks(plan: Plan, node: int) -> list[int]:
    return [int(rank) for part in parts(plan, node) for rank in part.ranks]


def _device(plan: Plan, rank: int) -> str:
    return f"GPU-synthetic-{hash63(plan.seed, rank):016x}"


def _moments(store: Store, rank: int) -> Any:
    return np.arange(SAMPLE_NS / 2, store.ends[rank, -1] + SAMPLE_NS, SAMPLE_NS)


def _stamp(clock: HostClock, moment: float) -> int:
    return int(clock.stamps(np.array([moment]))[0])
