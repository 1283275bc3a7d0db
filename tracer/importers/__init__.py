"""Importers of foreign traces: each gives the rows that the hooks would have given, written as an ordinary run.

`FORMATS` is the registry: a format's name on the command line, and "module:function" of its `request.Importer`.
"""

from typing import Final

FORMATS: Final[dict[str, str]] = {
    "kineto": "kineto:import_kineto",
    "flight-recorder": "flight_recorder:import_flight_recorder",
    "pipeline": "pipeline:import_pipeline",
    "what-if": "what_if:import_what_if",
}
