"""Tables sampled by the node agent: readings of a device, host, NIC, process or mount; and the conclusions' tables."""

from typing import Final

from .declare import PROCESS_KEY, Column, Table, count, enum, time

_NODE = Column("node", "string", "host", nullable=False)
_TIME = time("time_ns", "when it was read", ring=False)
_REASON = Column("reason", "json", "column -> why it is null")

DEVICE_SAMPLE: Final = Table("device_sample", "reading", "a device reading", (
    _NODE, Column("device_uuid", "string", "device"), _TIME,
    Column("sm_utilisation_ratio", "float64", "share of time a kernel ran", unit="1", otel="hw.gpu.utilization"),
    Column("memory_utilisation_ratio", "float64", "share of time memory was read or written", unit="1"),
    count("memory_used_bytes", "memory in use", unit="bytes", otel="hw.gpu.memory.usage"),
    Column("power_watts", "float64", "power", unit="watts", otel="hw.power"),
    Column("energy_joules", "float64", "energy since the driver was loaded", unit="joules", otel="hw.energy"),
    Column("temperature_celsius", "float64", "temperature", unit="celsius", otel="hw.temperature"),
    Column("sm_clock_hertz", "float64", "SM clock", unit="hertz"),
    Column("memory_clock_hertz", "float64", "memory clock", unit="hertz"),
    Column("throttle_reasons", "string", "clock throttle reasons, comma-separated"),
    count("pcie_rx_bytes", "PCIe bytes received", unit="bytes", otel="hw.gpu.io"),
    count("pcie_tx_bytes", "PCIe bytes sent", unit="bytes", otel="hw.gpu.io"),
    count("nvlink_rx_bytes", "NVLink bytes received", unit="bytes"),
    count("nvlink_tx_bytes", "NVLink bytes sent", unit="bytes"),
    count("ecc_corrected", "corrected ECC errors", otel="hw.errors"),
    count("ecc_uncorrected", "uncorrected ECC errors", otel="hw.errors"),
    count("last_xid", "last Xid seen"), _REASON,
), sort=("device_uuid", "time_ns"))  # fmt: skip

HOST_SAMPLE: Final = Table("host_sample", "reading", "a host reading", (
    _NODE, _TIME, Column("cpu_utilisation_ratio", "float64", "busy share of all CPUs it may use", unit="1",
            otel="system.cpu.utilization"),
    Column("cpu_core_utilisation_ratio", "list<float64>", "busy share by core", unit="1"),
    Column("cpu_limit_cores", "float64", "CPU limit of the cgroup, in cores"),
    Column("load_1m", "float64", "load average"),
    count("memory_used_bytes", "memory in use (cgroup where limited)", unit="bytes", otel="system.memory.usage"),
    count("memory_limit_bytes", "memory limit (cgroup, else the host's)", unit="bytes", otel="system.memory.limit"),
    count("swap_used_bytes", "swap in use", unit="bytes"),
    Column("iowait_ratio", "float64", "share of time waiting for I/O", unit="1"),
    count("disk_read_bytes", "bytes read since boot", unit="bytes", otel="system.disk.io"),
    count("disk_write_bytes", "bytes written since boot", unit="bytes", otel="system.disk.io"),
    count("num_page_faults", "major page faults since boot"),
    count("num_context_switches", "context switches since boot"),
    Column("cpu_pressure_ratio", "float64", "pressure stall information, cpu, some, 10 s", unit="1"),
    Column("memory_pressure_ratio", "float64", "pressure stall information, memory, some, 10 s", unit="1"),
    Column("io_pressure_ratio", "float64", "pressure stall information, io, some, 10 s", unit="1"), _REASON,
), sort=("time_ns",))  # fmt: skip

