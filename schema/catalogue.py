"""Every measurement by name: unit, definition, the columns it is made of, the OpenTelemetry name it is exported under.

The names are stable and the same in `--json`, `explain`, policies and the documentation; formulas stand in the analyzers'
docstrings. inputs are `table.column` and exist in `tables.TABLES` (a test). Units: "ns", "bytes", "bytes/s", "1" (a
ratio), "" (a count); what is counted says the definition.
"""

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """One measurement. definition: one sentence. scopes: keys that its `Measurement.scope` may carry."""

    name: str
    unit: str
    definition: str
    inputs: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    otel: str = ""


_WORK = ("span.kind", "span.start_ns", "span.end_ns")
_DEVICE = ("kernel.kernel_class", "kernel.start_ns", "kernel.end_ns")
_OPERATION = ("collective.issued_ns", "collective.completed_ns")
_STALL = ("collective.wait_begin_ns", "collective.wait_end_ns")
_MATCH = ("collective.group_id", "collective.seq", *_OPERATION)
_STEP = ("step.start_ns", "step.end_ns")
_STAGED = ("span.stage", "span.chunk", "span.microbatch", *_WORK)
_HOOKS = ("capture.num_calls", "capture.num_timed_calls", "capture.timed_ns", "capture.timed_ns_squared")
_GROUP_OP = ("group", "op", "size_class", "statistic", "incarnation")
_SAVE = ("checkpoint.action", "checkpoint.start_ns", "checkpoint.blocking_end_ns", "checkpoint.end_ns")

