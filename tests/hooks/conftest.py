"""A recorder that keeps rows in memory, and the hooks installed on it."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import pytest

from rankscope.hooks.registry import HOOKS
from rankscope.schema import ring
from rankscope.schema.enums import ENUMS
from rankscope.schema.ring import RingLayout


@dataclass
class Row:
    """One record: the values of its columns as stored, and its state."""

    table: str
    values: dict[str, Any]
    state: int


@dataclass
class ListRecorder:
    """Implements `hooks.base.Recorder`; packs every record as the ring does: a value that does not fit fails."""

    is_on: bool = True
    is_shadow: bool = False
    step: int = 0
    global_step: int = -1
    phase: int = 0
    rows: list[Row] = field(default_factory=list)
    lines: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    hooks: dict[str, list[int]] = field(default_factory=dict)
    num_boundaries: int = 0

    def open(self, layout: RingLayout, *values: object) -> int:
        return self._add(layout, ring.ISSUED, values)

    def write(self, layout: RingLayout, *values: object) -> int:
        return self._add(layout, ring.COMPLETED, values)

    def close(self, layout: RingLayout, record: int, state: int, timing: int, *values: int) -> None:
        row = self.rows[record]
        assert row.state == ring.ISSUED, f"record {record} closed twice"
        layout.close_struct.pack(*values)
        row.values |= dict(zip(layout.close_columns, values, strict=True))
        row.state = state

    def poke(self, layout: RingLayout, record: int, column: str, value: int) -> None:
        assert column in layout.fields
        self.rows[record].values[column] = value

    def joined(self, rank: int, world_size: int, store: Any) -> None:
        self.lines.append(("join", {"rank": rank, "world_size": world_size}))

    def left(self) -> None:
        self.lines.append(("left", {}))

    def boundary(self) -> None:
        self.num_boundaries += 1

    def intern(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names) + 1)

    def journal(self, kind: str, **body: object) -> None:
        self.lines.append((kind, body))

    def counters(self, hook: str) -> list[int]:
        return self.hooks.setdefault(hook, [0] * len(ring.COUNTERS))

    def of(self, table: str) -> list[Row]:
        """The rows of one table, in order."""
        return [row for row in self.rows if row.table == table]

    def spans(self) -> list[str]:
        """The spans in order of their begin, as "kind" or "kind:name"."""
        texts = {number: text for text, number in self.names.items()}
        return [
            _value("span_kind", row.values["kind"]) + (f":{texts[row.values['name']]}" if row.values["name"] else "")
            for row in self.of("span")
        ]

    def kinds(self) -> Counter[str]:
        """How many spans of each kind."""
        return Counter(text.split(":")[0] for text in self.spans())

    def _add(self, layout: RingLayout, state: int, values: tuple[object, ...]) -> int:
        layout.open_struct.pack(1, layout.kind, state, 0, 0, *values, 1)
        self.rows.append(Row(layout.table.name, dict(zip(layout.open_columns, values, strict=True)), state))
        return len(self.rows) - 1


def _value(enum: str, number: int) -> str:
    return ENUMS[enum][number - 1]


def install_hooks(recorder: Any, undo: ExitStack, *names: str) -> None:
    """Install hooks by their names in the registry."""
    for spec in HOOKS:
        if spec.name in names:
            module, function = spec.target.split(":")
            getattr(import_module(f"rankscope.hooks.{module}"), function)(recorder, undo)


@pytest.fixture
def recorder() -> ListRecorder:
    return ListRecorder()


@pytest.fixture
def watched(recorder: ListRecorder) -> Iterator[ListRecorder]:
    """The recorder, with the hooks for steps and phases installed."""
    with ExitStack() as undo:
        install_hooks(recorder, undo, "steps", "phases")
        yield recorder


@pytest.fixture
def install() -> Callable[..., None]:
    """`install(recorder, undo, *names)`: install hooks by their names in the registry."""
    return install_hooks
