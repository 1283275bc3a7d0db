"""What a file system counted since it was mounted, whatever its kind."""

from typing import NamedTuple


class Counts(NamedTuple):
    """None: it does not count that. busy_ns: the time of all operations added up."""

    read_bytes: int | None
    write_bytes: int | None
    num_operations: int | None
    busy_ns: int | None
