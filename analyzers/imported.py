"""What an import left behind of its files: which were damaged or left out, and why. Runs of live jobs have none."""

import json

from .headline import WARNING, Headline
from .run import Run
from .statements import statement

MAX_FILES = 3
"""Files with something wrong that are named one by one."""


def import_notes(run: Run) -> tuple[tuple[str, str], ...] | None:
    """(file, what was wrong with it) of each file that had something; None where the run is no import."""
    for (text,) in run.rows(statement("manifest", "manifests")):
        try:
            told = json.loads(text or "{}").get("imported")
        except (ValueError, AttributeError):
            continue
        if isinstance(told, dict):
            notes = told.get("notes") or ()
            return tuple((str(item.get("file")), str(item.get("why"))) for item in notes if isinstance(item, dict))
    return None


def import_headlines(notes: tuple[tuple[str, str], ...] | None) -> list[Headline]:
    """A sentence for each of the first files, and one for the rest."""
    if not notes:
        return []
    found = [Headline(WARNING, f"{file}: {why.rstrip('.')}.") for file, why in notes[:MAX_FILES]]
    more = len(notes) - MAX_FILES
    rest = Headline(WARNING, f"{more:,} more file{'' if more == 1 else 's'} had something wrong.", "manifest")
    return [*found, rest] if more > 0 else found
