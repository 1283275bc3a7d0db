"""Scaling series with known truth: four textbook curves, whose largest size is held out, with noise that remembers."""

import math
from collections.abc import Callable

import numpy as np

SIZES = tuple(8 * 2**k for k in range(5))
FAMILIES = ("amdahl", "usl", "alpha-beta", "bend at a node")
NUM_STEPS = 200


def step_times(
    seed: int, mean: float = 1.0, spread: float = 0.05, memory: float = 0.5, num: int = NUM_STEPS
) -> np.ndarray:
    """Steps of an autoregressive process around `mean`; spread: standard deviation / mean."""
    random = np.random.default_rng(seed)
    shocks = random.normal(size=num + 100) * spread * math.sqrt(1 - memory**2)
    values = np.zeros(num + 100)
    for step in range(1, len(values)):
        values[step] = memory * values[step - 1] + shocks[step]
    return mean * (1 + values[100:])


def series(seed: int) -> tuple[tuple[tuple[int, float], ...], int]:
    """(size, throughput) by size, and the devices of a node. Efficiency at the largest size is between 25 and 98 %."""
    random = np.random.default_rng(seed)
    node = 8 * 2 ** int(random.integers(0, 4))
    time = _solved(FAMILIES[seed % len(FAMILIES)], random.uniform(0.25, 0.98), node)
    return tuple((size, 1 / step_times(1_000 * seed + size, time(size)).mean()) for size in SIZES), node


def truth(seed: int) -> float:
    """Throughput at the largest size without noise."""
    random = np.random.default_rng(seed)
    node = 8 * 2 ** int(random.integers(0, 4))
    return 1 / _solved(FAMILIES[seed % len(FAMILIES)], random.uniform(0.25, 0.98), node)(SIZES[-1])


def _solved(family: str, efficiency: float, node: int) -> Callable[[int], float]:
    """The curve of the family with this efficiency at the largest size."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        is_too_good = SIZES[0] / (SIZES[-1] * _time(family, middle, node, SIZES[-1])) > efficiency
        low, high = (middle, high) if is_too_good else (low, middle)
    return lambda size: _time(family, low, node, size)


def _time(family: str, loss: float, node: int, size: int) -> float:
    ratio: float = size / SIZES[0]
    if family == "amdahl":
        return float(loss + (1 - loss) / ratio)
    if family == "usl":
        return float((1 + loss / 2 * (ratio - 1) + loss**2 / 2 * ratio * (ratio - 1)) / ratio)
    if family == "alpha-beta":
        return float(1 / ratio + loss * math.log2(ratio))
    return float((1 + loss * max(0.0, math.log2(size / node))) / ratio)
