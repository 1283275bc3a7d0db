"""Run a command as if a shell had run it: same terminal, files and process group; signals and status pass through.

A signal that the terminal sends reaches the command by itself, being in the same process group; one that a process
sends to us is sent on. (Sent to the whole group by a process, it reaches the command twice.) A command that stops stops
us too, for the shell's job control; if we are killed, so is the command. Linux, by `sigwaitinfo` and `prctl`.
"""

import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Statuses that shells give."""
_SI_KERNEL: Final = 0x80
"""si_code of a signal that the kernel sent: for those here, from the terminal."""
_PR_SET_PDEATHSIG: Final = 1
_HANDLED: Final = (signal.SIGCHLD, signal.SIGCONT, signal.SIGWINCH)
"""Not sent on: ours alone, or for the whole group."""
_PASSED: Final = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP,
    signal.SIGALRM,
)  # fmt: skip
_CORE: Final = (
    signal.SIGQUIT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV,
    signal.SIGXCPU, signal.SIGXFSZ, signal.SIGSYS,
)  # fmt: skip


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run `command` to its end: its exit status, or minus the signal that ended it.

    Raises FileNotFoundError or PermissionError (OSError) where it cannot be started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_HANDLED, *_PASSED})
    try:
        child = _start(command, environment, before)
        return _wait(child.pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_of(number: int) -> None:
    """End this process by signal `number`, as the command did, without a second core file."""
    if number in _CORE:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


def _start(
    command: Sequence[str], environment: Mapping[str, str], mask: set[int] | set[signal.Signals]
) -> "subprocess.Popen[bytes]":
    parent, library = os.getpid(), ctypes.CDLL(None)

    def before_exec() -> None:  # this process has one thread: nothing can hold a lock across the fork
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return subprocess.Popen(command, env=dict(environment), close_fds=False, preexec_fn=before_exec)  # noqa: PLW1509


def _wait(pid: int) -> int:
    """Until `pid` has ended, passing signals on."""
    while True:
        came = signal.sigwaitinfo({*_HANDLED, *_PASSED})
        if came.si_signo in _PASSED and came.si_code != _SI_KERNEL:
            os.kill(pid, came.si_signo)
        if came.si_signo == signal.SIGCONT and came.si_code != _SI_KERNEL:
            os.kill(pid, signal.SIGCONT)
        status = _ended(pid)
        if status is not None:
            return status


def _ended(pid: int) -> int | None:
    """Its status, once it has ended; while it is stopped, so are we."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if not found:
            return None
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(pid, signal.SIGCONT)
            continue
        return os.waitstatus_to_exitcode(status)
