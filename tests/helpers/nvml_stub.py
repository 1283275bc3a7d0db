"""A stand-in for NVIDIA's driver library, compiled by the tests; the real pynvml loads it, in processes of their own.

`python nvml_stub.py` (with LD_LIBRARY_PATH at the stub) runs a sampler through the readings asked for in its argument.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("libnvidia_ml_stub.c")
Rows = dict[str, list[dict[str, Any]]]


def gpu(index: int) -> str:
    """The UUID of a whole device of the stub."""
    return f"GPU-{0xA0 + index:08x}-0000-0000-0000-00000000000{index:x}"


def mig(index: int, part: int) -> str:
    """The UUID of a part of a divided device of the stub."""
    return f"MIG-{0xA0 + index:08x}-0000-0000-0000-00000000000{part:x}"


@dataclass(frozen=True)
class NvmlStub:
    """A compiled library in a folder of its own, and the file that controls it."""

    folder: Path
    control: Path

    @classmethod
    def compile(cls, folder: Path, *flags: str) -> "NvmlStub":
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / "libnvidia-ml.so.1"
        subprocess.run(["gcc", "-shared", "-fPIC", *flags, "-o", str(library), str(SOURCE)], check=True, timeout=60)
        made = cls(folder, folder / "control")
        made.control.write_text("")
        return made

    def environment(self) -> dict[str, str]:
        """Variables for a process that shall find the stub."""
        return {"LD_LIBRARY_PATH": str(self.folder), "NVML_STUB_CONTROL": str(self.control)}

    def sample(
        self, *readings: dict[str, Any], processes: list[dict[str, Any]] | None = None, sysfs: str = "/sys"
    ) -> list[Rows]:
        """What the sampler gives in `readings`: each with the text of the control file and seconds to wait before."""
        script = {"readings": list(readings), "processes": processes or [{}], "sysfs": sysfs}
        environment = {**os.environ, **self.environment(), "RANKSCOPE_LOCAL_DIR": str(self.folder / "local")}
        command = [sys.executable, __file__, json.dumps(script)]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        found: list[Rows] = json.loads(done.stdout)
        return found


def main() -> None:
    from rankscope.hooks.nvml import make
    from rankscope.hooks.sampling import LocalProcess, Surroundings
    from rankscope.schema.errors import HookUnavailable

    script = json.loads(sys.argv[1])
    control = Path(os.environ["NVML_STUB_CONTROL"])
    processes = tuple(
        LocalProcess(**{"proc": 100 + rank, "rank": rank, "incarnation": 0, "pid": 1, "local_rank": rank, **process})
        for rank, process in enumerate(script["processes"])
    )
    found: list[Any] = []
    try:
        sampler = make(Surroundings("node-1", Path(script["sysfs"]), Path("/proc"), lambda: processes))
        for number, reading in enumerate(script["readings"]):
            time.sleep(reading.get("after", 0))
            control.write_text(reading.get("control", ""))
            began = time.monotonic()
            found.append({**sampler.sample(number + 1), "took_s": time.monotonic() - began})
    except HookUnavailable as error:
        found.append({"unavailable": str(error)})
    print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # a call of the stub may still be blocked


if __name__ == "__main__":
    main()
