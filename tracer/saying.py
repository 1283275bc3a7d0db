"""What the user is told: single lines on standard error."""

import sys


def say(text: str) -> None:
    """One line to the user, on standard error; lost where there is none."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(f"rankscope: {text}\n")
        except (OSError, ValueError):
            return
