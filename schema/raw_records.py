"""numpy's view of ring records: their common words, and the columns of each kind. Loads numpy."""

from functools import cache

import numpy as np
import numpy.typing as npt

from . import ring

Records = npt.NDArray[np.void]
Numbers = npt.NDArray[np.int64]


@cache
def words_dtype() -> np.dtype[np.void]:
    """The words that every record has."""
    return np.dtype({
        "names": ["begin", "kind", "state", "timing", "thread", "end"],
        "formats": ["<u4", "u1", "u1", "u1", "u1", "<u4"],
        "offsets": [0, 4, 5, 6, 7, ring.END_OFFSET], "itemsize": ring.RECORD_BYTES,
    })  # fmt: skip


@cache
def body_dtype(kind: int) -> np.dtype[np.void]:
    """The words and the columns of a kind; the words are called _kind, _state, _timing and _thread here."""
    words, places = words_dtype(), ring.layout(kind).fields.values()
    assert words.names is not None and words.fields is not None
    return np.dtype({
        "names": ["begin", "_kind", "_state", "_timing", "_thread", "end", *(place.name for place in places)],
        "formats": [*(words.fields[name][0] for name in words.names), *("<" + place.format for place in places)],
        "offsets": [*(words.fields[name][1] for name in words.names), *(place.offset for place in places)],
        "itemsize": ring.RECORD_BYTES,
    })  # fmt: skip
