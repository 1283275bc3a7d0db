"""The operations of one process that are open for longer than two seconds: `drain` hands them out, and later their end.

Cost: nothing while none is open.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class OpenOperation(NamedTuple):
    """One operation. group and op: numbers of the process's records; issued_ns: CLOCK_MONOTONIC.

    can_be_seen: its completion could be learnt, so it is open and not merely unwatched.
    """

    group: int
    op: int
    seq: int
    issued_ns: int
    can_be_seen: bool


class OpenOperations:
    """What is open, by record number."""

    def __init__(self) -> None:
        self.by_record: dict[int, OpenOperation] = {}

    def saw(self, body: npt.NDArray[Any], numbers: npt.NDArray[np.int64], over: npt.NDArray[np.bool_]) -> None:
        """Take note of records of operations. over: they are closed, or nobody will close them any more."""
        if self.by_record:
            for number in numbers[over].tolist():
                self.by_record.pop(number, None)
        for place in np.flatnonzero(~over).tolist():
            row = body[place]
            self.by_record[int(numbers[place])] = OpenOperation(
                int(row["group_id"]), int(row["op"]), int(row["seq"]), int(row["issued_ns"]), not row["_timing"]
            )
