"""Identity: one process for ever, the same launch for all ranks of a node."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.tracer import identity

TELL = "from rankscope.tracer.identity import identify as i; print(i().proc, i().launch, i().launcher.split('/')[2])"


def told(command: list[str], env: dict[str, str] | None = None) -> tuple[str, str, int]:
    done = subprocess.run(
        command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=True, timeout=30
    )
    proc, launch, parent = done.stdout.split()
    return proc, launch, int(parent)


def test_a_process_is_one_and_its_own():
    assert identity.identify() == identity.identify()
    mine = identity.identify()
    assert 0 < mine.proc < 2**63
    assert mine.started_ns is not None and abs(mine.started_ns / 1e9 - os.stat("/proc/self").st_ctime) < 3600 * 24 * 365
    first, second = told([sys.executable, "-c", TELL]), told([sys.executable, "-c", TELL])
    assert first[0] != second[0] != str(mine.proc)
    assert first[1] == second[1] and first[2] == second[2] == os.getpid()


def test_a_second_attach_is_another_process_of_the_same_launch():
    again = identity.identify(1)
    assert again.proc != identity.identify().proc and again.launch == identity.identify().launch


def test_a_wrapper_script_between_torchrun_and_the_rank_is_seen_through():
    rank = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "0", "MASTER_PORT": "1"}
    wrapped = ["/bin/sh", "-c", f'"{sys.executable}" -c "{TELL}"; true']
    assert told(wrapped, rank)[2] == os.getpid()
    assert told(wrapped)[2] != os.getpid()


def test_cpu_lists_of_the_kernel():
    assert identity.cpu_list("0-2,5\n") == {0, 1, 2, 5}
    assert identity.cpu_list("") == set()


def test_numa_nodes_are_those_of_the_cpus(tmp_path):
    for node, cpus in enumerate(("0-3", "4-7", "8-11")):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
    assert identity.numa_nodes(tmp_path, [3, 9]) == [0, 2]
    assert identity.numa_nodes(tmp_path / "none", [0]) == []


@pytest.mark.parametrize(
    ("cgroup", "container", "pod"),
    [
        ("0::/\n", None, None),
        ("12:cpu:/docker/" + "ab" * 32, "ab" * 32, None),
        (
            "0::/kubepods.slice/kubepods-pod12345678_1234_1234_1234_123456789abc.slice/cri-" + "cd" * 32 + ".scope",
            "cd" * 32, "12345678-1234-1234-1234-123456789abc",
        ),
    ],
)  # fmt: skip
def test_container_and_pod_come_from_the_cgroup(monkeypatch, cgroup, container, pod):
    monkeypatch.setattr(identity, "_text", lambda path: cgroup if path == Path("/proc/self/cgroup") else "")
    assert identity._container() == (container, pod)
