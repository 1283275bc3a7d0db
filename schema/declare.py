"""How a table is declared: one `Column` says name, type, unit, meaning, and where in a ring record it lies.

Nothing else in the code spells a column's type or unit: the Arrow schema, the ring layout, the empty view of a missing
table and the documentation are all derived from these declarations.
"""

from typing import Final, Literal, NamedTuple

ColumnType = Literal[
    "int64", "int32", "int16", "uint64", "float64", "bool", "string", "enum", "list<int64>", "list<float64>", "json"
]
Encoding = Literal[
    "value", "minus_one_null", "zero_null", "nan_null", "enum", "intern", "group", "offset_100ns", "bool"
]
Moment = Literal["open", "close", "late"]
TableClass = Literal["entity", "fact", "reading", "conclusion"]


class Ring(NamedTuple):
    """A column's place in a ring record.

    format: one struct character. encoding: how null, enumerations, interned strings and small offsets are stored.
    moment: written when the record is opened, when it is closed, or late (device times, found by a later poll).
    """

    format: Literal["q", "Q", "d", "I", "i", "H", "h", "B"]
    encoding: Encoding = "value"
    moment: Moment = "open"


class Column(NamedTuple):
    """One column. unit: "ns", "bytes", "1" (a ratio), "celsius", "" for none. otel: OpenTelemetry name,
    if one exists."""

    name: str
    type: ColumnType
    doc: str
    unit: str = ""
    enum: str = ""
    otel: str = ""
    ring: Ring | None = None
    nullable: bool = True


class Table(NamedTuple):
    """One table. ring_kind: the number of its ring records (0: it has none). sort: the order inside a sealed file.

    key: the columns that identify a row; of several rows with one key the last written counts (facts), or the last
    value that is not null of each column (entities, which become known bit by bit). Empty: every row counts.
    """

    name: str
    table_class: TableClass
    row: str
    columns: tuple[Column, ...]
    ring_kind: int = 0
    sort: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in declared order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """The column called `name`. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name}")


PROCESS_KEY: Final = (
    Column("proc", "int64", "process, 63-bit hash of boot id, pid namespace, pid and start time", nullable=False),
    Column("rank", "int32", "global rank of the process when the row was made"),
    Column("record", "int64", "ring sequence number of the row, unique in its process"),
)
"""The first columns of every fact of a process."""


def enum(
    name: str, vocabulary: str, doc: str, *, ring: bool = False, otel: str = "", moment: Moment = "open"
) -> Column:
    """A column whose values come from one of `schema.enums.ENUMS`."""
    return Column(name, "enum", doc, enum=vocabulary, otel=otel, ring=Ring("B", "enum", moment) if ring else None)


def time(name: str, doc: str, *, moment: Moment = "open", ring: bool = True) -> Column:
    """A CLOCK_MONOTONIC time in nanoseconds; null where it did not happen or nobody could tell."""
    return Column(name, "int64", doc, unit="ns", ring=Ring("q", "zero_null", moment) if ring else None)


def device_time(name: str, doc: str) -> Column:
    """A device time on the host clock; a ring stores it as an offset from the row's start in units of 100 ns."""
    return Column(name, "int64", doc, unit="ns", ring=Ring("I", "offset_100ns", "late"))


def count(name: str, doc: str, *, ring: bool = False, unit: str = "", otel: str = "") -> Column:
    """An int64 counter or size; in a ring -1 stands for null."""
    return Column(name, "int64", doc, unit=unit, otel=otel, ring=Ring("q", "minus_one_null") if ring else None)


def small(name: str, doc: str, size: Literal["i", "h"] = "i") -> Column:
    """A small integer that a ring stores in 4 ("i") or 2 ("h") bytes; -1 stands for null."""
    return Column(name, "int32", doc, ring=Ring(size, "minus_one_null"))
