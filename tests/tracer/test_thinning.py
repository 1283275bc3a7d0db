"""Over the budget whole steps are left out, the same for every rank, and the capture says so."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from node import make_node

from rankscope.analyzers.coverage import coverage
from rankscope.analyzers.run import Run
from rankscope.tracer.agent import NodeAgent
from rankscope.tracer.thinning import MAX_ONE_IN, Thinning, one_in_of


def rows(*steps: int | None) -> pa.Table:
    return pa.table({"step": pa.array(steps, pa.int64()), "value": list(range(len(steps)))})


@pytest.mark.parametrize(
    ("share", "one_in"),
    [(0, 1), (0.49, 1), (0.5, 2), (0.74, 2), (0.75, 4), (0.999, 512), (1, MAX_ONE_IN), (9, MAX_ONE_IN)],
)
def test_the_rest_of_the_budget_is_halved_each_time(share, one_in):
    assert one_in_of(share) == one_in


def test_steps_that_began_keep_what_was_decided():
    thinning = Thinning(1000)
    assert thinning.thin("collective", 0, rows(0, 1, 2, 3)).num_rows == 4
    thinning.weigh(600)
    late = thinning.thin("collective", 0, rows(3, 4, 5, 6, 7, None, -1))
    assert late.column("step").to_pylist() == [3, 4, 6, None, -1]
    thinning.weigh(800)
    assert thinning.thin("span", 0, rows(5, 6, 7, 8, 9, 10, 12)).column("step").to_pylist() == [6, 8, 12]
    assert thinning.num_dropped == 2 + 4
    thinning.weigh(100)  # sealing made it smaller
    assert thinning.thin("span", 0, rows(11, 13, 15)).column("step").to_pylist() == [13, 15]


def test_another_incarnation_begins_with_what_holds_now():
    thinning = Thinning(1000)
    thinning.weigh(600)
    assert thinning.thin("collective", 1000, rows(0, 1, 2)).column("step").to_pylist() == [0, 2]
    assert thinning.incarnation == 1000


def test_small_tables_and_no_budget_lose_nothing():
    limited, unlimited = Thinning(1000), Thinning(None)
    for thinning in (limited, unlimited):
        thinning.weigh(10_000)
    assert limited.thin("step", 0, rows(1, 2, 3)).num_rows == 3
    assert unlimited.thin("collective", 0, rows(1, 2, 3)).num_rows == 3
    assert unlimited.row(1, 2, is_last=True) is None


def test_it_is_told_once_and_at_the_end():
    thinning = Thinning(1000)
    thinning.thin("collective", 0, rows(0, 1))
    assert thinning.row(1, 2) is None
    thinning.weigh(600)
    told = thinning.row(1, 2)
    assert told is not None and told["why"].endswith("600 of 1,000 bytes used: rows in 1 step of 2 from step 2")
    assert thinning.row(1, 3) is None
    thinning.thin("collective", 0, rows(2, 3))
    last = thinning.row(1, 4, is_last=True)
    assert last is not None and last["num_dropped"] == 1


def test_the_agent_keeps_whole_steps_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, drained one after the other; what the first one left is over half of the budget."""
    monkeypatch.setenv("RANKSCOPE_BUDGET_BYTES", "100K")
    node = make_node(tmp_path, monkeypatch)
    agent = NodeAgent(node.folder)
    for rank in range(2):
        process = node.rank(rank, world_size=2)
        for step in range(100 * rank, 100 * rank + 100):
            for _ in range(3):
                process.close(process.open(step=step))
            process.step(step)
        process.exit()
        process.drop()
        agent._look()
        agent._pass()
    assert agent._leave()
    kept = Counter((row["rank"], row["step"]) for row in node.sealed("collective"))
    assert set(kept.values()) == {3}  # whole steps
    assert {step for rank, step in kept if rank == 0} == set(range(100))
    later = {step for rank, step in kept if rank == 1}
    assert 0 < len(later) <= 50 and len({step % 2 for step in later}) == 1
    assert len(node.sealed("step")) == 200
    told = [row for row in node.sealed("capture") if row["hook"] == "budget"]
    assert max(row["num_dropped"] for row in told) == 3 * (100 - len(later)) and "in 1 step of " in told[0]["why"]
    with Run.open(str(node.run_dir)) as run:
        found = coverage(run)
    assert found.dropped.value == 3 * (100 - len(later))
    assert [hook.why for hook in found.hooks if hook.hook == "budget" and "RANKSCOPE_BUDGET_BYTES" in hook.why]
    node.check_intact()
