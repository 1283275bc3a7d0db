"""Digests of sample indices add up in any order and grouping; what is kept comes back."""

import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.schema import sample_indices
from rankscope.schema.sample_indices import FEW, MODULUS, Digester, decode, digest, digest_of_range, encode, signed

INDICES = st.lists(st.integers(0, 2**40), max_size=50)


def array(values):
    return np.array(values, np.int64)


@given(INDICES, INDICES, st.randoms())
def test_digests_add_up_whatever_the_order(left: list[int], right: list[int], source: random.Random) -> None:
    both = [*left, *right]
    source.shuffle(both)
    assert digest(array(both)) == (digest(array(left)) + digest(array(right))) % MODULUS


@given(st.lists(INDICES, min_size=1, max_size=4))
def test_a_digester_gives_the_digest_of_each_of_its_lists(lists):
    digester = Digester()
    assert [digester(values) for values in lists] == [digest(array(values)) for values in lists]


@pytest.mark.parametrize("size", [1, FEW, FEW + 1, 1000])
@pytest.mark.parametrize("wrong", [0.5, "1", None, 1 << 63])
def test_a_digester_refuses_what_is_no_whole_number_of_64_bits(size, wrong):
    with pytest.raises(struct.error):
        Digester()([*range(size - 1), wrong])


@given(st.integers(0, 300_000))
def test_the_digest_of_a_range_is_that_of_its_indices(size):
    assert digest_of_range(size) == digest(np.arange(size, dtype=np.int64))


def test_the_hash_is_what_files_already_hold():
    assert digest(array([0])) == 0xC1B2082C8C7144B7
    assert -(2**63) <= signed(digest(array([0]))) < 0 and signed(digest(array([0]))) % MODULUS == digest(array([0]))


def test_single_changes_change_the_digest():
    whole = digest_of_range(1000)
    changed = {
        (whole - digest(array([a])) + digest(array([b]))) % MODULUS for a in range(100) for b in range(1000, 1100)
    }
    assert len(changed) == 10_000 and whole not in changed


@pytest.mark.parametrize("has_roaring", [True, False])
@given(values=st.lists(st.integers(0, 100_000), max_size=200))
def test_kept_indices_come_back(has_roaring, values):
    with pytest.MonkeyPatch.context() as patch:
        if not has_roaring:
            patch.setattr(sample_indices, "find_spec", lambda name: None)
        form, text = encode(array(values))
    assert form == ("roaring" if has_roaring else "bitmap+zlib")
    assert decode(form, text).tolist() == sorted(set(values))


def test_what_cannot_be_kept_or_read_says_so(monkeypatch):
    with pytest.raises(ValueError, match="negative"):
        encode(array([-1]))
    with pytest.raises(ValueError, match="unknown format"):
        decode("tar", "")
    with pytest.raises(ValueError):
        decode("bitmap+zlib", "AAAA")
    monkeypatch.setattr(sample_indices, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pyroaring"):
        encode(array([2**40]))
