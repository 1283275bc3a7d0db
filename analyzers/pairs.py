"""Everything that a report asks of the large tables, so that it can be gathered in one reading."""

from typing import Final

from .brief import PAIRS as BRIEF
from .communication import PAIRS as COMMUNICATION
from .coverage import PAIRS as COVERAGE
from .hang import PAIRS as HANG
from .partials import Pair
from .phases import PAIRS as PHASES
from .time import PAIRS as TIME

PAIRS: Final[tuple[Pair, ...]] = (*COVERAGE, *BRIEF, *COMMUNICATION, *PHASES, *HANG, *TIME)
"""An analyzer over `collective`, `span` or `kernel` adds its own here."""
