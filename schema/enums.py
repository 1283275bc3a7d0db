"""The closed vocabularies of the ontology, append-only: a ring stores the position (1-based; 0 is null)."""

from typing import Final

OPS: Final = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "broadcast", "reduce", "gather", "scatter", "barrier", "send", "recv",
"all_reduce_coalesced",
    "all_gather_coalesced", "all_gather_into_tensor_coalesced", "reduce_scatter_coalesced",
    "reduce_scatter_tensor_coalesced", "broadcast_coalesced", "coalesced", "all_reduce_sparse", "other",
    "monitored_barrier", "gather_into_tensor",
)  # fmt: skip
DTYPES: Final = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64",
    "complex128", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "mixed", "other",
)  # fmt: skip
REDUCE_OPS: Final = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum", "other")
TIERS: Final = ("native", "class", "dispatcher", "functional", "imported")
TIMING_SOURCES: Final = ("wait", "poll", "device_event", "flight_recorder", "trace", "none")
STATES: Final = ("issued", "completed", "failed")
PHASES: Final = ("data", "h2d", "forward", "backward", "optimizer", "checkpoint", "eval", "other")
ROLES: Final = ("gradients", "parameters", "activations", "embedding", "experts", "object", "other")
SPAN_KINDS: Final = (
    "data", "h2d", "forward", "backward", "optimizer", "checkpoint", "eval", "compile", "gc", "microbatch_forward",
    "microbatch_input_gradient", "microbatch_weight_gradient", "user",
)  # fmt: skip
BOUNDARIES: Final = ("explicit", "framework", "optimizer", "none")
LEFT_OUT: Final = ("warmup", "checkpoint", "eval", "shadow")
KERNEL_CLASSES: Final = ("compute", "communication", "copy", "other")
NIC_KINDS: Final = ("ethernet", "infiniband", "roce")
MOUNT_KINDS: Final = ("nfs", "lustre", "local")
CHECKPOINT_ACTIONS: Final = ("save", "load")
CHECKPOINT_MODES: Final = ("sync", "async")
OUTCOMES: Final = ("ok", "failed", "unfinished")
ARTIFACT_KINDS: Final = (
    "dataset", "tokenizer", "code", "dependency", "seed", "config", "compiler", "kernel", "checkpoint", "container",
    "topology", "objective",
)  # fmt: skip
SEVERITIES: Final = ("info", "warning", "critical")
CAUSES: Final = (
    "data", "gc", "cpu_contention", "page_faults", "throttle", "compute", "checkpoint", "network", "unknown",
    "compile",
)  # fmt: skip
VERDICT_KINDS: Final = (
    "straggler", "straggler_set", "stage", "imbalance", "slow_link", "hang", "mismatch", "dead_rank", "nothing",
)  # fmt: skip
MESH_DIMENSIONS: Final = ("dp", "tp", "pp", "cp", "ep", "world", "other")

ENUMS: Final[dict[str, tuple[str, ...]]] = {
    "op": OPS, "dtype": DTYPES, "reduce_op": REDUCE_OPS, "tier": TIERS, "timing_source": TIMING_SOURCES,
    "state": STATES, "phase": PHASES, "role": ROLES, "span_kind": SPAN_KINDS, "boundary": BOUNDARIES,
    "left_out": LEFT_OUT, "kernel_class": KERNEL_CLASSES, "nic_kind": NIC_KINDS, "mount_kind": MOUNT_KINDS,
    "checkpoint_action": CHECKPOINT_ACTIONS, "checkpoint_mode": CHECKPOINT_MODES, "outcome": OUTCOMES,
    "artifact_kind": ARTIFACT_KINDS, "severity": SEVERITIES, "cause": CAUSES, "verdict_kind": VERDICT_KINDS,
    "mesh_dimension": MESH_DIMENSIONS,
}  # fmt: skip


def code(enum: str, value: str | None) -> int:
    """The number a ring stores for `value` (0 for None). Raises ValueError for a value outside the vocabulary."""
    return 0 if value is None else ENUMS[enum].index(value) + 1
