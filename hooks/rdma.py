"""What an RDMA port counted (InfiniBand, RoCE), whatever its driver calls it, in bytes.

Drivers differ: the standard `counters/` (Mellanox/NVIDIA) count data in words of 4 bytes; Broadcom's bnxt_re has no
`counters/` but bytes in `hw_counters/`; Intel's irdma has octets by IP version in `hw_counters/` of the port or, in
older kernels, of the device; a port behind a management agent that is not there says "N/A (no PMA)". A column is filled
from the first source that the port has, sums where a source is several files; else null with the reason.

Sources: Documentation/ABI/stable/sysfs-class-infiniband; drivers/infiniband/hw/{mlx5,bnxt_re,irdma}; node_exporter
issues 1511, 2427, 2769, 966.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from .kernel_files import Reading, names_in, read_number, read_or_why, read_text
from .sampling import Row, with_reasons

WORD_BYTES: Final = 4
"""port_rcv_data and port_xmit_data count words of four bytes (InfiniBand Architecture Specification, 16.1.3.5)."""


class Port(NamedTuple):
    """A port. name: device/port; folder: <sysfs>/class/infiniband/<device>/ports/<port>; device: that of the device."""

    name: str
    folder: Path
    device: Path


class _Source(NamedTuple):
    """Files that together are one column. factor: bytes (or counts) of one unit of theirs."""

    folder: str
    files: tuple[str, ...]
    factor: int = 1


_STANDARD, _HARDWARE = "counters", "hw_counters"
_SOURCES: Final[dict[str, tuple[_Source, ...]]] = {
    "rx_bytes": (
        _Source(_STANDARD, ("port_rcv_data",), WORD_BYTES), _Source(_HARDWARE, ("rx_bytes",)),
        _Source(_HARDWARE, ("ip4InOctets", "ip6InOctets")),
    ),
    "tx_bytes": (
        _Source(_STANDARD, ("port_xmit_data",), WORD_BYTES), _Source(_HARDWARE, ("tx_bytes",)),
        _Source(_HARDWARE, ("ip4OutOctets", "ip6OutOctets")),
    ),
    "rx_packets": (
        _Source(_STANDARD, ("port_rcv_packets",)), _Source(_HARDWARE, ("rx_pkts",)),
        _Source(_HARDWARE, ("ip4InPkts", "ip6InPkts")),
    ),
    "tx_packets": (
        _Source(_STANDARD, ("port_xmit_packets",)), _Source(_HARDWARE, ("tx_pkts",)),
        _Source(_HARDWARE, ("ip4OutPkts", "ip6OutPkts")),
    ),
    "rx_errors": (_Source(_STANDARD, ("port_rcv_errors",)), _Source(_HARDWARE, ("rx_roce_errors",))),
    "tx_errors": (_Source(_STANDARD, ("local_link_integrity_errors",)), _Source(_HARDWARE, ("tx_roce_errors",))),
    "rx_dropped": (
        _Source(_HARDWARE, ("out_of_buffer",)), _Source(_HARDWARE, ("rx_roce_discards",)),
        _Source(_HARDWARE, ("ip4InDiscards", "ip6InDiscards")),
    ),
    "tx_dropped": (_Source(_STANDARD, ("port_xmit_discards",)), _Source(_HARDWARE, ("tx_roce_discards",)),
                   _Source(_HARDWARE, ("ip4OutNoRoutes", "ip6OutNoRoutes"))),
    "tx_wait": (_Source(_STANDARD, ("port_xmit_wait",)),),
    "num_discards": (_Source(_STANDARD, ("port_xmit_discards",)),
                     _Source(_HARDWARE, ("rx_roce_discards", "tx_roce_discards"))),
    "num_retransmits": (
        _Source(_HARDWARE, ("packet_seq_err", "local_ack_timeout_err")), _Source(_HARDWARE, ("to_retransmits",)),
        _Source(_HARDWARE, ("tcpRetransSegs",)),
    ),
    "num_congestion": (
        _Source(_HARDWARE, ("np_ecn_marked_roce_packets", "rp_cnp_handled")),
        _Source(_HARDWARE, ("rx_ecn_marked_pkts", "rx_cnp_pkts")), _Source(_HARDWARE, ("RxECNMrkd", "cnpHandled")),
    ),
}  # fmt: skip
_RATE: Final = re.compile(r"([\d.]+)\s*Gb/sec")
_GIGABIT_BYTES: Final = 125_000_000
_ACTIVE: Final = 4
"""IB_PORT_ACTIVE of rdma/ib_verbs.h; file `state` says "4: ACTIVE"."""


def rdma_ports(sysfs: Path) -> Iterator[Port]:
    """The ports of all RDMA devices; none where there is no such class."""
    root = sysfs / "class/infiniband"
    for device in names_in(root):
        for port in names_in(root / device / "ports"):
            yield Port(f"{device}/{port}", root / device / "ports" / port, root / device)


def read_port(port: Port) -> Row:
    """The port's row of table nic_sample, without node and time."""
    row: Row = {"nic": port.name, "kind": _kind(port)}
    reasons: dict[str, str] = {}
    for column, sources in _SOURCES.items():
        row[column], reasons[column] = _first(port, sources)
    row["is_up"], reasons["is_up"] = _is_up(port)
    row["speed_bytes_per_second"], reasons["speed_bytes_per_second"] = _speed(port)
    return with_reasons(row, reasons)


def _kind(port: Port) -> str:
    layer = (read_text(port.folder / "link_layer") or "").strip()
    return "roce" if layer == "Ethernet" else "infiniband"


def _first(port: Port, sources: tuple[_Source, ...]) -> Reading:
    """The first source whose files are there. A file that is there and says nothing ("N/A (no PMA)") is the reason."""
    why = ""
    for source in sources:
        readings = [reading for file in source.files if (reading := _read(port, source.folder, file)) is not None]
        if readings and all(reading.value is not None for reading in readings):
            return Reading(sum(reading.value or 0 for reading in readings) * source.factor)
        why = why or next((reading.why for reading in readings if reading.value is None), "")
    return Reading(None, why or "the driver has no such counter")


def _read(port: Port, folder: str, file: str) -> Reading | None:
    """None where neither the port nor (older kernels) the device has the file."""
    for place in (port.folder, port.device) if folder == _HARDWARE else (port.folder,):
        path = place / folder / file
        if path.exists():
            return read_number(path)
    return None


def _is_up(port: Port) -> tuple[bool | None, str]:
    text, why = read_or_why(port.folder / "state")
    number = (text or "").partition(":")[0].strip()
    if text is None or not number.isdigit():
        return None, why or f"the driver says {text!r}"
    return int(number) == _ACTIVE, ""


def _speed(port: Port) -> tuple[int | None, str]:
    text, why = read_or_why(port.folder / "rate")
    match = _RATE.search(text or "")
    if match is None:
        return None, why or "the driver does not know the rate"
    return round(float(match[1]) * _GIGABIT_BYTES), ""
