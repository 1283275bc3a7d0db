"""Which processes of a part have sequence numbers without a row: the others need no closer look.

The definition is `sequences` of `counted.sql`, which sorts; here the rows of each process and group (sends and
receives: of a source, destination and tag) are gathered by counting, and their numbers, which nearly always rise, only
compared: about 50 ns a row.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from .intervals import Ints
from .part import NULL, Columns, Part
from .relations import COLUMNS

_SMALL: Final = 65_536
"""Keys below this are sorted by counting (numpy sorts 16-bit integers so)."""


def offer_gaps(part: Part) -> None:
    """part_gaps(proc), and collective_with_gaps: all rows of these processes."""
    rows = part.columns("collective", COLUMNS["part_gaps"]["collective"])
    imported = rows.texts["tier"].index("imported") if "imported" in rows.texts["tier"] else -2
    chosen = (rows.numbers["seq"] != NULL) & (rows.codes["tier"] != imported)
    found = np.unique(_with_gaps(rows, None if chosen.all() else np.flatnonzero(chosen)))
    part.offer("part_gaps", pa.table({"proc": pa.array(found, pa.int64())}))
    chosen_rows = "SEMI JOIN part_gaps USING (proc)" if len(found) else "WHERE false"
    part.connection.execute(
        f"CREATE OR REPLACE TEMP VIEW collective_with_gaps AS SELECT * FROM collective {chosen_rows}"
    )


def stable_order(key: Ints) -> Ints:
    """Ascending order of small keys, equal ones as they stand."""
    small = key.astype(np.uint16) if len(key) and key.min() >= 0 and key.max() < _SMALL else key
    return np.argsort(small, kind="stable")


def pair_codes(rows: Columns) -> Ints:
    """0 for collectives; for sends and receives a number for each source, destination and tag."""
    src, dst, tag = (rows.numbers[name] for name in ("src", "dst", "tag"))
    is_transfer = np.flatnonzero((src != NULL) | (dst != NULL))
    codes = np.zeros(rows.num_rows, np.int64)
    if len(is_transfer):
        ends = _code(src[is_transfer]) * (len(is_transfer) + 1) + _code(dst[is_transfer])
        codes[is_transfer] = 1 + _code(_code(ends) * (len(is_transfer) + 1) + _code(tag[is_transfer]))
    return codes


def _code(values: Ints) -> Ints:
    found: Ints = pa.array(values).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def _with_gaps(rows: Columns, chosen: Ints | None) -> Ints:
    """The processes, perhaps several times, of rows before which a number is missing. chosen: None for all rows."""
    process, _ = rows.processes()
    pair = pair_codes(rows)
    key = (process * (len(rows.texts["group_id"]) + 1) + rows.codes["group_id"] + 1) * (int(pair.max(initial=0)) + 1)
    key, seq, proc = key + pair, rows.numbers["seq"], rows.numbers["proc"]
    if chosen is not None:
        key, seq, proc = key[chosen], seq[chosen], proc[chosen]
    order = stable_order(key)
    key, seq, proc = key[order], seq[order], proc[order]
    is_same = key[1:] == key[:-1]
    if np.any(is_same & (seq[1:] < seq[:-1])):
        order = np.lexsort((seq, key))
        key, seq, proc = key[order], seq[order], proc[order]
        is_same = key[1:] == key[:-1]
    found: Ints = proc[1:][is_same & (seq[1:] - seq[:-1] > 1)]
    return found
