"""What observing costs. Part `collectives`: added host time per collective, by tier and by who issues it.

    python benchmarks/overhead.py [collectives ...] [--rounds N]

Both sides of a ratio are measured in one process, in blocks that alternate; medians over the blocks. One rank and one
element, so that nothing but the host's work is measured: a real collective takes longer, and the ratio is smaller.
"""

import argparse
import importlib
import os
import platform
import sys

PARTS = {"collectives": "overhead_collectives"}


def main() -> int:
    """Run the parts named on the command line; all of them if none is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure")
    parser.add_argument("--rounds", type=int, default=40, help="pairs of blocks per figure")
    chosen = parser.parse_args()
    print(machine())
    for part in chosen.parts or PARTS:
        importlib.import_module(PARTS[part]).run(chosen.rounds)
    return 0


def machine() -> str:
    """The machine and how busy it is, for every figure depends on both."""
    import torch

    load = os.getloadavg()[0]
    return (
        f"{platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


if __name__ == "__main__":
    sys.exit(main())
