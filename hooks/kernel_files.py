"""Small files of /proc and /sys: a number, or why there is none. One open and one read each, about 10 us.

Files come and go while they are read (interfaces are removed, processes end): that is a reason, never an error.
"""

import errno
import os
from pathlib import Path
from typing import Final, NamedTuple

GONE: Final = "the file is gone"
_REASONS: Final = {
    errno.ENOENT: "the kernel has no such file",
    errno.ENODEV: GONE,
    errno.ESRCH: GONE,
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EINVAL: "the driver does not say",
    errno.EOPNOTSUPP: "the driver does not say",
}


class Reading(NamedTuple):
    """A number, or None and why."""

    value: int | None
    why: str = ""


def read_text(path: Path | str) -> str | None:
    """The text of a file; None where it cannot be read."""
    text, _ = read_or_why(path)
    return text


def read_or_why(path: Path | str) -> tuple[str | None, str]:
    """The text of a file, or None and why."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(descriptor, 1 << 16):
                parts.append(part)
        finally:
            os.close(descriptor)
    except OSError as error:
        return None, _REASONS.get(error.errno or 0, error.strerror or "it cannot be read")
    return b"".join(parts).decode(errors="replace"), ""


def read_number(path: Path | str) -> Reading:
    """The whole number in a file, such as a counter of /sys."""
    text, why = read_or_why(path)
    if text is None:
        return Reading(None, why)
    word = text.strip()
    try:
        return Reading(int(word))
    except ValueError:
        return Reading(None, f"the driver says {word[:40]!r}")


def names_in(folder: Path | str) -> list[str]:
    """The sorted names in a folder; none where it is not there."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
