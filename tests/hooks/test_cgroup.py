"""Limits of cgroups of both versions at every level, containers that cannot see their own path, and a real quota.

Trees of files for every form; and real groups of the kernel where this process may make some: a memory limit and a CPU
quota of version 1, and the pressure of a group of version 2. A machine has its memory and cpu controllers in one of the
versions, so limits of version 2 are real only on a machine that has them there; both are asked for.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kernel_tree import KernelTree

from rankscope.hooks.cgroup import find_cgroup
from rankscope.hooks.host import make

GIB = 1 << 30


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    return KernelTree(tmp_path)


def v2(tree: KernelTree, path: str, *, root: str = "fs/cgroup", **files: object) -> None:
    """A group of version 2 at `path`; `__` in a file's name is a dot."""
    tree.sys({f"{root}/cgroup.controllers": "cpu memory"})
    tree.sys({f"{root}{path}/{name.replace('__', '.')}": contents for name, contents in files.items()})
    tree.own({"self/cgroup": f"0::{path}"})


def test_version_2_memory_and_cpu(tree: KernelTree) -> None:
    v2(tree, "/job", memory__max=2 * GIB, memory__current=GIB, memory__stat=f"anon 5\ninactive_file {GIB // 4}",
       memory__swap__current=77, cpu__max="150000 100000", cpu__stat="usage_usec 3000\nuser_usec 1")  # fmt: skip
    group = find_cgroup(tree.sysfs, tree.proc)
    assert group.limited_memory() == (2 * GIB, GIB - GIB // 4, 77)
    assert group.limited_cpu() == (1.5, 3_000_000)


def test_the_tightest_limit_above_holds_with_its_own_usage(tree: KernelTree) -> None:
    v2(tree, "/pod/box", memory__max="max", memory__current=10, cpu__max="max 100000", cpu__stat="usage_usec 1")
    tree.sys({"fs/cgroup/pod/memory.max": 500, "fs/cgroup/pod/memory.current": 300,
              "fs/cgroup/pod/cpu.max": "50000 100000", "fs/cgroup/pod/cpu.stat": "usage_usec 9"})  # fmt: skip
    group = find_cgroup(tree.sysfs, tree.proc)
    assert group.limited_memory() == (500, 300, None) and group.limited_cpu() == (0.5, 9000)


def test_no_limit_is_none(tree: KernelTree) -> None:
    v2(tree, "/job", memory__max="max", memory__current=5, cpu__max="max 100000", cpu__stat="usage_usec 1")
    group = find_cgroup(tree.sysfs, tree.proc)
    assert group.limited_memory() is None and group.limited_cpu() is None


def test_version_1(tree: KernelTree) -> None:
    tree.own({"self/cgroup": "4:memory:/docker/0123\n3:cpu,cpuacct:/docker/0123\n1:name=systemd:/"})
    tree.sys({"fs/cgroup/memory/docker/0123/memory.limit_in_bytes": GIB,
              "fs/cgroup/memory/docker/0123/memory.usage_in_bytes": GIB // 2,
              "fs/cgroup/memory/docker/0123/memory.stat": "cache 1\ntotal_inactive_file 100\ntotal_swap 9",
              "fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
              "fs/cgroup/memory/memory.usage_in_bytes": 1, "fs/cgroup/cpu/docker/0123/cpu.cfs_quota_us": 200000,
              "fs/cgroup/cpu/docker/0123/cpu.cfs_period_us": 100000,
              "fs/cgroup/cpuacct/docker/0123/cpuacct.usage": 12345})  # fmt: skip
    group = find_cgroup(tree.sysfs, tree.proc)
    assert group.limited_memory() == (GIB, GIB // 2 - 100, 9) and group.limited_cpu() == (2.0, 12345)


def test_in_a_container_whose_path_is_the_hosts(tree: KernelTree) -> None:
    tree.own({"self/cgroup": "4:memory:/kubepods/pod1/0123\n0::/../outside"})
    tree.sys({"fs/cgroup/memory/memory.limit_in_bytes": GIB, "fs/cgroup/memory/memory.usage_in_bytes": 1000})
    assert find_cgroup(tree.sysfs, tree.proc).limited_memory() == (GIB, 1000, None)


def test_both_versions_mounted(tree: KernelTree) -> None:
    v2(tree, "/job", root="fs/cgroup/unified", cpu__pressure="some avg10=12.50 avg60=0 avg300=0 total=1")
    tree.own({"self/cgroup": "4:memory:/job\n0::/job"})
    tree.sys({"fs/cgroup/memory/job/memory.limit_in_bytes": 100, "fs/cgroup/memory/job/memory.usage_in_bytes": 60})
    group = find_cgroup(tree.sysfs, tree.proc)
    assert group.limited_memory() == (100, 60, None) and (group.pressure("cpu") or "").startswith("some avg10=12.50")


def test_no_cgroups(tree: KernelTree) -> None:
    group = find_cgroup(tree.sysfs, tree.proc)
    assert group.limited_memory() is None and group.limited_cpu() is None and group.pressure("io") is None


def own_group(controller: str) -> Path:
    """The folder of this process's group in the hierarchy of `controller` ("": version 2). Skips without one."""
    root = Path("/sys/fs/cgroup")
    lines = [line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines()]
    path = next((path for names, path in lines if controller in names.split(",")), None)
    mount = root / (controller or ("unified" if (root / "unified").is_dir() else ""))
    if path is None or not (mount / path.lstrip("/") / "cgroup.procs").exists():
        pytest.skip(f"this machine shows no hierarchy of {controller or 'version 2'}")
    return mount / path.lstrip("/")


@pytest.fixture
def make_group() -> Iterator[Callable[..., Path]]:
    """`make_group(controller, **settings)`: a group below this process's own, gone after the test."""
    made: list[Path] = []

    def make_one(controller: str, **settings: int) -> Path:
        folder = own_group(controller) / f"rankscope-test-{os.getpid()}"
        try:
            if not folder.exists():  # controllers that are mounted together share it
                folder.mkdir()
                made.append(folder)
            for name, value in settings.items():
                (folder / name.replace("__", ".")).write_text(str(value))
        except OSError as error:
            pytest.skip(f"no cgroup can be made here: {error}")
        return folder

    yield make_one
    for folder in made:
        for _ in range(100):
            try:
                folder.rmdir()
                break
            except OSError:  # its processes are not gone yet
                time.sleep(0.05)


PROGRAM = """
import sys, time
from pathlib import Path
from rankscope.hooks.cgroup import find_cgroup
from rankscope.hooks.host import make
from rankscope.hooks.sampling import Surroundings
seconds, num_bytes, *folders = sys.argv[1:]
for folder in folders:
    Path(folder, "cgroup.procs").write_text("0")
held = bytearray(int(num_bytes))
held[::4096] = b"x" * len(held[::4096])
sampler = make(Surroundings("n", Path("/sys"), Path("/proc"), tuple))
sampler.sample(time.monotonic_ns())
until = time.monotonic() + float(seconds)
while time.monotonic() < until: pass
row = sampler.sample(time.monotonic_ns())["host_sample"][0]
names = ("cpu_limit_cores", "cpu_utilisation_ratio", "memory_limit_bytes", "memory_used_bytes")
print(*(row[name] for name in names), time.process_time())
print(find_cgroup(Path("/sys"), Path("/proc")).pressure("cpu"))
"""


def inside(*folders: Path, seconds: float = 0.0, num_bytes: int = 0) -> list[str]:
    """What PROGRAM prints in the groups `folders`, after it spun for `seconds` and holding `num_bytes` of memory."""
    command = [sys.executable, "-c", PROGRAM, str(seconds), str(num_bytes), *map(str, folders)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_a_real_quota_is_the_whole_against_which_use_is_counted(make_group: Callable[..., Path]) -> None:
    cpu = make_group("cpu", cpu__cfs_period_us=20000, cpu__cfs_quota_us=10000)
    limit, used, _, _, cpu_seconds = inside(cpu, make_group("cpuacct"), seconds=1.5)[:5]
    assert float(limit) == 0.5 and float(cpu_seconds) < 2
    assert 0.05 < float(used) < 1.3  # it spins: all of half a core, or what a busy machine leaves of it


def test_a_real_memory_limit_is_the_whole_against_which_use_is_counted(make_group: Callable[..., Path]) -> None:
    group = make_group("memory", memory__limit_in_bytes=GIB // 2)
    _, _, limit, used, _ = inside(group, num_bytes=GIB // 4)[:5]
    assert int(limit) == GIB // 2
    assert GIB // 4 < int(used) < GIB // 2


def test_a_real_group_of_version_2_tells_its_pressure(make_group: Callable[..., Path]) -> None:
    group = make_group("")
    if not (group / "cpu.pressure").exists():
        pytest.skip("this kernel keeps no pressure of groups")
    assert "some avg10=" in " ".join(inside(group))


def test_real_limits_of_version_2(make_group: Callable[..., Path]) -> None:
    own = own_group("")
    if not {"cpu", "memory"} <= set((own / "cgroup.controllers").read_text().split()):
        pytest.skip("this machine has its memory and cpu controllers in version 1")
    group = make_group("", memory__max=GIB // 2)
    (group / "cpu.max").write_text("10000 20000")
    cpu_limit, _, limit, used, _ = inside(group, seconds=0.5, num_bytes=GIB // 4)[:5]
    assert (float(cpu_limit), int(limit)) == (0.5, GIB // 2) and GIB // 4 < int(used) < GIB // 2


def test_host_rows_are_against_the_limits(tree: KernelTree) -> None:
    v2(tree, "/job", memory__max=1000, memory__current=400, cpu__max="200000 100000", cpu__stat="usage_usec 1000000")
    tree.own({"stat": "cpu 1 0 0 9 0 0 0 0 0 0\ncpu0 1 0 0 9 0 0 0 0 0 0\nctxt 7",
              "meminfo": "MemTotal: 64 kB\nMemAvailable: 32 kB"})  # fmt: skip
    sampler = make(tree.surroundings)
    sampler.sample(0)
    tree.sys({"fs/cgroup/job/cpu.stat": "usage_usec 2500000"})
    tree.own({"stat": "cpu 1 0 0 99 0 0 0 0 0 0\ncpu0 1 0 0 99 0 0 0 0 0 0\nctxt 9"})
    (row,) = sampler.sample(1_000_000_000)["host_sample"]
    assert (row["memory_used_bytes"], row["memory_limit_bytes"]) == (400, 1000)
    assert row["cpu_limit_cores"] == 2.0 and row["cpu_utilisation_ratio"] == pytest.approx(0.75)  # 1.5 s of 2 cores
