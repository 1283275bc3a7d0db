"""The contract that every sampler of the registry keeps, on this very machine: declared tables and columns, and for
every null a reason."""

import os
import time
from importlib import import_module
from pathlib import Path

import pytest

from rankscope.hooks.registry import HOOKS, SAMPLERS, SamplerSpec
from rankscope.hooks.sampling import LocalProcess, Surroundings
from rankscope.schema.arrow import rows_to_table
from rankscope.schema.errors import HookUnavailable
from rankscope.schema.tables import TABLES

BY_NAME = {spec.name: spec for spec in SAMPLERS}
EVERYWHERE = ("nic", "host", "processes", "mounts")
"""Samplers that find something on every Linux."""


def test_names_are_unique_among_hooks_and_samplers() -> None:
    names = [spec.name for spec in (*HOOKS, *SAMPLERS)]
    assert len(names) == len(set(names)) and set(EVERYWHERE) <= set(BY_NAME)


@pytest.mark.parametrize("spec", SAMPLERS, ids=lambda spec: spec.name)
def test_rows_fit_and_nulls_have_reasons(spec: SamplerSpec) -> None:
    mine = LocalProcess(proc=5, rank=0, incarnation=0, pid=os.getpid())
    around = Surroundings("here", Path("/sys"), Path("/proc"), lambda: (mine,))
    module, _, function = spec.target.partition(":")
    try:
        sampler = getattr(import_module(f"rankscope.hooks.{module}"), function)(around)
    except HookUnavailable as error:
        assert spec.name not in EVERYWHERE and str(error)  # and then it says why
        return
    rows = 0
    for _ in range(2):
        for table, found in sampler.sample(time.monotonic_ns()).items():
            assert table in spec.tables
            rows += rows_to_table(table, found).num_rows
            for row in found:
                assert set(row) <= set(TABLES[table].names), table
                if TABLES[table].table_class == "reading":
                    missing = {name for name in TABLES[table].names if row.get(name) is None} - {"reason"}
                    assert missing <= set(row["reason"] or {}), (table, missing)
    assert rows > 0 or spec.name == "mounts"  # a machine without a disk has no mount of its own
