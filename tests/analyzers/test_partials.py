"""Merged partials against the definitions over the whole run: equal to the last bit, however the run is cut."""

import importlib
import pkgutil
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
from any_run import written
from hypothesis import HealthCheck, example, given, settings
from run_builder import proc_of

from rankscope import analyzers
from rankscope.analyzers.clocks import align
from rankscope.analyzers.communication import UNFINISHED, unfinished_rows
from rankscope.analyzers.partials import Pair, Partial, fill, gather_all
from rankscope.analyzers.parts import Task, nodes_of, part_of
from rankscope.analyzers.run import Run

MODULES = [
    importlib.import_module(f"rankscope.analyzers.{item.name}") for item in pkgutil.iter_modules(analyzers.__path__)
]
PAIRS = list({(found.analyzer, found.name): found for module in MODULES for found in vars(module).values()
              if isinstance(found, Pair)}.values())  # fmt: skip
"""Every question in two halves that an analyzer has."""
Cuts = tuple[list[int], list[int]]


def cut(run: Run, partials: tuple[Partial, ...], cuts: Cuts) -> list[Task]:
    """Nodes in groups, each cut by processes."""
    groups: dict[int, list[str]] = {}
    for number, node in enumerate(nodes_of(run, partials)):
        groups.setdefault(cuts[0][number % len(cuts[0])], []).append(node)
    tasks = []
    for nodes in groups.values():
        tasks += [part_of(run, partials, nodes, edges) for edges in pairwise([None, *sorted(set(cuts[1])), None])]
    return tasks


PROCS = st.lists(st.sampled_from([proc_of(rank, n) for rank in range(6) for n in (0, 1)]), max_size=3)


@given(
    st.integers(0, 1 << 30), st.booleans(),
    st.tuples(st.lists(st.integers(0, 2), min_size=3, max_size=3), PROCS),
)  # fmt: skip
@example(112, True, ([0, 0, 0], []))  # a file in which a column is null in every row
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_merged_partials_equal_the_definition(seed: int, is_one_host: bool, cuts: Cuts) -> None:
    with TemporaryDirectory() as folder, Run.open(str(written(Path(folder) / "run", seed, is_one_host))) as run:
        align(run)  # makes aligned_ns
        run.kept.clear()
        run.rows("CREATE OR REPLACE TEMP TABLE _clock_chosen AS SELECT proc, rank % 2 AS host FROM process")
        run.rows("CREATE OR REPLACE TEMP TABLE _clock_group AS SELECT DISTINCT group_id, 3 AS most FROM process_group")
        run.rows("CREATE OR REPLACE TEMP TABLE _replayed_process AS SELECT proc FROM process WHERE rank % 3 > 0")
        run.rows("CREATE OR REPLACE TEMP TABLE _replayed_steps AS SELECT 2 AS stride")
        expected = {(pair.analyzer, pair.name): run.rows(pair.definition) for pair in PAIRS}
        gather_all(run, PAIRS)
        _check(run, expected)
        fill(run, cut(run, tuple(dict.fromkeys(item for pair in PAIRS for item in pair.partials)), cuts))
        _check(run, expected)


def _check(run: Run, expected: dict[Any, list[Any]]) -> None:
    for pair in PAIRS:
        found = unfinished_rows(run) if pair is UNFINISHED else run.rows(pair.merge)
        assert found == expected[pair.analyzer, pair.name], (pair.analyzer, pair.name)
