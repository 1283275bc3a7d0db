"""Runs whose rows are anything that the tables allow, and a bit more, from a seed: for properties that hold of all."""

import random
from pathlib import Path
from typing import Any

from run_builder import MS, WORLD, RunBuilder

OPS = ("all_reduce", "all_reduce", "all_gather", "broadcast", "send", "recv", None)
KINDS = ("data", "forward", "backward", "microbatch_forward", "checkpoint", "optimizer", "user", "gc")


def written(root: Path, seed: int, is_one_host: bool) -> Path:
    """A run of three nodes and six ranks whose rows are anything that the tables allow, and a bit more."""
    chance = random.Random(seed)
    for number in range(3):
        build = RunBuilder(root, world_size=6, node=f"node-{number}")
        ranks = [2 * number, 2 * number + 1]
        for incarnation in range(chance.choice((1, 1, 2))):
            for rank in ranks:
                _rows(build, chance, rank, incarnation)
            build.entities(ranks, incarnation=incarnation)
            build.group(f"pair-{number}", ranks, "tp", incarnation)
        for _ in range(chance.randrange(3)):
            build.add(
                "nic_sample",
                0,
                nic="eth0",
                kind="ethernet",
                time_ns=chance.randrange(60) * MS,
                tx_bytes=chance.randrange(99),
            )
        for row in build.rows["process", None]:
            row["boot_id"] = "one" if is_one_host else chance.choice((f"boot-{number}",) * 5 + (None,))
        if chance.random() < 0.3:
            build.stream()
        else:
            build.seal(shuffle=chance if chance.random() < 0.3 else None)
    return root


def _rows(build: RunBuilder, chance: random.Random, rank: int, incarnation: int) -> None:
    for group in (WORLD, f"pair-{rank // 2}", None):
        seq = 0
        for _ in range(chance.randrange(8)):
            build.collective(rank, seq, 0, None, None, **_operation(chance, group), incarnation=incarnation)
            seq += chance.choice((1, 1, 1, 1, 0, 3))
    for step in range(4):
        more = {"left_out": chance.choice((None, None, None, "eval")), "incarnation": incarnation}
        build.step(rank, step, 10 * step, 10 * step + chance.randrange(1, 12), **more)
    for _ in range(chance.randrange(8)):
        start = chance.randrange(40)
        kind = chance.choice(KINDS)
        end = chance.choice((None, (start + chance.randrange(9)) * MS))
        build.fact("span", rank, incarnation, step=chance.randrange(5), kind=kind, start_ns=start * MS, end_ns=end,
                   name=chance.choice(("a", "b", None)), stage=chance.choice((0, 1, None)),
                   microbatch=chance.choice((0, 1, None)), chunk=chance.choice((0, None)))  # fmt: skip
    for _ in range(chance.randrange(4)):
        build.fact("sample_batch", rank, incarnation, step=chance.randrange(5), loader="train",
                   time_ns=chance.randrange(60) * MS, wait_ns=chance.choice((None, 0, 2 * MS)),
                   num_samples=4)  # fmt: skip
    for _ in range(chance.randrange(4)):
        start = chance.randrange(40)
        of_class = chance.choice(("compute", "communication", "copy"))
        build.fact("kernel", rank, incarnation, category="kernel", kernel_class=of_class, device_uuid="gpu",
                   start_ns=start, end_ns=start + chance.randrange(9), name=chance.choice("xy"))  # fmt: skip


def _operation(chance: random.Random, group: str | None) -> dict[str, Any]:
    issued = chance.randrange(40) * MS
    completed = chance.choice((None, issued + chance.randrange(9) * MS, issued + chance.randrange(9) * MS))
    waited = chance.random() < 0.7
    begin = issued + chance.randrange(-1, 3) * MS
    is_known = completed is not None
    found = {
        "group_id": group, "op": chance.choice(OPS), "issued_ns": issued, "completed_ns": completed,
        "step": chance.choice((0, 1, 2, 3, None)), "bytes_in": chance.choice((None, 8, 1 << 40)),
        "state": "completed" if is_known else chance.choice(("issued", "failed")),
        "timing_source": chance.choice(("wait", "poll", "device_event")) if is_known else chance.choice((None, "none")),
        "wait_begin_ns": begin if waited else None,
        "wait_end_ns": begin + chance.randrange(-1, 6) * MS if waited else None,
        "tier": chance.choice(("class", "dispatcher", "imported", None)), "phase": chance.choice(("backward", None)),
        "stage": chance.choice((0, 1, None)), "role": chance.choice(("activations", "gradients", None)),
        "dtype": chance.choice(("float32", "int8")), "root": chance.choice((0, None)),
        "bytes_out": chance.choice((None, 8)),
        "device_start_ns": chance.choice((None, issued)), "device_end_ns": chance.choice((None, issued + 2 * MS)),
    }  # fmt: skip
    if found["op"] in ("send", "recv"):
        found |= {"src": chance.randrange(2), "dst": 2, "tag": chance.choice((0, None))}
    return found
