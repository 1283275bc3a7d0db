"""All tables of the ontology, by name."""

from typing import Final

from .declare import Table
from .entities import ENTITIES
from .facts import FACTS
from .readings import CONCLUSIONS, READINGS

TABLES: Final[dict[str, Table]] = {table.name: table for table in (*ENTITIES, *FACTS, *READINGS, *CONCLUSIONS)}
RING_TABLES: Final[dict[int, Table]] = {table.ring_kind: table for table in FACTS if table.ring_kind}
