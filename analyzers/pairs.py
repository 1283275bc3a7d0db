"""Everything that a report always asks of the large tables, so that it can be gathered in one reading."""

from typing import Final

from .brief import PAIRS as BRIEF
from .communication import PAIRS as COMMUNICATION
from .coverage import PAIRS as COVERAGE
from .hang import PAIRS as HANG
from .loading import PAIRS as LOADING
from .partials import Pair
from .phases import PAIRS as PHASES
from .pipeline import PAIRS as PIPELINE
from .time import PAIRS as TIME

PAIRS: Final[tuple[Pair, ...]] = (*COVERAGE, *BRIEF, *COMMUNICATION, *PHASES, *HANG, *PIPELINE, *LOADING, *TIME)
"""An analyzer over `collective`, `span` or `kernel` adds its own here. Questions that arise only in some runs (several
hosts, a pipeline, an operation that did not end) are pairs, too: each is gathered by its analyzer."""
