"""Orders of rows: by counting where keys lie close, by comparing where not; the same order."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from rankscope.analyzers.columns import NULL, coded_text, difference, stable_order

KEYS = st.one_of(
    st.lists(st.integers(0, 5)), st.lists(st.integers(-(1 << 20), 1 << 20)),
    st.lists(st.integers(1 << 40, (1 << 40) + 9)),
    st.lists(st.integers(-(1 << 62), 1 << 62)),
)  # fmt: skip


@given(KEYS)
def test_equal_keys_stay_as_they_stand(keys: list[int]) -> None:
    key = np.array(keys, np.int64)
    assert np.array_equal(stable_order(key), np.argsort(key, kind="stable"))


def test_a_difference_is_not_known_where_one_end_is_not() -> None:
    begins, ends = np.array([1, NULL, 3, NULL]), np.array([5, 5, NULL, NULL])
    assert difference(begins, ends).tolist() == [4, NULL, NULL, NULL]


def test_a_column_without_a_text_has_a_dictionary() -> None:
    found = coded_text(np.array([-1, -1]), [])
    assert found.to_pylist() == [None, None] and len(found.dictionary) == 1
