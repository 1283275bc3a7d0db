"""Could the run directory be written from here? Asked once at attach, so that the user hears it from the job itself.

Only `os.access` on the nearest folder that exists: nothing is made, nothing opened, no error passes on. A share that is
mounted later, or quotas and full disks, are the agent's to find (`run_writer`), which keeps the rows in its spool.
"""

import os
from pathlib import Path


def problem(run_dir: str) -> str | None:
    """What is in the way, in words; None if nothing is, or for an object store."""
    if "://" in run_dir:
        return None
    path = Path(run_dir)
    for folder in (path, *path.parents):
        try:
            folder.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"{folder}: {error.strerror or error}"
        if not folder.is_dir():
            return f"{folder} is no folder"
        return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is not writable"
    return None
