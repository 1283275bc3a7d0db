"""Which records of a process have been counted: a row that may still change is handed out more than once.

Cost: about 10 ns a record; 1 MB a process. Two pending records whose numbers differ by a multiple of SLOTS would take
each other's place: an operation that stays open while 131,072 further records are written.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
SLOTS: Final = 1 << 17
BODY, WAIT = 1, 2
"""What was counted of a record: itself, its wait."""
_FLAGS: Final = 2


class Seen:
    """The last record that was counted in each slot, and what of it."""

    def __init__(self) -> None:
        self._slots = np.zeros(SLOTS, np.int64)

    def take(self, numbers: npt.NDArray[np.int64], wanted: Mask, flag: int) -> Mask:
        """Which of the `wanted` records are counted now for the first time; they are marked."""
        places = numbers % SLOTS
        held = self._slots[places]
        flags = np.where(held >> _FLAGS == numbers + 1, held & 3, 0)
        new: Mask = wanted & (flags & flag == 0)
        self._slots[places[new]] = (numbers[new] + 1 << _FLAGS) | flags[new] | flag
        return new
