"""Which samplers an agent runs, and what they are told of a process."""

import os

from rankscope.hooks.registry import SAMPLERS
from rankscope.schema.process_state import Join, ProcessState
from rankscope.tracer.node_samplers import NodeSamplers, chosen, local_process
from rankscope.tracer.settings import Settings, from_environment

DEFAULT = [spec.name for spec in SAMPLERS if spec.default_on]


def state(**process: object) -> ProcessState:
    return ProcessState("/x/5.journal", process={"proc": 5, "rank": 1, **process})


def names(told: ProcessState, settings: Settings) -> list[str]:
    return [spec.name for spec in chosen(told, settings)]


def test_the_rank_decides_and_else_the_environment() -> None:
    assert names(state(), Settings()) == DEFAULT
    assert names(state(samplers=["host"]), Settings()) == ["host"]
    assert names(state(samplers=[]), Settings()) == []
    assert "nic" not in names(state(), from_environment({"RANKSCOPE_HOOKS": "-nic"}))
    assert names(state(), from_environment({"RANKSCOPE_HOOKS": "steps,mounts"})) == ["mounts"]


def test_a_process_by_its_last_join() -> None:
    told = state(pid=7, pid_namespace=os.stat("/proc/self/ns/pid").st_ino, numa_nodes=[0, 1])
    assert local_process(told).incarnation == 0 and local_process(told).rank == 1
    told.joins += [Join("r", "/d", 2000, 0, 4, {}, 0)]
    found = local_process(told)
    assert (found.proc, found.rank, found.incarnation, found.pid, found.numa_nodes) == (5, 4, 2000, 7, (0, 1))


def test_a_pid_of_another_namespace_means_nothing_here() -> None:
    assert local_process(state(pid=7, pid_namespace=1)).pid is None


def test_nobody_there_nothing_done() -> None:
    idle = NodeSamplers(1)
    idle.look([])
    assert idle.take(0, is_last=True) == {}
    idle.stop()
