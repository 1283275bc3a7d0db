"""Which events of a Kineto trace anybody asks for, by their category, in the spellings of all versions."""

from typing import Final

from rankscope.schema.kernel_classes import COPY_CATEGORIES, HOST_CATEGORY, KERNEL_CATEGORIES

DEVICE, LAUNCH, ANNOTATION, OPERATOR, TRACE = 1, 2, 3, 4, 5
"""An activity of a device, the call that launched it, a user's annotation, an operator of the host, the window."""
KINDS: Final = {
    **dict.fromkeys((*sorted(KERNEL_CATEGORIES | COPY_CATEGORIES), "Kernel", "Memcpy", "Memset"), DEVICE),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "Runtime"), LAUNCH),
    "user_annotation": ANNOTATION,
    HOST_CATEGORY: OPERATOR, "Operator": OPERATOR, "Trace": TRACE,
}  # fmt: skip
NOBODYS: Final = (
    "ac2g", "async_cpu_to_gpu", "async_gpu", "collective_comm", "cpu_instant_event", "cuda_profiler_range",
    "cuda_sync", "forward_backward", "fwdbwd", "glow_runtime", "gpu_pm_counter", "gpu_user_annotation",
    "hpu_op", "mtia_runtime", "mtia_ccp_events", "mtia_insight", "overhead", "privateuse1_runtime",
    "privateuse1_driver", "python_function", "sync",
)  # fmt: skip
"""Categories that are passed over (libkineto's ActivityType.cpp). One that is missing here costs time, nothing else."""
WORDS: Final = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
"""Today's names of the categories of 2021."""
