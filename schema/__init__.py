"""Ontology: tables, columns, units, enumerations, versions; ring and journal formats; paths; measurements; errors."""
