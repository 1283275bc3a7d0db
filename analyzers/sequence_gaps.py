"""Which processes of a part have sequence numbers without a row: the others need no closer look.

The definition is `sequences` of `counted.sql`, which sorts; here the rows of each process and group (sends and
receives: of a source, destination and tag) are gathered by counting, and their numbers, which nearly always rise, only
compared: about 20 ns a row.
"""

import numpy as np
import pyarrow as pa

from .columns import NULL, Columns, numbered, stable_order
from .intervals import Ints
from .part import Part
from .relations import COLUMNS


def offer_gaps(part: Part) -> None:
    """part_gaps(proc), and collective_with_gaps: all rows of these processes."""
    rows = part.columns("collective", COLUMNS["part_gaps"]["collective"])
    found = np.unique(_with_gaps(rows))
    part.offer("part_gaps", pa.table({"proc": pa.array(found, pa.int64())}))
    if len(found):
        chosen = "SELECT * FROM collective SEMI JOIN part_gaps USING (proc)"
        part.views("collective")
        part.connection.execute(f"CREATE OR REPLACE TEMP VIEW collective_with_gaps AS {chosen}")
    else:
        part.offer_none("collective_with_gaps", "collective")


def _with_gaps(rows: Columns) -> Ints:
    """The processes, perhaps several times, of rows before which a number is missing."""
    pairs = _pair_codes(rows)
    key = rows.lanes if pairs is None else rows.lanes * (int(pairs.max(initial=0)) + 1) + pairs
    order = rows.by_lane if pairs is None else stable_order(key)
    chosen = (rows.numbers["seq"] != NULL) & ~rows.is_any("tier", ("imported",))
    if not chosen.all():
        order = order[chosen[order]]
    key, seq = key.take(order), rows.numbers["seq"].take(order)
    is_same = key[1:] == key[:-1]
    steps = seq[1:] - seq[:-1]
    if np.any(is_same & (steps < 0)):
        again = np.lexsort((seq, key))
        order, key, seq = order[again], key[again], seq[again]
        is_same = key[1:] == key[:-1]
        steps = seq[1:] - seq[:-1]
    found: Ints = rows.numbers["proc"][order[1:][is_same & (steps > 1)]]
    return found


def _pair_codes(rows: Columns) -> Ints | None:
    """0 for collectives; for sends and receives a number for each source, destination and tag. None: there are none."""
    src, dst, tag = (rows.numbers[name] for name in ("src", "dst", "tag"))
    is_transfer = np.flatnonzero((src != NULL) | (dst != NULL))
    if not len(is_transfer):
        return None
    codes = np.zeros(rows.num_rows, np.int64)
    ends = numbered(src[is_transfer]) * (len(is_transfer) + 1) + numbered(dst[is_transfer])
    codes[is_transfer] = 1 + numbered(numbered(ends) * (len(is_transfer) + 1) + numbered(tag[is_transfer]))
    return codes
