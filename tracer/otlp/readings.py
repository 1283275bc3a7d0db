"""Rows of the node's samplers become series: devices, host, network interfaces, the ranks' processes, checkpoints.

A null stays away: the last value that was known is told again only as long as its sampler gives rows.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from rankscope.schema.process_state import Row

from .series import Attributes, Number, Series

_RECEIVE: Final[Attributes] = (("network.io.direction", "receive"),)
_TRANSMIT: Final[Attributes] = (("network.io.direction", "transmit"),)
_GPU: Final[Attributes] = (("hw.type", "gpu"),)
_NIC_COUNTS: Final = (
    ("errors", "system.network.errors", "network.interface.name"),
    ("dropped", "system.network.packet.dropped", "network.interface.name"),
    ("packets", "system.network.packet.count", "system.device"),
)


def host(row: Row, into: Series) -> None:
    """A row of host_sample."""
    used, limit = row.get("memory_used_bytes"), row.get("memory_limit_bytes")
    into.put("system.cpu.utilization", (), row.get("cpu_utilisation_ratio"))
    into.put("system.memory.usage", (("system.memory.state", "used"),), used)
    into.put("system.memory.limit", (), limit)
    into.put("system.memory.utilization", (("system.memory.state", "used"),), _share(used, limit))
    into.put("system.paging.usage", (("system.paging.state", "used"),), row.get("swap_used_bytes"))
    for column, direction in (("disk_read_bytes", "read"), ("disk_write_bytes", "write")):
        into.put("system.disk.io", (("disk.io.direction", direction),), row.get(column))


def nic(row: Row, into: Series) -> None:
    """A row of nic_sample: an interface of the host, or an RDMA port."""
    name = str(row.get("nic"))
    if row.get("kind") == "ethernet":
        _interface(row, name, into)
        return
    port: Attributes = (("hw.id", name), ("hw.type", "network"))
    into.put("hw.network.io", (*port, *_RECEIVE), row.get("rx_bytes"))
    into.put("hw.network.io", (*port, *_TRANSMIT), row.get("tx_bytes"))
    into.put("hw.network.bandwidth.limit", port, row.get("speed_bytes_per_second"))
    up = row.get("is_up")
    into.put("hw.network.up", port, None if up is None else int(up))


def device(row: Row, known: Mapping[str, Any], rank: Attributes, into: Series) -> None:
    """A row of device_sample. known: the device's row of table device, where there is one."""
    uuid: Attributes = (("hw.id", str(row.get("device_uuid"))), *rank)
    named = uuid + ((("hw.name", str(known["name"])),) if known.get("name") else ())
    used, size = row.get("memory_used_bytes"), known.get("memory_bytes")
    into.put("hw.gpu.utilization", (*named, ("hw.gpu.task", "general")), row.get("sm_utilisation_ratio"))
    into.put("hw.gpu.memory.usage", named, used)
    into.put("hw.gpu.memory.limit", named, size)
    into.put("hw.gpu.memory.utilization", named, _share(used, size))
    into.put("hw.power", uuid + _GPU, row.get("power_watts"))
    into.put("hw.energy", uuid + _GPU, row.get("energy_joules"))
    into.put("hw.temperature", uuid + _GPU, row.get("temperature_celsius"))
    for column, clock in (("sm_clock_hertz", "sm"), ("memory_clock_hertz", "memory")):
        into.put("hw.gpu.frequency", (*uuid, ("hw.gpu.clock", clock)), row.get(column))
    for link in ("pcie", "nvlink"):
        for column, way in (("rx", _RECEIVE), ("tx", _TRANSMIT)):
            into.put("hw.gpu.io", (*uuid, ("hw.gpu.link", link), *way), row.get(f"{link}_{column}_bytes"))
    for kind in ("corrected", "uncorrected"):
        into.put("hw.errors", (*uuid, *_GPU, ("error.type", kind)), row.get(f"ecc_{kind}"))


def process(row: Row, into: Series) -> None:
    """A row of process_sample, into its rank's series."""
    for column, mode in (("cpu_user_ns", "user"), ("cpu_system_ns", "system")):
        into.put("process.cpu.time", (("cpu.mode", mode),), row.get(column))
    into.put("process.memory.usage", (), row.get("rss_bytes"))
    into.put("process.thread.count", (), row.get("num_threads"))
    into.put("process.unix.file_descriptor.count", (), row.get("num_open_files"))
    for kind in ("involuntary", "voluntary"):
        into.put("process.context_switches", (("process.context_switch.type", kind),), row.get(f"num_{kind}_switches"))
    for column, direction in (("read_bytes", "read"), ("write_bytes", "write")):
        into.put("process.disk.io", (("disk.io.direction", direction),), row.get(column))


def checkpoint(row: Row, into: Series) -> None:
    """A row of checkpoint, into its rank's series; one that was not finished has no duration."""
    start, end = row.get("start_ns"), row.get("end_ns")
    if start and end and end >= start and row.get("action"):
        attributes: Attributes = (("training.checkpoint.mode", str(row["action"])),)
        into.observe("training.checkpoint.duration", attributes, np.array([end - start], np.int64))


NODE_TABLES: Final[Mapping[str, Callable[[Row, Series], None]]] = {"host_sample": host, "nic_sample": nic}
"""Tables whose rows go to the node's own series."""
RANK_TABLES: Final[Mapping[str, Callable[[Row, Series], None]]] = {"process_sample": process, "checkpoint": checkpoint}


def _interface(row: Row, name: str, into: Series) -> None:
    own: Attributes = (("network.interface.name", name),)
    into.put("system.network.io", own + _RECEIVE, row.get("rx_bytes"))
    into.put("system.network.io", own + _TRANSMIT, row.get("tx_bytes"))
    for column, metric, key in _NIC_COUNTS:
        for side, way in (("rx", _RECEIVE), ("tx", _TRANSMIT)):
            into.put(metric, ((key, name), *way), row.get(f"{side}_{column}"))


def _share(used: Number | None, limit: Number | None) -> float | None:
    return used / limit if used is not None and limit else None
