"""How busy this machine is, and whether a process waits: limits of time are for the product, not the machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

BUSY_MACHINE = 3
"""Limits of real jobs are for a free machine; they only end what hangs, so a busy one gets this many times more."""
PATIENT_THREAD_AGENT = "from rankscope.tracer import launch\nlaunch.THREAD_AGENT_SECONDS = 60.0\n"
"""For scripts in thread mode: an exiting rank waits until its agent has sealed, however slow the machine is.

Else it leaves after 4 s, and what is not sealed by then stays for whoever reads the run, or for the next agent.
"""
SPIN = "import time\nwhile time.process_time() < 0.3: pass"
"""A child that needs 0.3 s of a CPU, and its start."""


def slowness() -> float:
    """Wall-clock time of a child over the CPU time it needed: 1 on a free machine, 5 where it gets a fifth of a CPU."""
    begin, before = time.monotonic(), os.times()
    subprocess.run([sys.executable, "-S", "-c", SPIN], check=True, timeout=300)
    after = os.times()
    needed = after.children_user + after.children_system - before.children_user - before.children_system
    return max(1.0, (time.monotonic() - begin) / max(needed, 0.3))


def is_asleep(pid: int) -> bool:
    """The main thread of `pid` waits for something other than a CPU."""
    return Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
