"""Buckets over arrays: the same as the macro's, at every edge."""

import duckdb
import numpy as np
import pyarrow as pa

from rankscope.analyzers.bucket_counts import BucketCounts, log_buckets
from rankscope.analyzers.buckets import BUCKET_MACRO, representative
from rankscope.analyzers.columns import Columns


def test_every_value_has_the_bucket_that_the_macro_gives() -> None:
    edges = [round(representative(bucket) * share) for bucket in range(2180) for share in (0.99, 1.0, 1.01)]
    near = [value + delta for value in edges for delta in (-1, 0, 1) if 0 <= value + delta < 2**63]
    values = np.array([*range(2000), *near, 2**63 - 1], np.int64)
    connection = duckdb.connect()
    connection.execute(BUCKET_MACRO)
    connection.register("given", pa.table({"value": values}))
    expected = connection.sql("SELECT log_bucket(value) AS bucket FROM given").fetchnumpy()["bucket"]
    assert np.array_equal(log_buckets(values), expected)


def test_values_are_counted_by_group_and_operation() -> None:
    rows = Columns(0, {}, {}, {"group_id": ["g", "h"], "op": ["send"]})
    codes = (np.array([0, 0, 1, -1, -1]), np.array([0, 0, 0, 0, -1]))
    counts, values = BucketCounts(rows), np.array([0, 0, 5, 5, 5], np.int64)
    for low, high in ((0, 2), (2, 2), (2, 4), (4, 5)):
        counts.add(codes[0][low:high], codes[1][low:high], values[low:high])
    found = counts.table().to_pylist()
    five = int(log_buckets(np.array([5], np.int64))[0])
    assert sorted(map(str, found)) == sorted(
        str({"group_id": group, "op": op, "bucket": bucket, "num_operations": number})
        for group, op, bucket, number in (
            ("g", "send", -1, 2),
            ("h", "send", five, 1),
            (None, "send", five, 1),
            (None, None, five, 1),
        )
    )


def test_nothing_has_no_bucket() -> None:
    rows = Columns(0, {}, {}, {"group_id": [], "op": []})
    assert BucketCounts(rows).table().num_rows == 0
