"""Bytes a collective row takes in Parquet, on a real FSDP2 (HSDP) training of examples/train_fsdp2.py.

    python benchmarks/storage.py [--steps 300] [--ranks 4]

Prints bytes by column, the sum, and what the Arrow streams take while the job runs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

SCRIPT = Path(__file__).parent.parent / "examples" / "train_fsdp2.py"


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        stream_bytes = train(Path(base), options.steps, options.ranks)
        report(Path(base) / "run", stream_bytes)


def train(base: Path, steps: int, ranks: int) -> int:
    """Run the training; returns the most bytes that its streams of collectives took."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANKSCOPE_DIR": str(base / "run"), "RANKSCOPE_AGENT": "now",
                   "RANKSCOPE_LOCAL_DIR": str(base / "local")}  # fmt: skip
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(SCRIPT),
               "--steps", str(steps)]  # fmt: skip
    job = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    largest = 0
    while job.poll() is None:
        largest = max(largest, sum(path.stat().st_size for path in base.glob("run/live/*/collective.*.arrows")))
        time.sleep(0.5)
    if job.returncode:
        sys.exit(f"the training ended with {job.returncode}")
    while list(base.glob("local/*/*/*.journal")):
        time.sleep(0.2)
    return largest


def report(run_dir: Path, stream_bytes: int) -> None:
    """Print the table."""
    columns: Counter[str] = Counter()
    num_rows = num_bytes = 0
    for path in run_dir.glob("collective/*/*/*.parquet"):
        metadata = pq.read_metadata(path)
        num_rows += metadata.num_rows
        num_bytes += path.stat().st_size
        for group in range(metadata.num_row_groups):
            for index in range(metadata.num_columns):
                column = metadata.row_group(group).column(index)
                columns[column.path_in_schema] += column.total_compressed_size
    print(f"{num_rows} rows, {num_bytes} bytes")
    for name, size in columns.most_common(12):
        print(f"  {name:24s} {size / num_rows:7.2f} bytes a row")
    print(f"footers                    {(num_bytes - columns.total()) / num_rows:7.2f}")
    print(f"sum                        {num_bytes / num_rows:7.2f}   must 32, aim 16")
    print(f"Arrow streams, live        {stream_bytes / num_rows:7.2f}")


if __name__ == "__main__":
    main()
