"""What ended this process: the exception that nothing caught, as far as the interpreter tells.

Read once, at exit. The interpreter keeps what it printed as the last traceback in sys.last_value, before atexit; a
process made by multiprocessing (torch.multiprocessing.spawn too) runs its finalizers while the exception passes. Cannot
see: sys.exit with a status outside multiprocessing, os._exit, signals (no exit line is written then).
"""

import sys


def printed() -> str | None:
    """Type of the exception whose traceback was the interpreter's last word. None at a prompt: there work goes on."""
    error = getattr(sys, "last_value", None)
    return None if error is None or hasattr(sys, "ps1") else type(error).__name__


def passing() -> str | None:
    """Type of the exception that passes right now; of one turned into an exit status, if it was no success."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        error = error.__context__ or error
    return None if error is None else type(error).__name__
