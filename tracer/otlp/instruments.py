"""Every metric that is exported live: name, kind, unit, what it says. The names are stable.

OpenTelemetry semantic conventions 1.44 where they have a name (hw.*, system.*, process.*); `training.*` is ours. Base
units, no unit and no `_total` in a name. Never an attribute: step, sequence number, size, group id.
"""

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "updown", "gauge", "histogram"]
NS: Final = 1e-9


class Instrument(NamedTuple):
    """One metric. scale: what a recorded value is multiplied by to be in `unit` (times are recorded in ns)."""

    name: str
    kind: Kind
    unit: str
    doc: str
    scale: float = 1.0
    bounds: tuple[float, ...] = ()


STEP_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 300.0)
"""Seconds. The SDK's own bounds (0, 5, 10, ... 10,000) are for milliseconds."""
OPERATION_BOUNDS: Final = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
CHECKPOINT_BOUNDS: Final = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)

_ALL: Final = (
    Instrument("training.steps", "counter", "{step}", "Steps that ended on a rank."),
    Instrument("training.step.duration", "histogram", "s",
               "From the end of the previous step to the end of this one; warm-up, evaluation and the like left out.",
               NS, STEP_BOUNDS),
    Instrument("training.phase.duration", "histogram", "s", "Spans of a phase of the step.", NS, STEP_BOUNDS),
    Instrument("training.collective.duration", "histogram", "s",
               "Issue to completion as the rank's host saw it, waiting for the others included.", NS, OPERATION_BOUNDS),
    Instrument("training.collective.io", "counter", "By", "Bytes of the input tensors of operations."),
    Instrument("training.collective.wait.time", "counter", "s",
               "Time for which the rank's host waited for operations.", NS),
    Instrument("training.collective.pending", "updown", "{operation}", "Operations open for longer than 2 s."),
    Instrument("training.collective.skew", "histogram", "s",
               "Last minus first arrival at operations of groups that lie inside the node.", NS, OPERATION_BOUNDS),
    Instrument("training.rank.lag", "gauge", "s",
               "Mean time by which the rank came after the first, at the latest operations of groups inside the node.",
               NS),
    Instrument("training.samples", "counter", "{sample}", "Samples; one rank of each data coordinate tells."),
    Instrument("training.tokens", "counter", "{token}", "Tokens; one rank of each data coordinate tells."),
    Instrument("training.loss", "gauge", "1", "The last loss that was logged."),
    Instrument("training.checkpoint.duration", "histogram", "s", "Saves and loads, from begin to complete.", NS,
               CHECKPOINT_BOUNDS),
    Instrument("training.restarts", "counter", "{restart}", "How often the launcher has restarted the rank."),
    Instrument("training.device.memory.usage", "updown", "By", "Memory of torch's allocator at step ends."),
    Instrument("training.incidents", "counter", "{incident}", "Dead ranks, and operations open beyond the patience."),
    Instrument("hw.gpu.utilization", "gauge", "1", "Share of time in which a kernel ran on the device."),
    Instrument("hw.gpu.memory.usage", "updown", "By", "Memory in use on the device."),
    Instrument("hw.gpu.memory.limit", "updown", "By", "Memory of the device."),
    Instrument("hw.gpu.memory.utilization", "gauge", "1", "Share of the device's memory that is in use."),
    Instrument("hw.gpu.io", "counter", "By", "Bytes over the device's links."),
    Instrument("hw.gpu.frequency", "gauge", "Hz", "Clock of the device."),
    Instrument("hw.power", "gauge", "W", "Power of the device."),
    Instrument("hw.energy", "counter", "J", "Energy of the device since its driver was loaded."),
    Instrument("hw.temperature", "gauge", "Cel", "Temperature of the device."),
    Instrument("hw.errors", "counter", "{error}", "ECC errors of the device."),
    Instrument("hw.network.io", "counter", "By", "Bytes of an RDMA port."),
    Instrument("hw.network.bandwidth.limit", "updown", "By/s", "Link speed of an RDMA port."),
    Instrument("hw.network.up", "updown", "1", "1 where the link of an RDMA port is up."),
    Instrument("system.network.io", "counter", "By", "Bytes of a network interface."),
    Instrument("system.network.errors", "counter", "{error}", "Errors of a network interface."),
    Instrument("system.network.packet.dropped", "counter", "{packet}", "Packets dropped by a network interface."),
    Instrument("system.network.packet.count", "counter", "{packet}", "Packets of a network interface."),
    Instrument("system.cpu.utilization", "gauge", "1", "Busy share of the CPUs that the node's ranks may use."),
    Instrument("system.memory.usage", "updown", "By", "Memory in use, of the cgroup where it is limited."),
    Instrument("system.memory.limit", "updown", "By", "Limit of the cgroup, else the host's memory."),
    Instrument("system.memory.utilization", "gauge", "1", "Share of system.memory.limit in use."),
    Instrument("system.paging.usage", "updown", "By", "Swap in use."),
    Instrument("system.disk.io", "counter", "By", "Bytes read from and written to disks."),
    Instrument("process.cpu.time", "counter", "s", "CPU time of the rank's process.", NS),
    Instrument("process.memory.usage", "updown", "By", "Resident memory of the rank's process."),
    Instrument("process.thread.count", "updown", "{thread}", "Threads of the rank's process."),
    Instrument("process.unix.file_descriptor.count", "updown", "{file_descriptor}",
               "Open descriptors of the rank's process."),
    Instrument("process.context_switches", "counter", "{context_switch}", "Context switches of the rank's process."),
    Instrument("process.disk.io", "counter", "By", "Bytes that the rank's process read and wrote."),
)  # fmt: skip
INSTRUMENTS: Final[dict[str, Instrument]] = {instrument.name: instrument for instrument in _ALL}
