"""Names of groups: run-length coding, digests, mesh dimensions."""

from hypothesis import given
from hypothesis import strategies as st

from rankscope.hooks.group_identity import dimension_of_label, encode_runs, group_digest, mesh_dimension_of


def test_runs_by_hand():
    assert encode_runs([]) == ()
    assert encode_runs([3]) == ((3, 1, 1),)
    assert encode_runs([0, 2, 4, 7]) == ((0, 2, 3), (7, 1, 1))
    assert encode_runs(range(16_384)) == ((0, 1, 16_384),)
    assert encode_runs([1, 0]) == ((1, -1, 2),)


@given(st.lists(st.integers(0, 100), unique=True))
def test_runs_are_the_members_in_their_order(members):
    assert [run.start + i * run.stride for run in encode_runs(members) for i in range(run.num)] == members


def test_digests_tell_members_backend_and_ordinal_apart():
    keys = [((0, 1), "gloo", 0), ((0, 1), "gloo", 1), ((0, 1), "nccl", 0), ((1, 0), "gloo", 0), ((0, 11), "gloo", 0)]
    digests = {group_digest(*key) for key in keys}
    assert len(digests) == len(keys) and all(len(digest) == 16 for digest in digests)


def test_dimensions():
    names = ["dp", "dp_shard", "dp_replicate", "fsdp", "tp", "pp", "cp", "ep", "dp_cp", "weird"]
    assert [mesh_dimension_of(name) for name in names] == [
        "dp",
        "dp",
        "dp",
        "dp",
        "tp",
        "pp",
        "cp",
        "ep",
        "dp",
        "other",
    ]
    assert dimension_of_label("default_pg") == ("world", "default group")
    assert dimension_of_label("mesh_tp") == ("tp", "device mesh")
    assert dimension_of_label("undefined") == dimension_of_label("mesh_default") == (None, None)
