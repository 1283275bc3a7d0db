"""One rank's records become its series: steps, phases, operations, waits, memory, loss.

Counts what `drain` hands out, each record once, as soon as it is complete: rows that nobody waits for stay provisional
for long. Whole arrays at a time; about 0.1 ms a pass and kind. Nothing job-wide: that takes the other nodes' ranks.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rankscope.schema import ring
from rankscope.schema.enums import ENUMS, code
from rankscope.schema.process_state import ProcessState
from rankscope.schema.raw_records import body_dtype
from rankscope.schema.ring_rows import Part

from ..open_operations import OpenOperations
from .seen import BODY, WAIT, Seen
from .series import Attributes, Series

COLLECTIVE, SPAN, STEP, METRIC, MEMORY = (
    ring.layout_of(table).kind for table in ("collective", "span", "step", "metric", "memory")
)
PHASES: Final = ("data", "h2d", "forward", "backward", "optimizer", "checkpoint", "eval")
"""Kinds of spans that are phases of a step."""
MODEL_PARALLEL: Final = ("tp", "pp", "cp")
"""Dimensions along which ranks see the same samples."""
LOSS: Final = "loss"
_PHASE_CODES: Final = {code("span_kind", name): name for name in PHASES}
Body = npt.NDArray[Any]


class RankRecords:
    """The records of one process, counted into the series of its rank."""

    def __init__(self, state: ProcessState) -> None:
        self.open = OpenOperations()
        self._state, self._seen = state, Seen()

    def digest(self, kind: int, part: Part, is_final: bool, into: Series) -> None:
        """Count one part."""
        if not len(part.records):
            return
        body = part.records.view(body_dtype(kind))
        if kind == COLLECTIVE:
            self._operations(body, part.numbers, is_final, into)
        elif kind == SPAN:
            self._phases(body, part.numbers, into)
        elif kind == STEP:
            self._steps(body, into)
        elif kind == MEMORY:
            self._memory(body, part, into)
        elif kind == METRIC:
            self._loss(body, part, into)

    def group_kind(self, number: int) -> str:
        """Of a group of this process: its mesh dimension, "world", or "other". Bounded, unlike group ids."""
        return group_kind(self._state, number)

    def tells_throughput(self) -> bool:
        """Whether this rank speaks for its data coordinate: it is the first in each model-parallel group it is in."""
        groups = [body for body in self._state.groups.values() if body.get("mesh_dimension") in MODEL_PARALLEL]
        return all(body.get("member_starts") for body in groups)

    def _operations(self, body: Body, numbers: npt.NDArray[np.int64], is_final: bool, into: Series) -> None:
        closed = body["_state"] > ring.ISSUED
        self.open.saw(body, numbers, closed | is_final)
        waits = body["wait_end_ns"].astype(np.int64) - body["wait_begin_ns"].astype(np.int64)
        has_waited = (body["wait_begin_ns"] > 0) & (body["wait_end_ns"] > 0) & (waits >= 0)
        new = self._seen.take(numbers, closed | is_final, BODY)
        waited = self._seen.take(numbers, has_waited & (closed | is_final), WAIT)
        sizes, took = body["bytes_in"].astype(np.int64), body["completed_ns"] - body["issued_ns"]
        has_ended = (body["completed_ns"] > 0) & (took >= 0)
        for chosen, attributes in self._by_kind(body, new | waited):
            whole = chosen & new
            into.add("training.collective.io", attributes, int(sizes[whole & (sizes > 0)].sum()))
            into.observe("training.collective.duration", attributes, took[whole & has_ended])
            stalled = chosen & waited
            if stalled.any():
                into.add("training.collective.wait.time", attributes, int(waits[stalled].sum()))

    def _by_kind(self, body: Body, chosen: npt.NDArray[np.bool_]) -> Iterator[tuple[Any, Attributes]]:
        """The chosen rows by operation and kind of group."""
        keys = body["group_id"].astype(np.int64) * 256 + body["op"]
        for key in np.flatnonzero(np.bincount(keys[chosen])).tolist():
            yield (
                chosen & (keys == key),
                (
                    ("training.collective.operation", operation(key % 256)),
                    ("training.group", self.group_kind(key // 256)),
                ),
            )

    def _phases(self, body: Body, numbers: npt.NDArray[np.int64], into: Series) -> None:
        durations = body["end_ns"].astype(np.int64) - body["start_ns"].astype(np.int64)
        new = self._seen.take(numbers, (body["end_ns"] > 0) & (durations >= 0), BODY)
        for number, name in _PHASE_CODES.items():
            into.observe("training.phase.duration", (("training.phase", name),),
                         durations[new & (body["kind"] == number)])  # fmt: skip

    def _steps(self, body: Body, into: Series) -> None:
        ended = body["end_ns"] > 0
        into.add("training.steps", (), int(ended.sum()))
        durations = body["end_ns"].astype(np.int64) - body["start_ns"].astype(np.int64)
        counted = ended & (body["left_out"] == 0) & (body["step"] > 0) & (durations >= 0)
        into.observe("training.step.duration", (), durations[counted])
        if self.tells_throughput():
            for column in ("samples", "tokens"):
                told = body[column] >= 0
                if told.any():
                    into.add(f"training.{column}", (), int(body[column][told].sum()))

    def _memory(self, body: Body, part: Part, into: Series) -> None:
        last = body[-1]
        into.put("process.memory.usage", (), _known(last["rss_bytes"]))
        device = part.names.names.get(int(last["device_uuid"]))
        if device is None:
            return
        for column, state in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved"),
                              ("peak_allocated_bytes", "peak")):  # fmt: skip
            attributes: Attributes = (("hw.id", device), ("training.memory.state", state))
            into.put("training.device.memory.usage", attributes, _known(last[column]))

    def _loss(self, body: Body, part: Part, into: Series) -> None:
        for number in reversed(range(len(body))):
            if part.names.names.get(int(body["name"][number])) == LOSS:
                into.put("training.loss", (), float(body["value"][number]))
                return


def group_kind(state: ProcessState, number: int) -> str:
    """See `RankRecords.group_kind`."""
    body = state.groups.get(number, {})
    size = state.joins[-1].body.get("world_size") if state.joins else None
    return str(body.get("mesh_dimension") or ("world" if size and body.get("size") == size else "other"))


def operation(number: int) -> str:
    """The name of an operation by its code in the ring."""
    names = ENUMS["op"]
    return names[number - 1] if 0 < number <= len(names) else "other"


def _known(value: Any) -> int | None:
    return int(value) if value >= 0 else None
