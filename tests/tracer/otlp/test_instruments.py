"""The names of metrics: one meaning each, the specification's form, and the same as those that the ontology tells."""

import re

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.tables import TABLES
from rankscope.tracer.otlp.instruments import INSTRUMENTS

NOT_LIVE = {
    "training.collective.exposed.time", "training.collective.bandwidth", "training.model_flops.utilization",
    "process.cpu.utilization",
}  # fmt: skip
"""Told by the analysis only: sampled, job-wide, or derived by the store (process.cpu.time has it)."""


def told() -> set[str]:
    names = {entry.otel for entry in CATALOGUE.values()}
    names |= {column.otel for table in TABLES.values() for column in table.columns}
    return names - {""}


def test_what_the_ontology_calls_by_an_otel_name_is_exported_under_it() -> None:
    assert told() - INSTRUMENTS.keys() == NOT_LIVE


def test_names_and_units_have_the_form_of_the_conventions() -> None:
    for name, instrument in INSTRUMENTS.items():
        assert re.fullmatch(r"(training|hw|system|process)(\.[a-z_]+)+", name)
        assert not name.endswith((".total", ".seconds", ".bytes")) and instrument.doc.endswith(".")
        assert re.fullmatch(r"s|By|By/s|1|W|J|Cel|Hz|\{[a-z_]+\}", instrument.unit)
        assert (instrument.kind == "histogram") == bool(instrument.bounds)
        assert list(instrument.bounds) == sorted(instrument.bounds) and len(instrument.bounds) <= 15
