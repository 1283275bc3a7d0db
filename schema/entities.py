"""Entity tables: one row each, written once."""

from typing import Final

from .declare import Column, Table, count, enum, time

_WALL = "ns since 1970"

RUN: Final = Table("run", "entity", "a run", (
    Column("run_id", "string", "run id", nullable=False),
    Column("job_id", "string", "the training this run belongs to"),
    Column("owner", "string", "who answers for it"), Column("project", "string", "project"),
    count("created_ns", f"when it began, {_WALL}", unit="ns"),
    Column("ontology_version", "string", "version of the ontology"),
    Column("rankscope_version", "string", "version of rankscope"),
    count("world_size", "number of ranks"), count("dp", "data-parallel size"), count("tp", "tensor-parallel size"),
    count("pp", "pipeline-parallel size"), count("vpp", "virtual pipeline stages per rank"),
    count("cp", "context-parallel size"), count("ep", "expert-parallel size"),
    Column("sharding", "string", "none, fsdp, hsdp, zero1, zero2, zero3"), Column("precision", "string", "precision"),
    count("global_batch", "samples per step over all ranks"), count("sequence_length", "tokens per sample"),
    count("gradient_accumulation", "micro-batches per optimizer step"),
    Column("activation_checkpointing", "string", "activation checkpointing"),
    Column("objective", "string", "what is minimised"),
    Column("flops_per_sample", "float64", "model FLOPs per sample", unit="flop"),
    Column("flops_per_token", "float64", "model FLOPs per token", unit="flop"),
    Column("flops_source", "string", "declared, counted"),
    Column("peak_flops", "float64", "declared peak FLOP/s of one device", unit="flop/s"),
    Column("price_per_device_hour", "float64", "declared price"), Column("scheduler", "json", "scheduler attributes"),
    Column("manifest", "json", "versions, environment (allow-listed), command line (redacted), git state, topology"),
), key=("run_id",))  # fmt: skip

PROCESS: Final = Table("process", "entity", "a process of the run in one incarnation", (
    Column("proc", "int64", "process", nullable=False), Column("rank", "int32", "global rank"),
    Column("local_rank", "int32", "rank on its host"), Column("node", "string", "host (table node)"),
    Column("host", "string", "host name"), Column("boot_id", "string", "boot id of the host"),
    count("pid", "process id"),
    count("pid_namespace", "inode of the PID namespace"),
    count("started_ns", f"start of the process, {_WALL}", unit="ns"),
    Column("container_id", "string", "container"), Column("pod_uid", "string", "pod"),
    Column("incarnation", "int64", "incarnation: restart count of rank 0 x 1000 + ordinal of init_process_group"),
    count("restart_count", "the worker's own restart count"),
    count("from_record", "first ring record of this incarnation"),
    count("mesh_dp", "data-parallel coordinate"), count("mesh_tp", "tensor-parallel coordinate"),
    count("mesh_pp", "pipeline coordinate"), count("mesh_cp", "context-parallel coordinate"),
    count("mesh_ep", "expert-parallel coordinate"), Column("device_uuid", "string", "its device"),
    Column("cpu_affinity", "list<int64>", "CPUs it may run on"),
    Column("numa_nodes", "list<int64>", "NUMA nodes of these"),
    Column("nics", "json", "NICs its traffic can use"),
    Column("exit_kind", "string", "clean, failed (by an exception that nothing caught), killed (lock gone without an "
           "exit line), running"),
    Column("exit_error", "string", "type of the exception that nothing caught"),
    count("num_records", "ring records claimed, as far as known"),
    count("num_dropped", "overwritten before they were read"),
    count("ended_ns", "CLOCK_MONOTONIC of its exit line", unit="ns"),
), key=("proc", "incarnation"))  # fmt: skip

NODE: Final = Table("node", "entity", "a host", (
    Column("node", "string", "node id", nullable=False), Column("host", "string", "host name"),
    Column("boot_id", "string", "boot id"), count("num_cpus", "CPUs"), count("memory_bytes", "memory", unit="bytes"),
    Column("kernel", "string", "kernel release"), Column("os", "string", "operating system"),
    Column("nics", "json", "NICs"),
    Column("switch", "string", "switch or rack, where declared"),
), key=("node",))  # fmt: skip

DEVICE: Final = Table("device", "entity", "an accelerator", (
    Column("device_uuid", "string", "UUID", nullable=False), Column("node", "string", "host"),
    Column("pci_bus_id", "string", "PCI bus id"), Column("name", "string", "product name"),
    count("memory_bytes", "memory", unit="bytes"),
    Column("power_limit_watts", "float64", "power limit", unit="watts"),
    count("numa_node", "NUMA node"), Column("mig", "string", "MIG mode or parent"),
    Column("nvlink_peers", "json", "links to other devices"),
), key=("device_uuid",))  # fmt: skip

PROCESS_GROUP: Final = Table("process_group", "entity", "a process group", (
    Column("group_id", "string", "hash of members, backend and ordinal", nullable=False),
    Column("incarnation", "int64", "incarnation"),
    Column("member_starts", "list<int64>", "members, run-length coded: first rank of each run"),
    Column("member_strides", "list<int64>", "step inside each run"),
    Column("member_counts", "list<int64>", "length of each run"),
    count("size", "number of members"), Column("backend", "string", "gloo, nccl, ..."),
    enum("mesh_dimension", "mesh_dimension", "mesh dimension"),
    Column("mesh_dimension_source", "string", "how the dimension is known"),
    Column("description", "string", "description given by the framework"),
    count("ordinal", "ordinal among groups with the same members and backend"),
    time("created_ns", "created", ring=False),
), key=("group_id", "incarnation"))  # fmt: skip

ARTIFACT: Final = Table("artifact", "entity", "one versioned input", (
    enum("kind", "artifact_kind", "what it is"), Column("name", "string", "name"),
    Column("version", "string", "version"),
    Column("digest", "string", "digest"), Column("source", "string", "where it was seen (redacted)"),
), key=("kind", "name", "version", "digest"))  # fmt: skip

ENTITIES: Final = (RUN, PROCESS, NODE, DEVICE, PROCESS_GROUP, ARTIFACT)
