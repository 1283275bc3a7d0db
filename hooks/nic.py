"""What the node's network interfaces counted: Ethernet from /sys/class/net, RDMA ports from /sys/class/infiniband.

One row per interface or port and reading, in the kernel's own counters since it came up, bytes as bytes. A down
interface is a row; one that vanishes gives one more row, which says so. Costs about 10 us a file: 0.15 ms an interface.
Which of them a rank's traffic can use is told once per process (`process.nics`), by NUMA node and PCIe.

Not seen: interfaces of other network namespaces than the agent's; what stays inside the host (lo).
Sources: Linux Documentation/ABI/testing/sysfs-class-net, -net-statistics, stable/sysfs-class-infiniband.
"""

from pathlib import Path
from typing import Final

from rankscope.schema.errors import HookUnavailable

from .kernel_files import names_in, read_number, read_or_why, read_text
from .nic_reach import reachable
from .rdma import rdma_ports, read_port
from .sampling import LocalProcess, Row, Rows, Surroundings, with_reasons

MAX_INTERFACES: Final = 64
"""Of Ethernet kind; hosts with containers have hundreds of virtual ones. Those with a device come first."""
_LOOPBACK: Final = "772"
"""ARPHRD_LOOPBACK of linux/if_arp.h, as file `type` says it."""
_ETHERNET_FILES: Final = {
    "rx_bytes": "rx_bytes", "tx_bytes": "tx_bytes", "rx_packets": "rx_packets", "tx_packets": "tx_packets",
    "rx_errors": "rx_errors", "tx_errors": "tx_errors", "rx_dropped": "rx_dropped", "tx_dropped": "tx_dropped",
}  # fmt: skip
_NOT_OF_ETHERNET: Final = {
    "tx_wait": "told of InfiniBand ports only", "num_discards": "told of RDMA ports only",
    "num_retransmits": "told of RDMA ports only: TCP counts them for the whole host",
    "num_congestion": "told of RDMA ports only",
}  # fmt: skip
_MEGABIT_BYTES: Final = 125_000


def make(surroundings: Surroundings) -> "NicSampler":
    """The sampler. Raises HookUnavailable where /sys shows no network at all."""
    if not (surroundings.sysfs / "class/net").is_dir() and not (surroundings.sysfs / "class/infiniband").is_dir():
        raise HookUnavailable(f"{surroundings.sysfs}/class/net is not there: is /sys mounted?")
    return NicSampler(surroundings)


class NicSampler:
    """One row per interface; once per node the list of them, once per process those that it can reach."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self._known: dict[str, Row] = {}
        self._told_processes: set[tuple[int, int]] = set()
        self._told_names: tuple[str, ...] = ()

    def sample(self, now_ns: int) -> Rows:
        """One reading of every interface."""
        rows = self._read()
        names = {row["nic"] for row in rows}
        rows += [_gone(row) for name, row in self._known.items() if name not in names]
        self._known = {row["nic"]: row for row in rows if row["nic"] in names}
        keys = {"node": self._around.node, "time_ns": now_ns}
        found: Rows = {"nic_sample": [{**keys, **row} for row in rows]}
        self._describe(tuple(sorted(names)), found)
        return found

    def _read(self) -> list[Row]:
        sysfs = self._around.sysfs
        rows = [_ethernet(sysfs / "class/net" / name, name) for name in _interfaces(sysfs)]
        return rows + [read_port(port) for port in rdma_ports(sysfs)]

    def _describe(self, names: tuple[str, ...], found: Rows) -> None:
        """Say which interfaces there are, and which a process can use, when that is new."""
        is_new = names != self._told_names
        told = set() if is_new else self._told_processes
        processes = [process for process in self._around.processes() if _key(process) not in told]
        if not is_new and not processes:
            return
        kinds = [(row["nic"], row["kind"]) for row in self._known.values()]
        if is_new:
            found["node"] = [{"node": self._around.node, "nics": reachable(self._around.sysfs, kinds, None)}]
        found["process"] = [
            {"proc": process.proc, "incarnation": process.incarnation,
             "nics": reachable(self._around.sysfs, kinds, process)} for process in processes
        ]  # fmt: skip
        self._told_names, self._told_processes = names, told | {_key(process) for process in processes}


def _key(process: LocalProcess) -> tuple[int, int]:
    return process.proc, process.incarnation


def _interfaces(sysfs: Path) -> list[str]:
    folder = sysfs / "class/net"
    names = [name for name in names_in(folder) if (folder / name).is_dir() and not _is_loopback(folder / name)]
    names.sort(key=lambda name: (not (folder / name / "device").exists(), name))
    return names[:MAX_INTERFACES]


def _is_loopback(folder: Path) -> bool:
    return (read_text(folder / "type") or "").strip() == _LOOPBACK


def _ethernet(folder: Path, name: str) -> Row:
    row: Row = {"nic": name, "kind": "ethernet"}
    reasons = dict(_NOT_OF_ETHERNET)
    for column, file in _ETHERNET_FILES.items():
        reading = read_number(folder / "statistics" / file)
        row[column], reasons[column] = reading
    row["is_up"], reasons["is_up"] = _is_up(folder)
    row["speed_bytes_per_second"], reasons["speed_bytes_per_second"] = _speed(folder)
    return with_reasons(row, reasons)


def _is_up(folder: Path) -> tuple[bool | None, str]:
    """operstate; drivers that never say more than "unknown" are up if there is a carrier."""
    state, why = read_or_why(folder / "operstate")
    if state is None:
        return None, why
    if state.strip() != "unknown":
        return state.strip() == "up", ""
    carrier = read_number(folder / "carrier")  # EINVAL while the interface is switched off
    return carrier.value == 1, ""


def _speed(folder: Path) -> tuple[int | None, str]:
    """Megabits a second; -1, or no answer, where there is no link or no such thing (virtual interfaces)."""
    reading = read_number(folder / "speed")
    if reading.value is None:
        return None, reading.why
    return (reading.value * _MEGABIT_BYTES, "") if reading.value > 0 else (None, "the driver does not know the speed")


def _gone(row: Row) -> Row:
    counters = [name for name in row if name not in ("nic", "kind", "reason", "is_up")]
    return {
        "nic": row["nic"], "kind": row["kind"], "is_up": False,
        "reason": dict.fromkeys(counters, "the interface is gone"),
    }  # fmt: skip