NIC_SAMPLE: Final = Table("nic_sample", "reading", "a network reading", (
    _NODE, Column("nic", "string", "interface or port"), enum("kind", "nic_kind", "kind"), _TIME,
    count("rx_bytes", "bytes received", unit="bytes", otel="system.network.io"),
    count("tx_bytes", "bytes sent", unit="bytes", otel="system.network.io"),
    count("rx_packets", "packets received"), count("tx_packets", "packets sent"),
    count("rx_errors", "receive errors"), count("tx_errors", "send errors"),
    count("rx_dropped", "dropped on receive"), count("tx_dropped", "dropped on send"),
    count("tx_wait", "ticks in which data waited to be sent"), count("num_discards", "discarded packets"),
    count("num_retransmits", "retransmissions"), count("num_congestion", "congestion notifications and ECN marks"),
    count("speed_bytes_per_second", "link speed", unit="bytes/s"), Column("is_up", "bool", "link is up"), _REASON,
), sort=("nic", "time_ns"))  # fmt: skip

PROCESS_SAMPLE: Final = Table("process_sample", "reading", "a reading of one rank's process", (
    *PROCESS_KEY[:2], _TIME, count("cpu_user_ns", "CPU time in user mode", unit="ns", otel="process.cpu.time"),
    count("cpu_system_ns", "CPU time in the kernel", unit="ns", otel="process.cpu.time"),
    count("num_involuntary_switches", "context switches forced on it", otel="process.context_switches"),
    count("num_voluntary_switches", "context switches it asked for", otel="process.context_switches"),
    count("run_queue_wait_ns", "time it was runnable without a CPU", unit="ns"),
    count("num_minor_faults", "minor page faults"), count("num_major_faults", "major page faults"),
    count("num_threads", "threads", otel="process.thread.count"),
    count("num_open_files", "open descriptors", otel="process.unix.file_descriptor.count"),
    count("read_bytes", "bytes read from storage", unit="bytes", otel="process.disk.io"),
    count("write_bytes", "bytes written to storage", unit="bytes", otel="process.disk.io"),
    count("rss_bytes", "resident memory", unit="bytes", otel="process.memory.usage"), _REASON,
), sort=("proc", "time_ns"))  # fmt: skip

MOUNT_SAMPLE: Final = Table("mount_sample", "reading", "a storage reading", (
    _NODE, Column("mount", "string", "mount point"), enum("kind", "mount_kind", "kind"), _TIME,
    count("read_bytes", "bytes read", unit="bytes"), count("write_bytes", "bytes written", unit="bytes"),
    count("num_operations", "operations"),
    count("latency_ns", "mean latency since the last reading, where the kernel says", unit="ns"), _REASON,
), sort=("mount", "time_ns"))  # fmt: skip

MEASUREMENT: Final = Table("measurement", "conclusion", "a number and its evidence", (
    Column("name", "string", "name in the catalogue", nullable=False),
    Column("value", "float64", "value; null: see caveats"),
    Column("unit", "string", "unit"),
    Column("scope", "json", "run, incarnation, rank, group, step window, statistic"),
    count("n", "observations"), Column("interval_low", "float64", "low end"),
    Column("interval_high", "float64", "high end"),
    Column("interval_level", "float64", "level"), Column("interval_method", "string", "method"),
    Column("provenance", "json", "method, inputs, quality, environment"),
))  # fmt: skip

VERDICT: Final = Table("verdict", "conclusion", "a conclusion and what it stands on", (
    enum("kind", "verdict_kind", "kind"), Column("ranks", "list<int64>", "who"), enum("cause", "cause", "why"),
    count("since_step", "first step concerned"), Column("cost_ns", "float64", "cost in time", unit="ns"),
    Column("confidence", "float64", "0 to 1", unit="1"), Column("text", "string", "the conclusion in words"),
    Column("evidence", "json", "measurements and rows it stands on"),
))  # fmt: skip

READINGS: Final = (DEVICE_SAMPLE, HOST_SAMPLE, NIC_SAMPLE, PROCESS_SAMPLE, MOUNT_SAMPLE)
CONCLUSIONS: Final = (MEASUREMENT, VERDICT)
