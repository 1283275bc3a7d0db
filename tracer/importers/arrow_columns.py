"""Columns of Arrow from numbers and repeated words, by their buffers.

The functions of pyarrow that take numpy's arrays load numpy.ma, and the methods of its arrays pyarrow.compute: together
a tenth of a second, as long as the import of a trace of some megabytes.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.schema.arrow import arrow_schema

Column: TypeAlias = pa.Array


def numbers(values: Any, *, is_any: bool = False) -> Column:
    """Whole numbers of 64 or 32 bits (numpy or `array`). Negative ones are null, unless `is_any` number counts."""
    found = np.ascontiguousarray(np.frombuffer(values, values.typecode) if hasattr(values, "typecode") else values)
    is_there = np.ones(0, np.bool_) if is_any else found >= 0
    type_ = pa.int32() if found.dtype == np.int32 else pa.int64()
    return pa.Array.from_buffers(type_, len(found), [_validity(is_there), pa.py_buffer(found)])


def words(positions: Any, told: list[Any]) -> Column:
    """A dictionary of the words at `positions` in `told`, which may hold a word twice; None is null."""
    known: dict[str, int] = {}
    codes = [-1 if word is None else known.setdefault(word, len(known)) for word in told]
    found = np.array(codes, np.int32)[np.asarray(positions, np.int64)]
    return pa.DictionaryArray.from_arrays(numbers(found), pa.array(list(known), pa.string()))


def table_of(table: str, columns: dict[str, Column], count: int) -> pa.Table:
    """`count` rows of `table`; columns that are not given are null."""
    schema = arrow_schema(table)
    arrays = []
    for item in schema:
        array = columns.get(item.name)
        if array is None:
            array = pa.nulls(count, item.type)
        elif pa.types.is_dictionary(array.type) and not pa.types.is_dictionary(item.type):
            told = array.dictionary.to_pylist()
            array = pa.array([None if code is None else told[code] for code in array.indices.to_pylist()], item.type)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def _validity(is_there: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """The bitmap of what is not null; None where nothing is."""
    return None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