_ENTRIES: Final = (
    Entry("time.span", "ns", "first device start to last device end, or the union of the step windows of a live run",
          (*_STEP, *_DEVICE), ("rank",)),
    Entry("time.compute", "ns", "union of compute intervals on one rank", (*_WORK, *_DEVICE), ("rank",)),
    Entry("time.communication", "ns", "union of communication intervals on one rank", (*_OPERATION, *_DEVICE), ("rank",)),
    Entry("time.exposed_communication", "ns", "communication during which the device computed nothing",
          ("collective.wait_device_start_ns", "collective.wait_device_end_ns", *_DEVICE), ("rank",),
          "training.collective.exposed.time"),
    Entry("time.exposed_copy", "ns", "copies outside computation and communication", _DEVICE, ("rank",)),
    Entry("time.idle", "ns", "time.span without compute, communication, copies and other device work", _DEVICE, ("rank",)),
    Entry("time.host_wait", "ns", "union of the host-visible waits for collectives on one rank, inside its counted steps",
          (*_STALL, *_STEP), ("rank",), "training.collective.wait.time"),
    Entry("time.phase", "ns", "union of the spans of one kind on one rank, mean over ranks", _WORK, ("phase", "statistic"),
          "training.phase.duration"),
    Entry("ratio.communication_computation", "1", "time.communication / time.compute", (*_OPERATION, *_WORK, *_DEVICE),
          ("rank",)),
    Entry("ratio.overlap", "1", "share of communication during which the device computed", _DEVICE, ("rank",)),
    Entry("ratio.exposed", "1", "time.exposed_communication / time.span", _DEVICE, ("rank",)),
    Entry("ratio.host_wait", "1", "host-visible waits for collectives / step time, over all ranks", (*_STALL, *_STEP)),
    Entry("step.count", "", "steps that ended, by the rank that has most", ("step.step",), ("incarnation", "rank"),
          "training.steps"),
    Entry("step.duration", "ns", "from the end of the previous boundary to the end of this one, over ranks and counted steps",
          _STEP, ("statistic", "rank", "incarnation"), "training.step.duration"),
    Entry("step.tail_ratio", "1", "p99 / p50 of step.duration", _STEP),
    Entry("collective.count", "", "operations issued, each rank's counted", ("collective.op", "collective.group_id"),
          _GROUP_OP),
    Entry("collective.unfinished", "", "operations that nobody saw complete although their completion could be learnt",
          ("collective.state", "collective.timing_source"), _GROUP_OP, "training.collective.pending"),
    Entry("collective.bytes", "bytes", "bytes of the input tensors, over all ranks", ("collective.bytes_in",), _GROUP_OP,
          "training.collective.io"),
    Entry("collective.duration", "ns", "issue to completion as one rank's host saw it: includes waiting for the others",
          _OPERATION, _GROUP_OP, "training.collective.duration"),
    Entry("collective.host_wait", "ns", "begin to end of the host's wait for one operation on one rank", _STALL, _GROUP_OP,
          "training.collective.wait.time"),
    Entry("collective.wait", "ns", "last arrival of the matched operation minus this rank's arrival", _MATCH, _GROUP_OP),
    Entry("collective.transfer", "ns", "completion minus last arrival of the matched operation, median over its ranks",
          _MATCH, _GROUP_OP),
    Entry("collective.busbw", "bytes/s", "algbw times the operation's bus factor", (*_MATCH, "collective.bytes_in"),
          _GROUP_OP, "training.collective.bandwidth"),
    Entry("collective.algbw", "bytes/s", "bytes of the operation / collective.transfer", (*_MATCH, "collective.bytes_in"),
          _GROUP_OP, "training.collective.bandwidth"),
    Entry("collective.end_skew", "ns", "latest minus earliest completion of the matched operation", _MATCH, _GROUP_OP),
    Entry("network.bytes", "bytes", "bytes that the node's NICs sent and received", ("nic_sample.rx_bytes",
          "nic_sample.tx_bytes"), ("node", "nic")),
    Entry("network.amplification", "1", "measured NIC bytes / lower bound of the collectives that span nodes",
          ("nic_sample.tx_bytes", "collective.bytes_in"), ("node",)),
    Entry("straggler.lateness_own", "ns", "lateness from the rank's own work since its last synchronisation", _MATCH,
          ("rank",), "training.rank.lag"),
    Entry("straggler.lateness_inherited", "ns", "lateness from waits suffered in other groups", _MATCH, ("rank",)),
    Entry("straggler.slowdown", "1", "replayed time / ideal replayed time", (*_MATCH, *_STAGED),
          ("whole job", "dp_rank", "stage", "op", "worker")),
    Entry("straggler.share_worst_workers", "1", "share of the slowdown that vanishes when the worst 3 % of workers are ideal",
          (*_MATCH, *_STAGED)),
    Entry("straggler.share_last_stage", "1", "share of the slowdown that vanishes when the last stage is ideal",
          (*_MATCH, *_STAGED)),
    Entry("straggler.replay_error", "1", "absolute value of observed time / replayed time - 1", (*_MATCH, *_STAGED)),
    Entry("pipeline.idle_fraction", "1", "1 - union of the rank's compute spans / window of the step", _STAGED,
          ("rank", "stage")),
    Entry("pipeline.bubble_fraction", "1", "idle without data wait, exposed data-parallel communication and checkpoints",
          _STAGED, ("rank", "stage")),
    Entry("pipeline.ideal_bubble_fraction", "1", "bubble of the schedule by its action table or formula", _STAGED),
    Entry("pipeline.stage_imbalance", "1", "maximum / mean of the stages' compute time", _STAGED),
    Entry("throughput.samples", "1/s", "samples per second over data coordinates", ("step.samples", *_STEP), (),
          "training.samples"),
    Entry("throughput.tokens", "1/s", "tokens per second over data coordinates", ("step.tokens", *_STEP), (),
          "training.tokens"),
    Entry("throughput.goodput", "1/s", "tokens per second without skipped and replayed steps, checkpoints and restarts",
          ("step.tokens", "step.is_skipped", *_STEP)),
    Entry("efficiency.mfu", "1", "model FLOPs per second / (devices x peak)", ("run.flops_per_token", "run.peak_flops",
          "step.tokens"), (), "training.model_flops.utilization"),
    Entry("efficiency.time_to_target", "ns", "training time until a named metric reached its target", ("metric.name",
          "metric.value", "metric.time_ns"), ("metric", "target")),
    Entry("memory.allocated", "bytes", "bytes in live tensors at step ends", ("memory.allocated_bytes",), ("rank",),
          "training.device.memory.usage"),
    Entry("memory.peak_reserved", "bytes", "most that the allocator took from the device", ("memory.peak_reserved_bytes",),
          ("rank",), "training.device.memory.usage"),
    Entry("memory.fragmentation", "1", "inactive split bytes / reserved bytes", ("memory.inactive_split_bytes",
          "memory.reserved_bytes"), ("rank",)),
    Entry("memory.creep", "bytes/step", "Theil-Sen slope of allocated bytes at step ends", ("memory.allocated_bytes",
          "memory.step"), ("rank",)),
    Entry("energy.run", "joules", "energy of the run's devices", ("device_sample.energy_joules",
          "device_sample.power_watts"), ("device",), "hw.energy"),
    Entry("energy.step", "joules", "energy.run / steps", ("device_sample.energy_joules", "step.step")),
    Entry("energy.sample", "joules", "energy.run / samples", ("device_sample.energy_joules", "step.samples")),
    Entry("cost.run", "price", "device hours x declared price", ("run.price_per_device_hour", *_STEP)),
    Entry("checkpoint.blocking", "ns", "time that a save or load held the training up", _SAVE, ("action", "rank"),
          "training.checkpoint.duration"),
    Entry("checkpoint.total", "ns", "start until everything was written or read", _SAVE, ("action", "rank")),
    Entry("checkpoint.bandwidth", "bytes/s", "bytes of a checkpoint / its total time", (*_SAVE, "checkpoint.bytes")),
    Entry("checkpoint.stall_fraction", "1", "blocking time / training time", (*_SAVE, *_STEP)),
    Entry("checkpoint.interval_optimum", "ns", "optimum interval by Young and Daly from observed failures and cost",
          (*_SAVE, "process.exit_kind")),
    Entry("recovery.restart", "ns", "last step before to first step after a restart", ("process.incarnation", *_STEP), (),
          "training.restarts"),
    Entry("recovery.lost_work", "ns", "time of the steps done again after a restart", ("step.global_step", *_STEP)),
    Entry("recovery.effective_time_ratio", "1", "time of steps that counted / time of the run", ("step.global_step", *_STEP)),
    Entry("data.stall_fraction", "1", "union of the waits for data / time of the run", _WORK, ("rank",)),
    Entry("data.saturation", "1", "share of batches for which the step waited more than 1 ms", ("sample_batch.wait_ns",),
          ("rank", "loader")),
    Entry("data.duplicated", "", "samples drawn twice in one epoch over data coordinates", ("sample_batch.digest",
          "sample_batch.epoch"), ("epoch",)),
    Entry("data.missing", "", "samples never drawn in one epoch over data coordinates", ("sample_batch.digest",
          "sample_batch.epoch"), ("epoch",)),
    Entry("numerics.nonfinite_steps", "", "steps whose loss or gradient norm was not finite", ("metric.value",
          "metric.name"), ("rank", "metric")),
    Entry("numerics.skipped_steps", "", "steps whose optimizer step was skipped", ("step.is_skipped",)),
    Entry("numerics.spikes", "", "steps with |x - median| > 6 MAD over the last 100 steps", ("metric.value", "metric.name"),
          ("metric",)),
    Entry("scaling.efficiency", "1", "strong: T(n0) n0 / (T(n) n); weak: throughput(n) / (throughput(n0) n / n0)", _STEP,
          ("world_size",)),
    Entry("scaling.forecast", "1/s", "throughput forecast at a larger size", _STEP, ("world_size",)),
    Entry("scaling.holdout_error", "1", "error of the forecast of the largest measured size held out", _STEP, ("model",)),
    Entry("clock.offset", "ns", "median difference of two hosts' completions of symmetric operations", (*_MATCH,
          "clock.boot_id", "clock.monotonic_ns"), ("node",)),
    Entry("clock.error", "ns", "dispersion of clock.offset; the kernel's own error on one host", ("clock.boot_id",
          "clock.estimated_error_ns", "clock.maximum_error_ns"), ("node",)),
    Entry("capture.coverage", "1", "rows present / rows expected, from ring numbers, dropped counts and missing ranks",
          ("process.num_records", "process.num_dropped", "run.world_size"), ("table", "incarnation")),
    Entry("capture.rows", "", "rows of the run, superseded ones not counted", ("process.num_records",), ("table",)),
    Entry("capture.dropped", "", "rows overwritten in a ring before they were read", ("process.num_dropped",
          "capture.num_dropped"), ("rank",)),
    Entry("capture.missing_ranks", "", "ranks of the world without a single row", ("run.world_size", "process.rank"),
          ("incarnation",)),
    Entry("capture.errors", "", "errors of the capture that its guard swallowed", ("capture.num_errors",), ("hook",)),
    Entry("capture.tier", "1", "share of the operations that one mechanism saw", ("collective.tier",), ("tier",)),
    Entry("capture.overhead", "1", "estimated time inside hooks / step time (else observed time), mean over ranks",
          (*_HOOKS, *_STEP), ("hook",)),
)  # fmt: skip

CATALOGUE: Final[dict[str, Entry]] = {entry.name: entry for entry in _ENTRIES}
