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


class BucketCounts:
    """(group_id, op, bucket, num_operations), gathered piece by piece. rows: whose groups and operations are meant."""

    def __init__(self, rows: Columns) -> None:
        self._groups, self._ops = rows.texts["group_id"], rows.texts["op"]
        self._keys, self._counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]

    def add(self, group: Ints, op: Ints, values: Ints) -> None:
        """Count values of at least 0. group, op: the codes of each."""
        if not len(values):
            return
        pair = (group + 1).astype(np.int64) * (len(self._ops) + 1) + op + 1
        if lies_close(pair):
            pairs = np.flatnonzero(np.bincount(pair))
            places = np.zeros(pairs[-1] + 1, np.int64)
            places[pairs] = np.arange(len(pairs)) * _NUM - ZERO
            key = places[pair] + log_buckets(values)
        else:
            pairs, place = np.unique(pair, return_inverse=True)
            key = place.reshape(-1) * _NUM - ZERO + log_buckets(values)
        counts = np.bincount(key)
        found = np.flatnonzero(counts)
        self._keys.append(pairs[found // _NUM] * _NUM + found % _NUM)
        self._counts.append(counts[found])

    def table(self) -> pa.Table:
        """What was counted."""
        key, place = np.unique(np.concatenate(self._keys), return_inverse=True)
        counts = np.zeros(len(key), np.int64)
        np.add.at(counts, place.reshape(-1), np.concatenate(self._counts))
        bucket, pair = key % _NUM + ZERO, key // _NUM
        num_ops = len(self._ops) + 1
        return pa.table({
            "group_id": coded_text(pair // num_ops - 1, self._groups),
            "op": coded_text(pair % num_ops - 1, self._ops),
            "bucket": pa.array(bucket, pa.int32()), "num_operations": pa.array(counts, pa.int64()),
        })  # fmt: skip


def log_buckets(values: Ints) -> Ints:
    """The bucket of each value, of which none is negative.

    A double's first bits lead to the bucket of the least number that begins with them: the value's own, or the next.
    """
    known, ends = _by_first_bits(), _ends()
    found: Ints = known[values.astype(np.float64).view(np.int64) >> _REST].astype(np.int64)
    found += values >= ends[found]
    if len(values) and values.max() > _EXACT:  # not every whole number is a double: it may have been rounded up
        found = np.minimum(found, _LAST)
        found -= (values > 0) & (values < _least()[np.maximum(found, 0)])
    return found


@cache
def _ends() -> Ints:
    """The least whole number after each bucket; at the end, found as number -1, after ZERO."""
    least = _least()
    return np.array([*least[1:], np.iinfo(np.int64).max, least[0]])


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
