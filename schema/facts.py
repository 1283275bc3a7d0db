"""Fact tables: what one process did. Those with a `ring_kind` are written to the process's ring."""

from typing import Final

from .declare import PROCESS_KEY, Column, Ring, Table, count, device_time, enum, small, time

_KEY: Final = ("proc", "record")
_STEP = Column("step", "int64", "step ordinal in the incarnation, from 0", ring=Ring("i", "minus_one_null"))
_GLOBAL_STEP = count(
    "global_step", "step number of the whole training, from the user, trainer or checkpoint", ring=True
)
_NAME_DOC = "name, interned in the journal"
_STAGE = (small("stage", "pipeline stage", "h"), small("chunk", "model chunk in the stage", "h"),
          small("microbatch", "micro-batch ordinal in the step", "h"))  # fmt: skip
_THREAD = Column("thread_id", "int64", "native thread id that issued or did it")
_DEVICE = Column("device_uuid", "string", "device, by UUID", ring=Ring("I", "intern"))

COLLECTIVE: Final = Table("collective", "fact", "one collective or P2P operation on one process", (
    *PROCESS_KEY, _STEP,
    Column("group_id", "string", "process group (table process_group)", ring=Ring("I", "group")),
    enum("op", "op", "operation", ring=True),
    Column("seq", "int64", "our own counter: per group for collectives, per (group, src, dst, tag) for P2P, from 0",
           ring=Ring("I")),
    small("src", "P2P: sending global rank"), small("dst", "P2P: receiving global rank"), small("tag", "P2P: tag"),
    Column("root", "int32", "global root rank of broadcast, scatter, reduce, gather"),
    enum("reduce_op", "reduce_op", "reduction", ring=True),
    Column("coalescing_id", "int64", "operations issued as one coalesced call share it", ring=Ring("I", "zero_null")),
    enum("dtype", "dtype", "element type of the first tensor", ring=True),
    count("bytes_in", "bytes of the input tensors", unit="bytes", ring=True),
    count("bytes_out", "bytes of the output tensors (in-place operations: the same tensors)", unit="bytes",
          ring=True),
    Column("is_async", "bool", "the caller asked for asynchronous execution", ring=Ring("B", "bool")),
    time("issued_ns", "the operation was issued"),
    time("returned_ns", "the issuing call came back", moment="close"),
    time("wait_begin_ns", "somebody began to wait for it (host)", moment="close"),
    time("wait_end_ns", "that wait ended", moment="close"),
    time("completed_ns", "it was seen completed; how exactly: timing_source", moment="close"),
    device_time("device_start_ns", "start on the device stream"),
    device_time("device_end_ns", "end on the device stream"),
    device_time("wait_device_start_ns", "the current stream began to stall for it"),
    device_time("wait_device_end_ns", "that stall ended"),
    enum("state", "state", "issued, completed or failed"),
    enum("role", "role", "what is communicated, where a framework says", ring=True), *_STAGE,
    enum("phase", "phase", "phase of the step that issued it", ring=True),
    enum("tier", "tier", "which mechanism saw it", ring=True),
    enum("timing_source", "timing_source", "how the completion was learnt"), _THREAD,
), ring_kind=1, sort=("proc", "issued_ns"), key=_KEY)  # fmt: skip

SPAN: Final = Table("span", "fact", "an interval of work on one process", (
    *PROCESS_KEY, _STEP, enum("kind", "span_kind", "what the time was spent on", ring=True),
    Column("name", "string", _NAME_DOC, ring=Ring("I", "intern")),
    time("start_ns", "begin"), time("end_ns", "end; null while open", moment="close"),
    device_time("device_start_ns", "start on the device"), device_time("device_end_ns", "end on the device"),
    *_STAGE, _THREAD,
), ring_kind=2, sort=("proc", "start_ns"), key=_KEY)  # fmt: skip

STEP: Final = Table("step", "fact", "a training step on one process", (
    *PROCESS_KEY, _STEP, _GLOBAL_STEP,
    time("start_ns", "end of the previous boundary"), time("end_ns", "end of this boundary"),
    enum("boundary", "boundary", "what marked the boundary", ring=True),
    count("samples", "samples of this process in the step, where told", ring=True),
    count("tokens", "tokens of this process in the step, where told", ring=True),
    Column("is_skipped", "bool", "the optimizer step was skipped (overflow)", ring=Ring("B", "bool")),
    enum("left_out", "left_out", "why analyzers leave the step out", ring=True),
), ring_kind=3, sort=("proc", "start_ns"), key=_KEY)  # fmt: skip

