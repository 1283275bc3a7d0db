"""One answer of `rankscope doctor`: whether something would be captured here, why not, and how to mend it."""

from dataclasses import dataclass
from typing import Final

FINE, LIMITED, MISSING, NOTE = "fine", "limited", "missing", "note"
STATES: Final = (FINE, LIMITED, MISSING, NOTE)
"""fine: captured. limited: in part. missing: not at all. note: can be captured nowhere, or is only good to know."""


@dataclass(frozen=True, slots=True)
class Check:
    """name: what was looked at. finding: what holds here. fix: how to mend it; "" where nothing is to be mended."""

    name: str
    state: str
    finding: str
    fix: str = ""
