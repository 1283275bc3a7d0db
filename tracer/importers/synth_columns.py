"""Columns of the ontology's tables from numpy arrays: values that repeat are spread without a loop."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.schema.arrow import arrow_schema


def table(name: str, columns: dict[str, Any], num_rows: int) -> pa.Table:
    """A table of the ontology of columns that are given; the others are null. Enumerations come as dictionaries."""
    schema = arrow_schema(name)
    arrays = [pa.nulls(num_rows, item.type) if item.name not in columns else pa.array(columns[item.name])
              for item in schema]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=schema)


def joined(tables: list[pa.Table]) -> pa.Table:
    """One table of several."""
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def spread(values: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """`values` repeated to `shape`, flattened."""
    return np.broadcast_to(values, shape).ravel()


def known(values: npt.NDArray[np.int32]) -> pa.Array:
    """A column in which what is negative is null."""
    return pa.array(values, pa.int32(), mask=values < 0)


def words(told: list[str | None], shape: tuple[int, ...]) -> pa.Array:
    """A dictionary column that says the words in turn (or one word everywhere); None is null."""
    distinct = list(dict.fromkeys(word for word in told if word is not None))
    positions = np.array([-1 if word is None else distinct.index(word) for word in told], np.int32)
    indices = spread(positions[None, None], shape)
    index_array = pa.array(indices, pa.int32(), mask=indices < 0) if (positions < 0).any() else pa.array(indices)
    return pa.DictionaryArray.from_arrays(index_array, pa.array(distinct, pa.string()))