METRIC: Final = Table("metric", "fact", "a scalar from the job", (
    *PROCESS_KEY, _STEP, _GLOBAL_STEP, time("time_ns", "when it was logged"),
    Column("name", "string", _NAME_DOC, ring=Ring("I", "intern")),
    Column("value", "float64", "value", ring=Ring("d")),
    Column("is_replicated", "bool", "should be equal on all ranks", ring=Ring("B", "bool")),
), ring_kind=4, sort=("proc", "time_ns"), key=_KEY)  # fmt: skip

MEMORY: Final = Table("memory", "fact", "a memory reading at a step boundary", (
    *PROCESS_KEY, _STEP, time("time_ns", "when it was read"), _DEVICE,
    count("allocated_bytes", "torch allocator: in live tensors", unit="bytes", ring=True),
    count("reserved_bytes", "torch allocator: taken from the device", unit="bytes", ring=True),
    count("active_bytes", "torch allocator: in active blocks", unit="bytes", ring=True),
    count("inactive_split_bytes", "torch allocator: free pieces of split blocks", unit="bytes", ring=True),
    count("peak_allocated_bytes", "running maximum, where it moved in this step", unit="bytes", ring=True),
    count("peak_reserved_bytes", "running maximum, where it moved in this step", unit="bytes", ring=True),
    count("rss_bytes", "resident memory of the process", unit="bytes", ring=True),
    small("num_alloc_retries", "allocator retries since start"),
    small("num_ooms", "out-of-memory errors since start"),
), ring_kind=5, sort=("proc", "time_ns"), key=_KEY)  # fmt: skip

SAMPLE_BATCH: Final = Table("sample_batch", "fact", "one batch drawn from a data loader", (
    *PROCESS_KEY, _STEP, small("epoch", "epoch of this loader in this process, from 0"),
    Column("loader", "string", "loader, interned in the journal", ring=Ring("I", "intern")),
    time("time_ns", "when the batch was handed over"),
    small("num_samples", "samples in the batch"),
    Column("digest", "int64", "order-free digest of the sample indices: their 64-bit hashes summed, modulo 2**64",
           ring=Ring("q", "zero_null")),
    count("wait_ns", "how long the step waited for the batch", unit="ns", ring=True),
    small("queue_depth", "batches ready when it was asked for"), small("num_workers", "loader workers", "h"),
), ring_kind=6, sort=("proc", "time_ns"), key=_KEY)  # fmt: skip

SAMPLE_EPOCH: Final = Table("sample_epoch", "fact", "one epoch of a data loader on one process, written at its end", (
    *PROCESS_KEY, Column("step", "int64", "step ordinal at its end"),
    Column("epoch", "int64", "epoch of this loader in this process, from 0"),
    Column("loader", "string", "loader: class of the data set, with an ordinal from the second one on"),
    time("start_ns", "iteration began; null where it was first seen later", ring=False),
    time("end_ns", "iteration ended", ring=False), Column("sampler", "string", "class of the sampler"),
    count("dataset_size", "samples in the data set; null for iterable ones"),
    count("batch_size", "samples per batch as set"), count("num_batches", "batches handed over"),
    count("num_samples", "samples drawn from the sampler"), count("num_workers", "loader workers"),
    count("prefetch_factor", "batches that each worker loads ahead"),
    Column("is_persistent", "bool", "the workers outlive the epoch"),
    Column("drops_last", "bool", "the sampler or the loader leaves an incomplete rest of the data set out"),
    Column("is_shuffled", "bool", "the sampler says that it shuffles"),
    count("num_replicas", "shares that the sampler divides the data set into"),
    count("replica", "this process's share, from 0"),
    count("num_padded", "samples drawn again by the sampler to make the shares equal; null if that is not known"),
    Column("digest", "int64", "order-free digest of all indices drawn (as in sample_batch)"),
    Column("padding_digest", "int64", "digest of the padded ones"),
    Column("is_complete", "bool", "seen from its begin until the sampler had no more"),
    Column("indices", "string", "distinct indices drawn, base64 (RANKSCOPE_INDICES=1)"),
    Column("indices_format", "string", "roaring, or bitmap+zlib"),
    Column("why", "string", "why digest or indices are null"),
), sort=("proc", "end_ns"), key=_KEY)  # fmt: skip

KERNEL: Final = Table("kernel", "fact", "a device activity (imported trace, or a kernel window of a live run)", (
    *PROCESS_KEY, Column("step", "int64", "step ordinal"),
    Column("category", "string", "category as traced"), Column("device_uuid", "string", "device"),
    Column("stream_id", "int64", "stream"), time("start_ns", "start", ring=False), time("end_ns", "end", ring=False),
    enum("kernel_class", "kernel_class", "compute, communication, copy, other"),
    Column("name", "string", "name as traced"), Column("correlation", "int64", "id that joins launch and activity"),
), sort=("proc", "start_ns"), key=_KEY)  # fmt: skip

