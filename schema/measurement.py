"""A number with its evidence (`Measurement`), a conclusion with what it stands on (`Verdict`)."""

from dataclasses import asdict, dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """low <= value <= high at `level` (0.95, say) by `method` (how it was computed)."""

    low: float
    high: float
    level: float
    method: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a number comes from: method, inputs, quality, environment (`2-ontology`, Measurements).

    statement re-derives the value from the run's views (SQL, or the analyzer's dotted name for what is not SQL).
    """

    analyzer: str
    definition: str
    statement: str = ""
    tables: tuple[str, ...] = ()
    dataset_digest: str = ""
    num_files: int = 0
    num_rows: int = 0
    predicate: str = ""
    window: str = ""
    left_out: str = ""
    coverage: float | None = None
    timing_source: str = ""
    clock_error_ns: float | None = None
    caveats: tuple[str, ...] = ()
    rankscope_version: str = ""
    ontology_version: str = ""
    duckdb_version: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number. value None means: no evidence; `reason` says why. An absent hook is never a zero.

    unit and name are those of `schema.catalogue`. scope: what it is about, for example {"rank": 3} or
    {"statistic": "p99"}. n: number of observations.
    """

    name: str
    value: float | int | str | None
    unit: str
    scope: Json
    n: int
    provenance: Provenance
    interval: Interval | None = None
    reason: str = ""

    def as_json(self) -> Json:
        """The form that every `--json` prints."""
        document = asdict(self)
        document["provenance"]["caveats"] = list(self.provenance.caveats)
        if not self.reason:
            del document["reason"]
        return document


@dataclass(frozen=True, slots=True)
class Verdict:
    """A conclusion: kind (enums.VERDICT_KINDS or a failure kind), who, cause, since when, cost, how sure."""

    kind: str
    ranks: tuple[int, ...]
    text: str
    confidence: float
    cause: str = ""
    since_step: int | None = None
    cost_ns: float | None = None
    evidence: tuple[Json, ...] = field(default=())

    def as_json(self) -> Json:
        """The form that every `--json` prints."""
        document = asdict(self)
        document["ranks"], document["evidence"] = list(self.ranks), list(self.evidence)
        return document
