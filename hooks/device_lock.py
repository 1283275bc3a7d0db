"""One owner for each device of a host: several agents (other runs, other launches) never sample a device twice.

A flock on a file named after the UUID, in this user's own folder of the node. The kernel frees it when the owner dies.
Costs one system call a sample for a device that somebody else owns. Agents of other users, and of containers that do
not share the folder, are not seen.
"""

import fcntl
import os
from pathlib import Path


class DeviceLocks:
    """The locks that this process holds."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._held = folder, dict[str, int]()

    def hold(self, uuid: str) -> bool:
        """Take the lock of a device, or keep it. False if somebody else has it. Raises OSError without a folder."""
        if uuid in self._held:
            return True
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        safe = "".join(character if character.isalnum() or character in "-." else "_" for character in uuid)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._folder / f"device-{safe}.lock", flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._held[uuid] = descriptor
        return True

    def keep_only(self, uuids: set[str]) -> None:
        """Let go of all others: nobody of ours uses them any more."""
        for uuid in self._held.keys() - uuids:
            os.close(self._held.pop(uuid))
