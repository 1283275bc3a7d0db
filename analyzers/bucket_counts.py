"""How many values of a part fall into each logarithmic bucket: what the macro log_bucket gives, over numpy arrays.

The least whole number of each bucket is found once, with the C library's logarithm, which DuckDB calls too; then a
value costs a look at a table and one comparison, about 10 ns.
"""

import math
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from .buckets import GAMMA, ZERO
from .columns import Columns, coded_text, lies_close
from .intervals import Ints

_WIDTH: Final = math.log(GAMMA)
_LAST: Final = math.ceil(math.log(2**63) / _WIDTH)
"""The bucket of the largest number."""
_NUM: Final = _LAST + 2
"""Buckets, ZERO among them."""
_REST: Final = 52 - 8
"""Bits of a double behind its sign, its exponent and the first eight of its fraction, which tell 0.4 % apart."""
_EXACT: Final = 1 << 53


def bucket_counts(rows: Columns, codes: tuple[Ints, Ints], values: Ints) -> pa.Table:
    """(group_id, op, bucket, num_operations) of values of at least 0. codes: of each value's group and operation."""
    (group, op), num_ops = codes, len(rows.texts["op"]) + 1
    key = ((group + 1).astype(np.int64) * num_ops + op + 1) * _NUM + log_buckets(values) - ZERO
    if lies_close(key):
        whole = np.bincount(key, minlength=1)
        found = np.flatnonzero(whole)
        counts = whole[found]
    else:
        found, counts = np.unique(key, return_counts=True)
    bucket, pair = found % _NUM + ZERO, found // _NUM
    return pa.table({
        "group_id": coded_text(pair // num_ops - 1, rows.texts["group_id"]),
        "op": coded_text(pair % num_ops - 1, rows.texts["op"]),
        "bucket": pa.array(bucket, pa.int32()), "num_operations": pa.array(counts, pa.int64()),
    })  # fmt: skip


def log_buckets(values: Ints) -> Ints:
    """The bucket of each value, of which none is negative.

    A double's first bits lead to the bucket of the least number that begins with them: the value's own, or the next.
    """
    least, known = _least(), _by_first_bits()
    found: Ints = known[values.astype(np.float64).view(np.int64) >> _REST].astype(np.int64)
    found += (values >= least[np.minimum(found + 1, _LAST)]) & (found < _LAST)
    if len(values) and values.max() > _EXACT:  # not every whole number is a double: it may have been rounded up
        found -= (values > 0) & (values < least[np.maximum(found, 0)])
    return found


@cache
def _by_first_bits() -> "np.ndarray[tuple[int], np.dtype[np.int16]]":
    """The bucket of the least whole number that begins with these bits, all possible ones in order."""
    last = int(np.array([2.0**63]).view(np.int64)[0]) >> _REST
    begins = np.ceil((np.arange(last + 1) << _REST).view(np.float64))
    found = np.searchsorted(_least(), np.minimum(begins, 2.0**63 - 1024).astype(np.int64), side="right") - 1
    return np.where(begins > 0, found, ZERO).astype(np.int16)


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