CHECKPOINT: Final = Table("checkpoint", "fact", "a checkpoint save or load on one process", (
    *PROCESS_KEY, Column("step", "int64", "step ordinal"),
    Column("global_step", "int64", "step of the whole training"),
    enum("action", "checkpoint_action", "save or load"), enum("mode", "checkpoint_mode", "sync or async"),
    Column("path", "string", "where (redacted)"), Column("format", "string", "torch, dcp, safetensors, ..."),
    time("start_ns", "the call began", ring=False), time("blocking_end_ns", "the training went on", ring=False),
    time("end_ns", "all was written or read", ring=False), count("bytes", "bytes of those files", unit="bytes"),
    count("num_files", "files this process wrote, which add up to a save over the ranks; or opened for a load"),
    count("world_size", "world size it was written with"),
    Column("layout", "string", "parallel layout it was written with"),
    Column("digest", "string", "digest of the files"),
    Column("is_verified", "bool", "the files were compared with what the save recorded"),
    enum("outcome", "outcome", "how it ended"),
    count("whole_files", "load of dcp: files of the whole checkpoint on disk; on the rank that planned it"),
    count("whole_bytes", "load of dcp: bytes of the whole checkpoint on disk; planning rank", unit="bytes"),
    Column("read_ratio", "float64", "load of dcp: share of the stored bytes that the ranks asked for; planning rank",
           unit="1"),
), sort=("proc", "start_ns"), key=_KEY)  # fmt: skip

INCIDENT: Final = Table("incident", "fact", "something that went wrong", (
    *PROCESS_KEY, time("time_ns", "when it was judged", ring=False), Column("kind", "string", "kind of incident"),
    enum("severity", "severity", "how bad"), Column("procs", "list<int64>", "processes concerned"),
    Column("evidence", "json", "table and predicate of the rows that show it"),
    Column("rule", "string", "rule that fired"),
    Column("owner", "string", "owner of the rule"),
), sort=("time_ns",), key=_KEY)  # fmt: skip

CAPTURE: Final = Table("capture", "fact", "what the capture itself did, one row per hook and reading", (
    *PROCESS_KEY, time("time_ns", "when it was read", ring=False), Column("hook", "string", "hook"),
    enum("tier", "tier", "mechanism in use, where the hook has tiers"), Column("is_on", "bool", "the hook is on"),
    Column("why", "string", "why it is off or reduced"), count("num_rows", "rows written so far"),
    count("num_dropped", "rows overwritten before they were read, so far"),
    count("num_errors", "errors swallowed so far"),
    count("num_calls", "hook entries so far"), count("num_timed_calls", "of these, timed (1 in 64)"),
    count("timed_ns", "time spent in the timed entries", unit="ns"),
    Column("timed_ns_squared", "float64", "sum of the squares of these times, for the interval", unit="ns^2"),
    Column("ring_path", "string", "where the ring lies"), Column("is_tmpfs", "bool", "the ring lies on tmpfs"),
), sort=("proc", "time_ns"), key=("proc", "hook", "time_ns"))  # fmt: skip

CLOCK: Final = Table("clock", "fact", "a clock reading of one process", (
    *PROCESS_KEY, Column("boot_id", "string", "the host's boot id"),
    time("monotonic_ns", "CLOCK_MONOTONIC", ring=False),
    Column("wall_ns", "int64", "CLOCK_REALTIME at the same moment, ns since 1970", unit="ns"),
    count("estimated_error_ns", "the kernel's estimated error (adjtimex)", unit="ns"),
    count("maximum_error_ns", "the kernel's maximum error (adjtimex)", unit="ns"),
    Column("is_synchronised", "bool", "the kernel calls its clock synchronised"),
    count("store_round_trip_ns", "round trip to the job's store, where measured", unit="ns"),
    Column("peer_boot_id", "string", "the host that answered in that round trip, where it told its clock"),
    time("peer_monotonic_ns",
         "that host's CLOCK_MONOTONIC at some moment of the round trip, which ended at monotonic_ns", ring=False),
), sort=("proc", "monotonic_ns"), key=("proc", "monotonic_ns"))  # fmt: skip

FACTS: Final = (
    COLLECTIVE, SPAN, STEP, METRIC, MEMORY, SAMPLE_BATCH, SAMPLE_EPOCH, KERNEL, CHECKPOINT, INCIDENT, CAPTURE, CLOCK,
)  # fmt: skip
