"""How many values of a part fall into each logarithmic bucket: what the macro log_bucket gives, over numpy arrays.

numpy's logarithm may differ from the C library's, which DuckDB calls, in the last bit; so the bucket that it gives is
compared with the bucket's least whole number. About 30 ns a value.
"""

import math
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from .buckets import GAMMA, ZERO
from .columns import Columns, coded_text
from .intervals import Ints

_WIDTH: Final = math.log(GAMMA)
_LAST: Final = math.ceil(math.log(2**63) / _WIDTH)
"""The bucket of the largest number."""
_NUM: Final = _LAST + 2
"""Buckets, ZERO among them."""


def bucket_counts(rows: Columns, codes: tuple[Ints, Ints], values: Ints) -> pa.Table:
    """(group_id, op, bucket, num_operations) of values of at least 0. codes: of each value's group and operation."""
    (group, op), num_ops = codes, len(rows.texts["op"]) + 1
    key = ((group + 1).astype(np.int64) * num_ops + op + 1) * _NUM + log_buckets(values) - ZERO
    if len(key) and int(key.max()) > max(4 * len(key), 1 << 20):
        found, counts = np.unique(key, return_counts=True)
    else:
        whole = np.bincount(key, minlength=1)
        found = np.flatnonzero(whole)
        counts = whole[found]
    bucket, pair = found % _NUM + ZERO, found // _NUM
    return pa.table({
        "group_id": coded_text(pair // num_ops - 1, rows.texts["group_id"]),
        "op": coded_text(pair % num_ops - 1, rows.texts["op"]),
        "bucket": pa.array(bucket, pa.int32()), "num_operations": pa.array(counts, pa.int64()),
    })  # fmt: skip


def log_buckets(values: Ints) -> Ints:
    """The bucket of each value, of which none is negative."""
    least = _least()
    found = np.minimum(np.ceil(np.log(np.maximum(values, 1)) / _WIDTH).astype(np.int64), _LAST)
    found -= values < least[found]
    found += (values >= least[np.minimum(found + 1, _LAST)]) & (found < _LAST)
    return np.where(values > 0, found, ZERO)


@cache
def _least() -> Ints:
    """The least whole number of each bucket."""
    found = []
    for bucket in range(_LAST + 1):
        about = math.exp((bucket - 1) * _WIDTH)
        low, high = int(about * (1 - 1e-12)) - 1, int(about * (1 + 1e-12)) + 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _bucket(middle) >= bucket else (middle, high)
        found.append(high)
    return np.array(found, np.int64)


def _bucket(value: int) -> int:
    return math.ceil(math.log(value) / _WIDTH) if value > 0 else ZERO
