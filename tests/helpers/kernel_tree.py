"""A small /proc and /sys in a test's folder, and the surroundings of a sampler that reads them."""

from pathlib import Path

from rankscope.hooks.sampling import LocalProcess, Surroundings

NODE = "host-a-11111111"


class KernelTree:
    """Files below `base`/sys and `base`/proc. processes: who lives, to be changed by the test."""

    def __init__(self, base: Path) -> None:
        self.sysfs, self.proc = base / "sys", base / "proc"
        self.sysfs.mkdir()
        self.proc.mkdir()
        self.processes: tuple[LocalProcess, ...] = ()

    def sys(self, files: dict[str, object]) -> None:
        """Write files below /sys: path -> contents."""
        write_files(self.sysfs, files)

    def own(self, files: dict[str, object]) -> None:
        """Write files below /proc."""
        write_files(self.proc, files)

    @property
    def surroundings(self) -> Surroundings:
        """What a sampler is given."""
        return Surroundings(NODE, self.sysfs, self.proc, lambda: self.processes)


def write_files(root: Path, files: dict[str, object]) -> None:
    """Write `files` below `root`, a newline after each as the kernel does."""
    for name, contents in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{contents}\n")
