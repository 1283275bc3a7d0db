"""Peak rates of accelerators by product name: dense matrix products of 16-bit floats, without sparsity, in FLOP/s.

From the vendors' data sheets (NVIDIA: tensor core BF16 / FP16 without sparsity; AMD: matrix BF16). What a device
reaches in practice is lower, and clocks or a power limit may hold it down: a peak that the run declares comes first. A
name is matched by its longest known beginning, so that "NVIDIA H100 PCIe" is not taken for the SXM module.
"""

from typing import Final

PEAKS: Final = {
    "Tesla V100": 125e12, "Tesla T4": 65e12, "NVIDIA A10": 125e12, "NVIDIA A30": 165e12, "NVIDIA A40": 149.7e12,
    "NVIDIA A100": 312e12, "NVIDIA L4": 121e12, "NVIDIA L40": 181e12, "NVIDIA L40S": 362e12,
    "NVIDIA H100 PCIe": 756e12, "NVIDIA H100 NVL": 835e12, "NVIDIA H100": 989.4e12, "NVIDIA H200": 989.4e12,
    "NVIDIA GH200": 989.4e12, "NVIDIA B200": 2.25e15, "NVIDIA GB200": 2.5e15, "NVIDIA GeForce RTX 3090": 71e12,
    "NVIDIA GeForce RTX 4090": 165.2e12, "AMD Instinct MI210": 181e12, "AMD Instinct MI250X": 383e12,
    "AMD Instinct MI300A": 980.6e12, "AMD Instinct MI300X": 1307.4e12, "AMD Instinct MI325X": 1307.4e12,
}  # fmt: skip
"""FLOP/s by the beginning of the product name."""
SIXTEEN_BITS: Final = frozenset(
    {"bf16", "bfloat16", "fp16", "float16", "half", "amp", "bf16-mixed", "16-mixed", "mixed"}
)


def peak_of(name: str) -> float | None:
    """FLOP/s of the device called `name`; None for one that is not listed."""
    known = [
        beginning for beginning in PEAKS if name == beginning or name.startswith((beginning + " ", beginning + "-"))
    ]
    return PEAKS[max(known, key=len)] if known else None
