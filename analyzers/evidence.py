"""From a value to a `Measurement`: unit and definition from the catalogue, provenance from the run that was read."""

from dataclasses import dataclass, field
from typing import Any

import duckdb

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.measurement import Interval, Measurement, Provenance
from rankscope.schema.version import ONTOLOGY_VERSION

from .own_version import own_version
from .run import Run


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the measurements of one analyzer have in common.

    statement: the SQL that re-derives the values from the run's views. coverage: rows present / expected.
    clock_error_ns: of the values that compare times of several hosts. Equal provenances are one object: there are
    thousands of measurements.
    """

    run: Run
    analyzer: str
    statement: str
    tables: tuple[str, ...]
    coverage: float | None = None
    predicate: str = ""
    window: str = ""
    left_out: str = ""
    timing_source: str = ""
    caveats: tuple[str, ...] = field(default=())
    clock_error_ns: float | None = None
    _known: dict[tuple[str, tuple[str, ...]], Provenance] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def measurement(
        self, name: str, value: float | int | str | None, scope: dict[str, Any], n: int,
        *, interval: Interval | None = None, reason: str = "", caveats: tuple[str, ...] = (),
    ) -> Measurement:  # fmt: skip
        """The measurement `name`. A value of None needs a reason. Raises KeyError if the catalogue does not know it."""
        if value is None and not reason:
            raise ValueError(f"{name}: none without a reason")
        entry = CATALOGUE[name]
        return Measurement(name, value, entry.unit, scope, n, self._provenance(name, caveats), interval, reason)

    def _provenance(self, name: str, caveats: tuple[str, ...]) -> Provenance:
        if (name, caveats) not in self._known:
            self._known[name, caveats] = self._new_provenance(name, caveats)
        return self._known[name, caveats]

    def _new_provenance(self, name: str, caveats: tuple[str, ...]) -> Provenance:
        sizes = [self.run.size(table) for table in self.tables]
        return Provenance(
            analyzer=self.analyzer, definition=CATALOGUE[name].definition, statement=self.statement, tables=self.tables,
            dataset_digest=self.run.digest, num_files=sum(size.num_files for size in sizes),
            num_rows=sum(size.num_rows for size in sizes), predicate=self.predicate, window=self.window,
            left_out=self.left_out, coverage=self.coverage, timing_source=self.timing_source,
            clock_error_ns=self.clock_error_ns, caveats=(*self.caveats, *caveats),
            rankscope_version=own_version(), ontology_version=ONTOLOGY_VERSION, duckdb_version=str(duckdb.__version__),
        )  # fmt: skip
