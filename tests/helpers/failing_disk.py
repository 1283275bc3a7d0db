"""File systems that a test makes read-only while files on them are open for writing. They need root."""

import subprocess
from pathlib import Path


class FailingDisk:
    """An ext4 file system on a loop device that turns read-only at once, files that are open for writing included."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._image = folder, folder.with_suffix(".img")
        folder.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(64 << 20)

    def mount(self) -> bool:
        """Make and mount it; False where this machine has no loop devices."""
        return all(_works(*command) for command in (
            ["mkfs.ext4", "-q", str(self._image)],
            ["mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.folder)],
        ))  # fmt: skip

    def fail(self) -> None:
        """Do what the kernel does when it finds the file system damaged."""
        device = subprocess.check_output(["findmnt", "-no", "SOURCE", str(self.folder)], text=True).strip()
        (Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error").write_text("1")

    def mend(self) -> None:
        """Check it and mount it again."""
        self.unmount()
        subprocess.run(["e2fsck", "-fy", str(self._image)], check=False, stdout=subprocess.DEVNULL)
        assert _works("mount", "-o", "loop", str(self._image), str(self.folder))

    def unmount(self) -> None:
        """Take it away."""
        assert _works("umount", str(self.folder))


class ClosedMount:
    """A tmpfs over which a read-only mount of the same folder is laid: what is open for writing stays so."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._closed = folder, folder.with_suffix(".closed")
        folder.mkdir(parents=True)
        self._closed.mkdir()

    def mount(self) -> bool:
        """Mount it."""
        return _works("mount", "-t", "tmpfs", "-o", "size=50m,mode=0700", "tmpfs", str(self.folder))

    def fail(self) -> None:
        """Nothing new can be opened for writing from now on."""
        for command in (
            ["mount", "--bind", str(self.folder), str(self._closed)],
            ["mount", "-o", "remount,bind,ro", str(self._closed)],
            ["mount", "--bind", str(self._closed), str(self.folder)],
        ):
            assert _works(*command), command

    def mend(self) -> None:
        """Take the read-only mount away."""
        for folder in (self.folder, self._closed):
            assert _works("umount", "-l", str(folder))

    def unmount(self) -> None:
        """Take it away."""
        assert _works("umount", "-l", str(self.folder))


def _works(*command: str) -> bool:
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
