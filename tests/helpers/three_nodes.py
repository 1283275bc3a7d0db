"""A small run of three nodes that every engine must say the same of, and the whole report as text."""

import json
from pathlib import Path

from run_builder import WORLD, RunBuilder

from rankscope.analyzers.engines import Engine
from rankscope.analyzers.report import report
from rankscope.analyzers.run import Run


def text_of(run_dir: Path, engine: Engine, threads: int) -> str:
    """The whole report as JSON, every number with all its digits."""
    with Run.open(str(run_dir), threads=threads, engine=engine) as run:
        return json.dumps(report(run).as_json(), sort_keys=True, default=str)


def three_nodes(root: Path) -> Path:
    """Six ranks on three nodes, two of them on one host, one node's rows not sealed yet; rank 3 comes 3 ms late."""
    for number in range(3):
        build = RunBuilder(root, world_size=6, node=f"node-{number}")
        ranks = [2 * number, 2 * number + 1]
        for rank in ranks:
            late = 3 * (rank == 3)
            for step in range(12):
                start = 20 * step
                build.span(rank, step, "forward", start, start + 8 + late)
                for seq, group in ((2 * step, WORLD), (2 * step + 1, WORLD), (step, f"pair-{number}")):
                    begin = start + 8 + late + seq % 2
                    build.collective(rank, seq, begin, (begin, start + 14), start + 14, step=step, group_id=group)
                build.step(rank, step, start, start + 20)
        build.entities(ranks)
        build.group(f"pair-{number}", ranks, "tp")
        for row in build.rows["process", None]:
            row["boot_id"] = "boot-0" if number < 2 else "boot-2"
        build.stream() if number == 1 else build.seal()
    return root
