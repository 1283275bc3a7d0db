"""The journal: what is written is read, and what a crash cut off is neither a line nor an error."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rankscope.schema.journal import JOURNAL_KINDS, complete_bytes, decode, encode

Line = tuple[str, int, dict[str, Any]]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=3,
)
BODIES = st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda key: key not in ("k", "t")), VALUES, max_size=4)
LINES = st.lists(st.tuples(st.sampled_from(JOURNAL_KINDS), st.integers(0, 2**62), BODIES), max_size=6)


@given(LINES)
def test_what_is_written_is_read(lines: list[Line]) -> None:
    data = b"".join(encode(*line) for line in lines)
    assert [tuple(line) for line in decode(data) if line] == lines


@given(LINES.filter(bool), st.data())
def test_a_cut_leaves_all_earlier_lines(lines: list[Line], data: st.DataObject) -> None:
    whole = [encode(*line) for line in lines]
    cut = data.draw(st.integers(0, len(whole[-1]) - 1))
    text = b"".join(whole[:-1]) + whole[-1][:cut]
    assert [tuple(line) for line in decode(text) if line] == lines[:-1]
    assert complete_bytes(text) == len(b"".join(whole[:-1]))


def test_a_line_that_does_not_parse_is_counted_not_raised() -> None:
    good = encode("note", 1, {"text": "x"})
    found = list(decode(b"{broken\n" + b"[]\n" + b'{"k": "note"}\n' + b"\xff\xfe\n" + good))
    assert [line is None for line in found] == [True, True, True, True, False]


def test_values_that_json_cannot_hold_are_text() -> None:
    (line,) = decode(encode("note", 1, {"text": {1}, "path": object}))
    assert line is not None and line.body["text"] == "{1}"
