"""Who this process is: known before anything else, without torch, from /proc alone.

A pid means something only in its PID namespace and until it is reused; boot id, PID namespace, pid and start time
together name one process for ever. The launch is the process that started the ranks (torchrun, the parent of
`mp.spawn`, slurmstepd, a shell): its identity is the same for all ranks of a node and outlives an elastic restart.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.schema.paths import hash63, node_id

_CONTAINER: Final = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
_RANK_VARIABLES: Final = (b"TORCHELASTIC_RUN_ID=", b"LOCAL_RANK=", b"MASTER_PORT=")
_POD: Final = re.compile(r"pod([0-9a-f]{8}[-_](?:[0-9a-f]{4}[-_]){3}[0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process. started_ticks: clock ticks since boot; started_ns: since 1970, as exact as the kernel's boot time.

    launcher names the launching process for ever; launch is its short form, the name of the local folder.
    """

    proc: int
    pid: int
    pid_namespace: int
    boot_id: str
    started_ticks: int
    started_ns: int | None
    host: str
    node: str
    launcher: str
    launch: str
    container_id: str | None
    pod_uid: str | None


def identify(ordinal: int = 0) -> ProcessIdentity:
    """This process. ordinal: how often it attached before; a second attach is another `proc` with the same pid."""
    pid, boot_id, namespace = os.getpid(), _boot_id(), pid_namespace()
    ticks = start_ticks(pid)
    host = os.uname().nodename
    parent = _launcher_pid()
    launcher = f"{boot_id}/{namespace}/{parent}/{start_ticks(parent)}"
    key = (boot_id, namespace, pid, ticks, *([ordinal] if ordinal else []))
    container, pod = _container()
    return ProcessIdentity(
        proc=hash63(*key), pid=pid, pid_namespace=namespace, boot_id=boot_id, started_ticks=ticks,
        started_ns=_wall_ns(ticks), host=host, node=node_id(host, boot_id), launcher=launcher,
        launch=f"{hash63(launcher):016x}", container_id=container, pod_uid=pod,
    )  # fmt: skip


def start_ticks(pid: int) -> int:
    """Start time of process `pid` in clock ticks since boot; 0 where the kernel does not say."""
    fields = _stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def pid_namespace() -> int:
    """The PID namespace in which this process's pid means something; 0 where the kernel does not say."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def affinity() -> list[int]:
    """The CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))


def numa_nodes(sysfs: Path, cpus: list[int]) -> list[int]:
    """The NUMA nodes to which `cpus` belong; empty where the kernel does not say."""
    lists = (sysfs / "devices/system/node").glob("node[0-9]*/cpulist")
    return sorted(int(path.parent.name.removeprefix("node")) for path in lists if cpu_list(_text(path)) & set(cpus))


def cpu_list(text: str) -> set[int]:
    """The CPUs that the kernel's list format names: "0-2,5" is {0, 1, 2, 5}."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found.update(range(int(first), int(last or first) + 1))
    return found


def _launcher_pid() -> int:
    """The parent; where a wrapper script stands between torchrun and the rank, the nearest ancestor that is no rank."""
    pid, mine = os.getppid(), _rank_variables("self")
    while mine and pid > 1 and _rank_variables(str(pid)) == mine:
        fields = _stat_fields(pid)
        if len(fields) < 2:
            break
        pid = int(fields[1])
    return pid


def _rank_variables(pid: str) -> tuple[bytes, ...]:
    """What torchrun gave to one rank's environment as it began; empty for a process that is none, or another user's."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ()
    found = sorted(item for item in variables if item.startswith(_RANK_VARIABLES))
    return tuple(found) if any(item.startswith(b"TORCHELASTIC_RUN_ID=") for item in found) else ()


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third on (the second, the name, may hold blanks and parentheses)."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _boot_id() -> str:
    return _text(Path("/proc/sys/kernel/random/boot_id")).strip() or "unknown-boot"


def _wall_ns(ticks: int) -> int | None:
    match = re.search(r"^btime (\d+)$", _text(Path("/proc/stat")), re.MULTILINE)
    if not match or not ticks:
        return None
    return int(match[1]) * 1_000_000_000 + ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def _container() -> tuple[str | None, str | None]:
    """Container id and pod uid from the cgroup path, else (cgroup v2, own namespace) from the container's mounts."""
    text = _text(Path("/proc/self/cgroup"))
    if not _CONTAINER.search(text):
        lines = _text(Path("/proc/self/mountinfo")).splitlines()
        text += "\n".join(line for line in lines if "/containers/" in line or "/pods/" in line)
    container, pod = _CONTAINER.search(text), _POD.search(text)
    return container[1] if container else None, pod[1].replace("_", "-") if pod else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
