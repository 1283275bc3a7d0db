"""Hosts and ranks against answers worked out by hand."""

from pathlib import Path
from typing import Any

import pytest
from run_builder import MS, NODE, RunBuilder, proc_of

from rankscope.analyzers.host import Hosts, hosts
from rankscope.analyzers.host_headlines import host_headlines
from rankscope.analyzers.network import Network
from rankscope.analyzers.run import Run


def use(build: RunBuilder, rank: int, at: int, waited: int | None, ran: int, **more: Any) -> None:
    """A reading of a rank: waited and ran so far, times in ms."""
    columns = {"proc": proc_of(rank), "rank": rank, "time_ns": at * MS, "cpu_user_ns": ran * MS, "cpu_system_ns": 0,
               "run_queue_wait_ns": None if waited is None else waited * MS, "rss_bytes": 1000 + at}  # fmt: skip
    build.add("process_sample", 0, **(columns | more))


def found(build: RunBuilder) -> Hosts:
    build.entities()
    with Run.open(str(build.seal())) as run:
        return hosts(run)


def test_memory_against_its_limit_and_pressure(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    readings = ((None, 100, 0.0), (0.5, 960, 0.2), (1.0, 300, 0.1))
    for at, (cpu, memory, pressure) in enumerate(readings):
        build.add("host_sample", 0, node=NODE, time_ns=at * MS, cpu_utilisation_ratio=cpu, cpu_limit_cores=2.0,
                  memory_used_bytes=memory, memory_limit_bytes=1000, cpu_pressure_ratio=pressure,
                  reason={"io_pressure_ratio": "x"})  # fmt: skip
    told = found(build)
    (host,) = told.hosts
    assert [item.value for item in host.cpu] == [0.75, 1.0] and host.cpu[0].n == 2 and host.cpu_limit_cores == 2.0
    assert (host.memory_used.value, host.memory_share.value, host.memory_limit_bytes) == (960, 0.96, 1000)
    told_pressure = {(item.scope["resource"], item.scope["statistic"]): item for item in host.pressure}
    assert told_pressure["cpu", "max"].value == 0.2 and round(float(told_pressure["cpu", "mean"].value or 0), 9) == 0.1
    assert told_pressure["io", "max"].value is None and told_pressure["io", "max"].reason
    assert host.cpu_series == (500, 1000) and host.memory_series == (100, 960, 300)
    (line,) = host_headlines(told, Network(()))
    assert line.text == f"Memory of {NODE} was 96 % full, of its limit."


def test_only_the_rank_whose_cpu_is_taken_is_contended(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=3)
    for rank in range(3):
        for step in range(3):
            build.step(rank, step, 100 * step, 100 * step + 100)
    for at, waited, ran in ((50, 1000, 50), (100, 1000, 100), (300, 1080, 180)):
        use(build, 0, at, waited, ran, num_involuntary_switches=at)  # in steps: waited 80 of 200 ms, ran 80
        use(build, 1, at, 7, 2 * ran)
        use(build, 2, at, waited // 10, ran)  # waited 8 ms
    told = found(build)
    zero, one, two = told.processes
    assert (zero.wait.value, zero.cpu.value, zero.runnable_share, zero.num_involuntary) == (0.4, 0.4, 0.5, 200)
    assert (one.wait.value, one.cpu.value, two.wait.value) == (0.0, 0.8, 0.04)
    assert told.contended == (0,)
    (line,) = host_headlines(told, Network(()))
    assert line.text == "Rank 0 had to wait for a CPU up to 50 % of the runnable time: others run there."


@pytest.mark.parametrize(
    "waits, named",
    [((80, 30, 8), (0,)), ((80, 30), (0,)), ((80, 70, 60), (0, 1, 2)), ((80, 78, 8, 8), (0, 1)), ((80,), (0,)),
     ((18, 2), ())],
)  # fmt: skip
def test_on_a_node_with_too_much_to_do_the_rank_that_waits_most_is_named(
    tmp_path: Path, waits: tuple[int, ...], named: tuple[int, ...]
) -> None:
    """Of 200 ms each rank wants to run 100 besides; 30 ms are over the thresholds, 18 are not."""
    build = RunBuilder(tmp_path / "run", world_size=len(waits))
    for rank, wait in enumerate(waits):
        for step in range(3):
            build.step(rank, step, 100 * step, 100 * step + 100)
        use(build, rank, 100, 0, 0)
        use(build, rank, 300, wait, 80)
    assert found(build).contended == named


def test_waits_of_several_threads_add_up_to_more_than_the_time_but_not_in_the_sentence(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 100)
    build.step(0, 1, 100, 200)
    build.step(0, 2, 200, 300)
    for at, waited, ran in ((50, 0, 0), (100, 0, 0), (300, 600, 200)):
        use(build, 0, at, waited, ran)
    told = found(build)
    assert told.processes[0].wait.value == 3.0
    (line,) = host_headlines(told, Network(()))
    assert line.text == "Rank 0 had to wait for a CPU up to 75 % of the runnable time: others run there."


def test_a_kernel_that_does_not_tell_waits(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for at in (0, 10):
        use(build, 0, at, None, at, reason={"run_queue_wait_ns": "the kernel keeps no schedstat"})
    use(build, 1, 0, 1, 1)
    told = found(build)
    assert told.processes[0].wait.reason == "the kernel keeps no schedstat" and told.processes[0].cpu.value == 1.0
    assert told.processes[1].wait.value is None and "two readings" in told.processes[1].wait.reason
    assert told.contended == () and not list(host_headlines(told, Network(())))


def test_nothing_sampled(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 1)
    assert found(build) == Hosts((), ())


def test_readings_of_a_small_part_of_the_run_are_said_to_be_that(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for step in range(4):
        build.step(0, step, 1000 * step, 1000 * step + 1000)
    for at in (2500, 3900):
        build.add("host_sample", 0, node=NODE, time_ns=at * MS, cpu_utilisation_ratio=0.5)
    told = found(build)
    assert told.covered_ns == (1400 * MS, 4000 * MS)
    (line,) = host_headlines(told, Network(()))
    assert line.text.startswith("Hosts, network and storage were read for 1.4 s of the 4.0 s in which steps were made")
