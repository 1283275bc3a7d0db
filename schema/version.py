"""The ontology's semantic version: stored in every file, checked by every reader.

A reader accepts older minor versions (new columns read as null) and refuses a newer major version by name.
"""

ONTOLOGY_VERSION = "1.1.0"


def readable(version: str) -> bool:
    """True if a file written under `version` can be read by this code (same or older major version)."""
    try:
        return int(version.split(".", 1)[0]) <= int(ONTOLOGY_VERSION.split(".", 1)[0])
    except ValueError:
        return False
