"""A rank without torch: a real ring and a real journal in a launch folder, written by the tracer's own writer.

In the test's own process it is dead (it lets go of its locks): good for what has ended. As a process of its own
(`python fake_rank.py SETTINGS`) it lives, and can be killed.
"""

import fcntl
import itertools
import json
import os
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope.schema import ring
from rankscope.schema.enums import code
from rankscope.tracer import ring_file
from rankscope.tracer.journal import Journal
from rankscope.tracer.ring_writer import make_writer
from rankscope.tracer.rundir import make_folder

HOST, BOOT_ID = "host-a", "11111111-2222"
NODE = f"{HOST}-{BOOT_ID[:8]}"
COLLECTIVE, STEP = ring.layout_of("collective"), ring.layout_of("step")
WAIT, POLL = code("timing_source", "wait"), code("timing_source", "poll")
_DEFAULTS: dict[str, Any] = {
    "group_id": 1, "op": code("op", "all_reduce"), "src": -1, "dst": -1, "tag": -1, "coalescing_id": 0,
    "reduce_op": code("reduce_op", "sum"), "dtype": code("dtype", "float32"), "bytes_in": 16, "bytes_out": 16,
    "is_async": 0, "role": 0, "stage": -1, "chunk": -1, "microbatch": -1, "phase": 0,
    "tier": code("tier", "native"), "step": 0,
}  # fmt: skip


@dataclass
class FakeRank:
    """One rank. now: its clock; by default it ticks 1 us a call, from a time that no machine's uptime reaches.

    lives: it holds its locks.
    """

    folder: Path
    run_dir: str
    rank: int = 0
    proc: int = 0
    run_id: str = "run-1"
    capacity: int = 1024
    world_size: int = 1
    boot_id: str = BOOT_ID
    now: Any = None
    joins: bool = True
    incarnation: int = 0
    pid: int = 1
    lives: bool = False
    seq: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.proc = self.proc or 1000 + self.rank
        ticks = itertools.count(10**17, 1000)
        self.now = self.now or (lambda: next(ticks))
        make_folder(str(self.folder))
        self.ring = ring_file.create(f"{self.proc}.ring", self.proc, self.folder, None, self.capacity)
        self.journal = Journal()
        self.journal.start(self.folder / f"{self.proc}.journal")
        if not self.lives:
            for held in (self.ring.descriptor, self.journal.descriptor):
                assert held is not None
                fcntl.fcntl(held, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
        self.writer = make_writer(lambda: None, lambda: 0)
        self.writer.point(self.ring.view, self.capacity)
        self.line("process", proc=self.proc, rank=self.rank, local_rank=self.rank, host=HOST, boot_id=self.boot_id,
                  pid=self.pid, world_size=self.world_size)  # fmt: skip
        self.line("ring", path=str(self.ring.path), capacity=self.capacity, is_tmpfs=False)
        self.line("thread", id=0, native=77, name="main")
        self.line("hook", hook="process_groups", index=0, tier="native", is_on=True)
        if self.joins:
            self.join(self.incarnation)

    def line(self, kind: str, **body: Any) -> None:
        """A journal line."""
        self.journal.write(kind, body)

    def join(self, incarnation: int) -> None:
        """Join the run, with one group."""
        start, members = self.writer.num_claimed(), {}
        self.line("join", run_id=self.run_id, run_dir=self.run_dir, incarnation=incarnation, from_record=start,
                  rank=self.rank, world_size=self.world_size, restart_count=0)  # fmt: skip
        self.line("run", run_id=self.run_id, world_size=self.world_size)
        if self.rank == 0:
            members = {"member_starts": [0], "member_strides": [1], "member_counts": [self.world_size]}
        self.line("group", id=1, group_id="g", size=self.world_size, backend="gloo", **members)

    def open(self, **changed: Any) -> int:
        """An issued collective; returns its record."""
        values = {**_DEFAULTS, "seq": next(self.seq), "issued_ns": self.now(), **changed}
        return self.writer.open(COLLECTIVE, *(values[name] for name in COLLECTIVE.open_columns))

    def close(self, record: int, *, waited: bool = True, state: int = ring.COMPLETED) -> None:
        """Complete it; without a wait, as a poll would see it."""
        begin, end = (self.now(), self.now()) if waited else (0, 0)
        times = {"wait_begin_ns": begin, "wait_end_ns": end, "completed_ns": end or self.now()}
        times["returned_ns"] = begin or self.now()
        values = [times[name] for name in COLLECTIVE.close_columns]
        self.writer.close(COLLECTIVE, record, state, WAIT if waited else POLL, *values)

    def done(self, num: int = 1) -> list[int]:
        """`num` collectives, issued, waited for and completed."""
        records = []
        for _ in range(num):
            records.append(self.open())
            self.close(records[-1])
        return records

    def step(self, step: int) -> int:
        """A training step's row."""
        values = {"step": step, "global_step": step, "start_ns": self.now(), "end_ns": self.now(), "boundary": 1,
                  "samples": 8, "tokens": -1, "is_skipped": 0, "left_out": 0}  # fmt: skip
        return self.writer.write(STEP, *(values[name] for name in STEP.open_columns))

    def count(self, **counters: int) -> None:
        """Set counters of the hook."""
        words = memoryview(self.ring.view)[ring.HEADER_BYTES : ring.DATA_OFFSET].cast("Q")
        for name, value in counters.items():
            words[ring.COUNTERS.index(name)] = value
        words.release()

    def exit(self) -> None:
        """A clean end."""
        self.line("exit", num_records=self.writer.num_claimed())

    def drop(self) -> None:
        """Let go of the files, as death does."""
        self.journal.close()
        os.close(self.ring.descriptor)


def main() -> None:
    """Live as a rank: `rate` collectives a second for `seconds`; each complete one is written to the witness."""
    settings = json.loads(sys.argv[1])
    rank = FakeRank(Path(settings["folder"]), settings["run_dir"], settings["rank"], settings.get("proc", 0),
                    capacity=settings.get("capacity", ring.DEFAULT_CAPACITY), now=time.monotonic_ns,
                    boot_id=settings["boot_id"], pid=os.getpid(), world_size=settings.get("world_size", 1),
                    lives=True)  # fmt: skip
    witness = os.open(settings["witness"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(witness, b"ready\n")
    began, number = time.monotonic(), 0
    while (spent := time.monotonic() - began) < settings["seconds"]:
        while number < spent * settings["rate"]:
            rank.close(rank.open())
            number += 1
            if settings.get("tells", True):
                os.write(witness, b"%d %d\n" % (number, time.monotonic_ns()))
        time.sleep(0.002)
    if settings.get("hangs"):
        rank.open()
        os.write(witness, b"hanging\n")
        time.sleep(600)
    rank.exit()


if __name__ == "__main__":
    main()
