"""What was concluded from a run, written beside it: the tables `measurement` and `verdict`, one file each.

The evidence stays as it is, and so does its digest, which leaves these tables out; the files are in an index of their
own, so that `verify` knows them. Saving again replaces what was saved before.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from rankscope.schema import paths
from rankscope.schema.arrow import rows_to_table
from rankscope.schema.errors import NotARun, UnreadableFile
from rankscope.schema.index import IndexEntry
from rankscope.schema.measurement import Measurement, Verdict
from rankscope.schema.process_state import Row

from .index import node_lock, relative, update_index
from .rundir import RunDir
from .segments import write_sealed

SOURCE: Final = "report"
"""Stands where other files of a run tell their node."""


def save(address: str, measurements: Iterable[Measurement], verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Write them into the run directory at `address`; the names of the files in it.

    Raises NotARun (no run directory yet) or UnreadableFile (it cannot be written).
    """
    place = RunDir(address)
    rows = {
        "measurement": [_measurement(item) for item in measurements],
        "verdict": [_verdict(item) for item in verdicts],
    }
    try:
        if place.run_id() is None:
            raise NotARun(f"{address}: nothing was written there yet, so nothing can be saved beside it")
        with node_lock(place):
            entries = [_write(place, table, found) for table, found in rows.items()]
            update_index(place, SOURCE, entries, [])
    except OSError as error:
        raise UnreadableFile(f"{address}: cannot be written: {error.strerror or error}") from error
    return tuple(entry.file for entry in entries)


def _write(place: RunDir, table: str, rows: list[Row]) -> IndexEntry:
    name = relative(paths.entity_file("", table, SOURCE))
    spool = "" if place.is_local else str(paths.local_base() / paths.SPOOL)
    return write_sealed(place, table, name, [rows_to_table(table, rows)], [], spool)


def _measurement(item: Measurement) -> Row:
    """A value that is no number is told in the provenance, as is why there is none."""
    value = item.value if isinstance(item.value, int | float) else None
    told = asdict(item.provenance) | ({"reason": item.reason} if item.reason else {})
    if isinstance(item.value, str):
        told["value"] = item.value
    ends = item.interval
    return {
        "name": item.name, "value": None if value is None else float(value), "unit": item.unit, "scope": item.scope,
        "n": item.n, "interval_low": ends and ends.low, "interval_high": ends and ends.high,
        "interval_level": ends and ends.level, "interval_method": ends and ends.method, "provenance": told,
    }  # fmt: skip


def _verdict(item: Verdict) -> Row:
    return {
        "kind": item.kind, "ranks": list(item.ranks), "cause": item.cause or None, "since_step": item.since_step,
        "cost_ns": item.cost_ns, "confidence": item.confidence, "text": item.text, "evidence": list(item.evidence),
    }  # fmt: skip
