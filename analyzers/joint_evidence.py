"""From a value to a `Measurement` for what is concluded from several runs, or from points measured elsewhere."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import duckdb

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.measurement import Interval, Measurement, Provenance
from rankscope.schema.version import ONTOLOGY_VERSION

from .own_version import own_version


@dataclass(frozen=True, slots=True)
class JointEvidence:
    """What the measurements of one conclusion have in common. digests: of the runs or files it is drawn from."""

    analyzer: str
    digests: tuple[str, ...]
    num_rows: int
    coverage: float | None = None
    caveats: tuple[str, ...] = ()

    def measurement(
        self, name: str, value: float | None, scope: dict[str, object], n: int, *, interval: Interval | None = None,
        reason: str = "", caveats: tuple[str, ...] = (),
    ) -> Measurement:  # fmt: skip
        """The measurement `name`. A value of None needs a reason. Raises KeyError if the catalogue does not know it."""
        if value is None and not reason:
            raise ValueError(f"{name}: none without a reason")
        entry = CATALOGUE[name]
        provenance = Provenance(
            self.analyzer, entry.definition, f"rankscope.analyzers.{self.analyzer}", ("step", "sample_batch"),
            joint_digest(self.digests), len(self.digests), self.num_rows, window="counted steps",
            left_out="the first step of each incarnation", coverage=self.coverage, caveats=(*self.caveats, *caveats),
            rankscope_version=own_version(), ontology_version=ONTOLOGY_VERSION, duckdb_version=str(duckdb.__version__),
        )  # fmt: skip
        return Measurement(name, value, entry.unit, scope, n, provenance, interval, reason)


def joint_digest(digests: Iterable[str]) -> str:
    """Hash of the sorted digests."""
    return hashlib.blake2b("".join(sorted(digests)).encode(), digest_size=16).hexdigest()
