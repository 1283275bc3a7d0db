"""Quantiles by buckets: within 1 % of the true ones, the same for any order, never above the maximum."""

import math
import random

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from rankscope.analyzers.buckets import BUCKET_MACRO, RELATIVE, ZERO, merged, quantile, representative

CONNECTION = duckdb.connect()
CONNECTION.execute(BUCKET_MACRO)
VALUES = st.lists(st.integers(0, 10**15), min_size=1, max_size=60)


def histogram(values: list[int]) -> list[tuple[int, int]]:
    sql = "SELECT log_bucket(x), count(*) FROM (SELECT unnest(?::BIGINT[]) AS x) GROUP BY 1"
    return CONNECTION.execute(sql, [values]).fetchall()


@given(VALUES, st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_a_quantile_is_within_one_percent(values: list[int], share: float) -> None:
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    found = quantile(histogram(values), share, max(values))
    assert found is not None
    assert abs(found - exact) <= RELATIVE * exact + 1
    assert found <= max(values)


@given(st.lists(st.tuples(st.integers(-1, 2000), st.integers(1, 9)), max_size=20), st.randoms())
def test_order_does_not_matter(pairs: list[tuple[int, int]], order: random.Random) -> None:
    shuffled = pairs[:]
    order.shuffle(shuffled)
    assert quantile(pairs, 0.5) == quantile(shuffled, 0.5)


def test_worked_example() -> None:
    # ln(100) / ln(1.01 / 0.99) = 230.25: bucket 231, represented by 2 g^231 / (g + 1) = 100.49
    assert histogram([100]) == [(231, 1)]
    assert representative(231) == 100
    assert representative(ZERO) == 0 and histogram([0]) == [(ZERO, 1)]


def test_nothing_has_no_quantile() -> None:
    assert quantile([], 0.5) is None and merged([], 5) == []


@given(st.lists(st.tuples(st.integers(-1, 500), st.integers(1, 9)), min_size=1, max_size=20), st.integers(1, 40))
def test_ranges_for_drawing_keep_every_observation(pairs: list[tuple[int, int]], columns: int) -> None:
    bins = merged(pairs, columns)
    assert len(bins) <= columns
    assert sum(count for _, _, count in bins) == sum(count for _, count in pairs)
    assert bins[0][0] == representative(min(bucket for bucket, _ in pairs))
    assert bins[-1][1] == representative(max(bucket for bucket, _ in pairs))
