"""Mounts of three kinds: what each counts, mean latencies by hand, and what is not a storage of its own."""

from pathlib import Path

import pytest
from kernel_tree import NODE, KernelTree

from rankscope.hooks.mounts import make
from rankscope.hooks.sampling import Row
from rankscope.schema.arrow import rows_to_table
from rankscope.schema.errors import HookUnavailable

MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
28 27 254:0 /var /bind rw - ext4 /dev/vda rw
29 27 254:16 / /data\\040set rw shared:1 - xfs /dev/vdb rw
30 27 7:0 / /snap/x ro - squashfs /dev/loop0 ro
31 27 0:50 / /lustre/work rw - lustre 10.0.0.1@tcp:/work rw"""
DISKS = """\
254 0 vda 10 0 100 50 20 0 200 70 0 0 0 0
254 16 vdb {reads} 0 8 {ms} 0 0 0 0 0 0 0 0
7 0 loop0 1 0 1 1 0 0 0 0 0 0 0 0"""
NFS = """\
device proc mounted on /proc with fstype proc
device server:/export mounted on /home with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tage:\t100
\tbytes:\t1 2 3 4 {read} {written} 7 8
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: {ops} {ops} 0 1 2 3 4 {ms} 0
\t       WRITE: 5 5 0 1 2 3 4 50
device other:/x mounted on /mute with fstype nfs statvers=1.0
"""
LUSTRE = """\
snapshot_time             1700000000.1 secs.nsecs
read_bytes                12 samples [bytes] 1 4096 {read}
write_bytes               3 samples [bytes] 1 4096 3000 99
open                      {ops} samples [usec] 1 10 {us}
close                     4 samples [reqs]"""


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    made = KernelTree(tmp_path)
    made.own({"self/mountinfo": MOUNTINFO, "diskstats": DISKS.format(reads=10, ms=100)})
    made.sys({"block/vda/size": 1, "block/vdb/size": 1, "block/loop0/size": 1})
    return made


def by_mount(rows: list[Row]) -> dict[str, Row]:
    return {row["mount"]: row for row in rows}


def test_local_devices_once_each(tree: KernelTree) -> None:
    sampler = make(tree.surroundings)
    first = by_mount(sampler.sample(0)["mount_sample"])
    assert set(first) == {"/", "/data set"}
    root = first["/"]
    assert (root["node"], root["kind"], root["read_bytes"], root["write_bytes"], root["num_operations"]) == (
        NODE, "local", 51_200, 102_400, 30,
    )  # fmt: skip
    assert root["latency_ns"] is None and "two readings" in root["reason"]["latency_ns"]
    tree.own({"diskstats": DISKS.format(reads=14, ms=108)})
    second = by_mount(sampler.sample(1)["mount_sample"])
    assert second["/data set"]["latency_ns"] == 2_000_000  # 8 ms in 4 operations
    assert second["/"]["latency_ns"] is None and second["/"]["reason"]["latency_ns"].startswith("no operation")
    assert rows_to_table("mount_sample", [*first.values(), *second.values()]).num_rows == 4


def test_nfs(tree: KernelTree) -> None:
    tree.own({"self/mountstats": NFS.format(read=500, written=600, ops=10, ms=100)})
    sampler = make(tree.surroundings)
    sampler.sample(0)
    tree.own({"self/mountstats": NFS.format(read=900, written=600, ops=14, ms=140)})
    rows = by_mount(sampler.sample(1)["mount_sample"])
    home = rows["/home"]
    assert (home["kind"], home["read_bytes"], home["write_bytes"], home["num_operations"]) == ("nfs", 900, 600, 20)
    assert home["latency_ns"] == 10_000_000 and home["reason"] is None
    mute = rows["/mute"]
    assert mute["read_bytes"] is None and set(mute["reason"]) == {
        "read_bytes", "write_bytes", "num_operations", "latency_ns",
    }  # fmt: skip


@pytest.mark.parametrize("place", ["proc/fs/lustre", "sys/kernel/debug/lustre", "sys/fs/lustre"])
def test_lustre(tree: KernelTree, place: str) -> None:
    def write(**counts: int) -> None:
        root, _, folder = place.partition("/")
        put = tree.own if root == "proc" else tree.sys
        put({f"{folder}/llite/work-ffff8800/stats": LUSTRE.format(**counts)})

    write(read=5000, ops=10, us=400)
    sampler = make(tree.surroundings)
    sampler.sample(0)
    write(read=6000, ops=20, us=900)
    row = by_mount(sampler.sample(1)["mount_sample"])["/lustre/work"]
    assert (row["kind"], row["read_bytes"], row["write_bytes"], row["num_operations"]) == ("lustre", 6000, 3000, 24)
    assert row["latency_ns"] == 50_000


def test_lustre_without_counters_or_a_mount(tree: KernelTree) -> None:
    tree.own({"fs/lustre/llite/scratch-ffff/stats": "garbled"})
    row = by_mount(make(tree.surroundings).sample(0)["mount_sample"])["scratch-ffff"]
    assert row["read_bytes"] is None and row["reason"]["read_bytes"] == "the file system does not count it"


def test_without_mounts_it_says_why(tmp_path: Path) -> None:
    with pytest.raises(HookUnavailable):
        make(KernelTree(tmp_path).surroundings)
