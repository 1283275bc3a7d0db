"""Traces of torch.profiler made from a few numbers, of which every answer is known."""

import json
from pathlib import Path
from typing import Any

BASE_US = 1_700_000_000_000_000
Event = dict[str, Any]


def kernel(at: int, name: str = "gemm", duration: int = 10, **arguments: Any) -> Event:
    """A kernel `at` microseconds after the begin; its launch is one microsecond earlier."""
    told = {"device": 0, "stream": 7, "correlation": at + 1, **arguments}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": BASE_US + at,
        "dur": duration,
        "args": told,
    }


def launch(at: int) -> Event:
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": BASE_US + at - 1,
            "dur": 1, "args": {"correlation": at + 1}}  # fmt: skip


def trace(num: int = 50, rank: int | None = 0, world_size: int = 2, start: int = 0) -> dict[str, Any]:
    """`num` kernels of 10 us, one every 20 us."""
    events = [made(start + 20 * n + 5) for n in range(num) for made in (launch, kernel)]
    document: dict[str, Any] = {"schemaVersion": 1}
    if rank is not None:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world_size}
    return document | {"traceEvents": events}


def write(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps(document, indent=1).encode())
    return path
