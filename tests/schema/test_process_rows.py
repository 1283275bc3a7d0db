"""Rows that are made of other rows of a journal: loaded checkpoints and seeds are artifacts of the run."""

from rankscope.schema.journal import JournalLine
from rankscope.schema.process_rows import PlacedRow, journal_rows
from rankscope.schema.process_state import ProcessState


def _rows(*bodies: tuple[str, dict[str, object]], rank: int = 3) -> list[PlacedRow]:
    state = ProcessState("7.journal")
    state.feed([JournalLine("process", 1, {"proc": 7, "rank": rank})])
    state.feed(JournalLine("row", 2, {"table": table, "row": row}) for table, row in bodies)
    return journal_rows(state, state.rows)


def test_a_loaded_checkpoint_is_an_artifact_too() -> None:
    load = {"action": "load", "path": "/c/model.pt", "format": "torch", "global_step": 40, "digest": "ab"}
    found = _rows(("checkpoint", load))
    assert [row.table for row in found] == ["checkpoint", "artifact"]
    assert found[0].row["rank"] == 3 and found[0].row["path"] == "/c/model.pt"
    assert found[1].row == {
        "kind": "checkpoint", "name": "/c/model.pt", "version": "step 40", "digest": "ab", "source": "loaded (torch)"
    }  # fmt: skip


def test_a_saved_one_is_none_and_unknowns_stay_unknown() -> None:
    assert [row.table for row in _rows(("checkpoint", {"action": "save", "path": "/c/model.pt"}))] == ["checkpoint"]
    assert [row.table for row in _rows(("checkpoint", {"action": "load", "path": None}))] == ["checkpoint"]
    for outcome in ("unfinished", "failed"):
        load: dict[str, object] = {"action": "load", "path": "/c", "outcome": outcome}
        assert [row.table for row in _rows(("checkpoint", load))] == ["checkpoint"]
    artifact = _rows(("checkpoint", {"action": "load", "path": "/c"}))[1].row
    assert (artifact["version"], artifact["digest"], artifact["source"]) == (None, None, "loaded (unknown format)")


def test_a_seed_says_the_rank_that_used_it() -> None:
    (row,) = _rows(("artifact", {"kind": "seed", "name": "torch", "version": "1", "source": "torch.manual_seed"}))
    assert row.row["source"] == "torch.manual_seed, rank 3" and row.incarnation is None
