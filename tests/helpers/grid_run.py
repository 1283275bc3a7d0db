"""A run of 2 x 2 ranks of which one is late in every step."""

import random
from pathlib import Path

from run_builder import RunBuilder

TENSOR, DATA = ("tensor-0", "tensor-1"), ("data-0", "data-1")


def grid(root: Path, late: int = 0, num_steps: int = 4, shuffle: random.Random | None = None) -> Path:
    """2 x 2 ranks: 0, 1 and 2, 3 share tensors, 0, 2 and 1, 3 data. In each step one rank takes 30 ms longer for the
    first of two operations on tensors; then all work 20 ms and average their gradients.
    """
    build = RunBuilder(root, world_size=4)
    for number in (0, 1):
        build.group(TENSOR[number], [2 * number, 2 * number + 1], "tp")
        build.add("process_group", group_id=DATA[number], incarnation=0, member_starts=[number], member_strides=[2],
                  member_counts=[2], size=2, backend="gloo", mesh_dimension="dp")  # fmt: skip
    for step in range(num_steps):
        start = 200 * step
        team, peers = late // 2, late % 2
        for rank in range(4):
            begin = start + 10 + (30 if rank == late else 0)
            end = start + (42 if rank // 2 == team else 12)
            build.collective(rank, 2 * step, begin, (begin, end), end, group_id=TENSOR[rank // 2], step=step)
            second = end + 10
            build.collective(rank, 2 * step + 1, second, (second, second + 2), second + 2,
                             group_id=TENSOR[rank // 2], step=step)  # fmt: skip
            third = second + 22
            both = start + 42 + 10 + 22 + 2
            build.collective(rank, step, third, (third, both), both, group_id=DATA[rank % 2], step=step)
            build.step(rank, step, start, start + 200)
        assert peers in (0, 1)
    build.entities()
    return build.seal(shuffle=shuffle)
