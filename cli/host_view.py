"""The sections "Network", "Hosts", "CPU by rank" and "Storage" of the report; nothing is computed here."""

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.host import Hosts, HostUse, ProcessUse
from rankscope.analyzers.network import Interface, Network
from rankscope.analyzers.storage import Mount, Storage
from rankscope.schema.measurement import Measurement

from .tables import FittingTable
from .words import NONE, bar, count, duration, share, size, sparkline

MAX_ROWS: Final = 16
BAR_COLUMNS: Final = 16
_INSIDE: Final = "one node: what its ranks send one another goes over loopback or between devices, through no interface"


def network_section(network: Network) -> RenderableType | None:
    """Interfaces that carried something, and those that are down; one line if none did, None where none was sampled."""
    if not network.interfaces:
        return None
    inside = _INSIDE if network.is_inside else ""
    if all(item.received.value == 0 and item.sent.value == 0 for item in network.interfaces):
        nothing = f"nothing moved on {_listed([item.nic for item in network.interfaces])}"
        return Text(f"{nothing}; {inside}" if inside else nothing, style="dim")
    shown = [item for item in network.interfaces if item.has_traffic or item.received.value is None]
    table = _table("interface", "kind", "link", "received", "sent", "a step: received", "sent", "errors", "over time",
                   right=(3, 4, 5, 6, 7))  # fmt: skip
    for item in shown[:MAX_ROWS]:
        table.add_row(*_interface(item, _has_several([interface.node for interface in network.interfaces])))
    silent = [item.nic for item in network.interfaces if item not in shown]
    notes = [f"without traffic: {', '.join(silent[:MAX_ROWS])}"] if silent else []
    notes += [f"and {len(shown) - MAX_ROWS:,} more"] if len(shown) > MAX_ROWS else []
    notes += [inside] if inside else []
    return Group(table, *_dim(notes))


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_ROWS
    return ", ".join(names[:MAX_ROWS]) + (f" and {more:,} more" if more > 0 else "")


def hosts_section(hosts: Hosts) -> RenderableType | None:
    """One row per node: CPU, memory against its limit, pressure; None where no host was sampled."""
    if not hosts.hosts:
        return None
    table = _table("host", "CPU mean", "max", "of", "memory", "of the limit", "", "pressure cpu", "memory", "io",
                   right=(1, 2, 3, 4, 5, 7, 8, 9))  # fmt: skip
    for host in hosts.hosts[:MAX_ROWS]:
        table.add_row(*_host(host))
    lines = [_over_time(host) for host in hosts.hosts[:MAX_ROWS] if host.cpu_series]
    return Group(table, *lines)


def processes_section(hosts: Hosts) -> RenderableType | None:
    """One row per rank, those that waited most first; None where no process was sampled."""
    if not hosts.processes:
        return None
    table = _table("rank", "cores used", "waited for", "", "forced switches", "major faults", "memory", "read",
                   "written", right=(0, 1, 2, 4, 5, 6, 7, 8))  # fmt: skip
    ranked = sorted(hosts.processes, key=lambda use: -float(use.wait.value or 0))
    for use in ranked[:MAX_ROWS]:
        table.add_row(*_process(use))
    more = len(ranked) - MAX_ROWS
    return Group(table, *_dim([f"and {more:,} more ranks"] if more > 0 else []))


def storage_section(storage: Storage) -> RenderableType | None:
    """One row per mount; None where none was sampled."""
    if not storage.mounts:
        return None
    table = _table("mount", "kind", "read", "written", "operations", "latency", "worst", "over time",
                   right=(2, 3, 4, 5, 6))  # fmt: skip
    for mount in storage.mounts[:MAX_ROWS]:
        table.add_row(*_mount(mount, _has_several([item.node for item in storage.mounts])))
    return table


def _interface(item: Interface, names_node: bool) -> tuple[Text, ...]:
    link = "down" if item.is_up is False else NONE if item.is_up is None else "up"
    speed = "" if item.speed is None else f" {size(item.speed)}/s"
    means = [measurement for measurement in item.step_bytes if measurement.scope["statistic"] == "mean"]
    return (
        Text(f"{item.node} {item.nic}" if names_node else item.nic),
        Text(item.kind),
        Text(link + speed, style="bold red" if link == "down" else ""),
        Text(size(_number(item.received))),
        Text(size(_number(item.sent))),
        *(Text(size(_number(mean))) for mean in means),
        Text(count(None if item.errors.value is None else int(item.errors.value))),
        Text(sparkline(list(item.series)), style="cyan"),
    )


def _host(host: HostUse) -> tuple[Text, ...]:
    ratio = _number(host.memory_share)
    worst = [measurement for measurement in host.pressure if measurement.scope["statistic"] == "max"]
    return (
        Text(host.node),
        *(Text(share(_number(measurement))) for measurement in host.cpu),
        Text("host" if host.cpu_limit_cores is None else f"{host.cpu_limit_cores:g} cores"),
        Text(size(_number(host.memory_used))),
        Text(f"{share(ratio)} of {size(host.memory_limit_bytes)}"),
        Text(bar(ratio or 0, BAR_COLUMNS), style="cyan"),
        *(Text(share(_number(measurement))) for measurement in worst),
    )


def _over_time(host: HostUse) -> Text:
    line = Text.assemble((f"{host.node}  CPU ", "dim"), (sparkline(list(host.cpu_series)), "cyan"))
    if host.memory_series:
        line.append("  memory ", style="dim").append(sparkline(list(host.memory_series)), style="cyan")
    return line


def _process(use: ProcessUse) -> tuple[Text, ...]:
    cpu, wait = _number(use.cpu), _number(use.wait)
    return (
        Text(NONE if use.rank is None else str(use.rank)),
        Text(NONE if cpu is None else f"{cpu:.2f}"),
        Text(NONE if wait is None else f"{wait:.2f}", style="yellow" if use.is_contended else ""),
        Text(bar(wait or 0, BAR_COLUMNS), style="cyan"),
        Text(count(use.num_involuntary)),
        Text(count(use.num_major_faults)),
        Text(size(use.rss_bytes)),
        Text(size(use.read_bytes)),
        Text(size(use.write_bytes)),
    )


def _mount(mount: Mount, names_node: bool) -> tuple[Text, ...]:
    return (
        Text(f"{mount.node} {mount.mount}" if names_node else mount.mount),
        Text(mount.kind),
        Text(size(_number(mount.read))),
        Text(size(_number(mount.written))),
        Text(count(mount.num_operations)),
        Text(duration(_number(mount.latency))),
        Text(duration(mount.most_latency_ns)),
        Text(sparkline(list(mount.series)), style="cyan"),
    )


def _number(measurement: Measurement) -> float | None:
    return None if measurement.value is None else float(measurement.value)


def _has_several(names: list[str]) -> bool:
    return len(set(names)) > 1


def _dim(notes: list[str]) -> list[Text]:
    return [Text(note, style="dim") for note in notes]


def _table(*headers: str, right: tuple[int, ...]) -> Table:
    table = FittingTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    for index, header in enumerate(headers):
        is_whole = index in right or not header
        table.add_column(header, justify="right" if index in right else "left", overflow="fold", no_wrap=is_whole)
    return table
