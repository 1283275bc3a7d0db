"""What ended a process, as its exit line says it: at the interpreter's end, and in children of multiprocessing."""

import subprocess
import sys

import pytest

AT_EXIT = "import atexit, sys\nfrom rankscope.tracer import ending\natexit.register(lambda: print(ending.printed()))\n"
IN_CHILD = """
import multiprocessing, sys
from multiprocessing.util import Finalize
from rankscope.tracer import ending

def work(kind):
    Finalize(None, lambda: print(ending.passing(), flush=True), exitpriority=-100)
    try:
        if kind == "raise":
            raise KeyError("planted")
        if kind == "wrapped":  # as torch.multiprocessing.spawn does it
            raise OSError("planted")
        sys.exit({"exit 0": 0, "exit 3": 3}.get(kind, None))
    except OSError:
        sys.exit(1)

if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
    child.start()
    child.join()
"""


def said(code: str, *arguments: str) -> str:
    """The last line that the script printed."""
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("pass", "None"),
        ("raise KeyError(1)", "KeyError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("sys.exit(0)", "None"),
        ("sys.ps1 = '>>> '; raise KeyError(1)", "None"),
        ("import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", "None"),
    ],
)
def test_the_exception_that_the_interpreter_printed_last(end: str, error: str) -> None:
    assert said(AT_EXIT + end) == error


@pytest.mark.parametrize(
    ("kind", "error"),
    [("end", "None"), ("exit 0", "None"), ("exit 3", "SystemExit"), ("raise", "KeyError"), ("wrapped", "OSError")],
)
def test_the_exception_that_passes_in_a_child_of_multiprocessing(kind: str, error: str) -> None:
    assert said(IN_CHILD, kind) == error
