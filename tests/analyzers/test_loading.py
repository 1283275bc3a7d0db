"""Waits for data and samples per epoch, against answers worked out by hand."""

import numpy as np
import pytest
from run_builder import MS, RunBuilder

from rankscope.analyzers.loading import loading
from rankscope.analyzers.run import Run
from rankscope.schema.sample_indices import digest, encode, signed


def digest_of(values):
    return signed(digest(np.array(values, np.int64)))


def batch(build, rank, end, wait, **more):
    """A batch handed over at `end` after `wait`, in ms."""
    columns = {"step": 0, "epoch": 0, "loader": "Text", "num_samples": 4, "queue_depth": 2, "num_workers": 2}
    build.fact("sample_batch", rank, time_ns=end * MS, wait_ns=int(wait * MS), **(columns | more))


def epoch(build, rank, drawn, *, padded=(), size=10, replicas=2, **more):
    columns = {"step": 9, "epoch": 0, "loader": "Text", "dataset_size": size, "num_samples": len(drawn) + len(padded),
               "num_replicas": replicas, "replica": rank, "num_padded": len(padded), "is_complete": True,
               "digest": digest_of([*drawn, *padded]), "padding_digest": digest_of(padded), "drops_last": False,
               "end_ns": 100 * MS}  # fmt: skip
    build.fact("sample_epoch", rank, **(columns | more))


def kept(drawn, padded=()):
    form, text = encode(np.array([*drawn, *padded], np.int64))
    return {"indices": text, "indices_format": form}


def answer(build):
    build.entities()
    with Run.open(str(build.seal())) as run:
        return loading(run)


@pytest.fixture
def build(tmp_path):
    return RunBuilder(tmp_path / "run")


def test_stall_and_saturation(build):
    for rank in (0, 1):
        for step in range(4):
            build.step(rank, step, 100 * step, 100 * step + 100)
        build.span(rank, 0, "data", 10, 30)
        build.span(rank, 0, "data", 350, 450)  # half of it behind the last step
        batch(build, rank, 30, 20)  # the same wait, told twice
        batch(build, rank, 130, 40 * rank + 0.5, queue_depth=0)
        batch(build, rank, 240, 1)
        batch(build, rank, 240, 30, loader="Other", num_workers=0, queue_depth=None)
    found = answer(build)
    # rank 0: 20 + 0.5 + 30 + 50 of 400 ms; rank 1: 40 more
    assert [(item.scope["rank"], item.value) for item in found.by_rank] == [(1, 140.5 / 400), (0, 100.5 / 400)]
    assert found.stall.value == 241 / 800 and found.saturation.value == 5 / 8
    text, other = found.loaders
    assert (text.name, text.num_batches, text.num_samples, text.num_workers) == ("Text", 6, 24, 2)
    assert text.saturation.value == 3 / 6 and text.mean_depth == 8 / 6 and text.empty_ratio == 2 / 6
    assert text.waits[2] == 40.5 * MS and other.waits[0] == pytest.approx(30 * MS, rel=0.01)
    assert other.mean_depth is None and other.saturation.value == 1.0


def test_nothing_seen_is_none(build):
    build.step(0, 0, 0, 1)
    found = answer(build)
    assert found.stall.value is None and found.saturation.value is None and found.loaders == found.epochs == ()
    assert found.stall.reason and found.saturation.reason


def test_shares_that_add_up(build):
    epoch(build, 0, range(0, 9, 2), size=9)
    epoch(build, 1, range(1, 9, 2), padded=(0,), size=9)
    (line,) = answer(build).epochs
    assert (line.duplicated.value, line.missing.value, line.drawn.num_padded, line.drawn.num_samples) == (0, 0, 1, 10)
    assert not line.drawn.is_wrong


def test_a_sample_drawn_twice_without_and_with_indices(build):
    epoch(build, 0, [0, 1, 2, 3, 4])
    epoch(build, 1, [4, 5, 6, 7, 8])
    epoch(build, 0, [0, 1, 2, 3, 4], epoch=1, **kept([0, 1, 2, 3, 4]))
    epoch(build, 1, [4, 5, 6, 7, 7], epoch=1, **kept([4, 5, 6, 7]))
    without, with_indices = answer(build).epochs
    assert without.duplicated.value is None and "do not add up" in without.duplicated.reason
    assert without.drawn.is_wrong and with_indices.drawn.is_wrong
    assert (with_indices.duplicated.value, with_indices.missing.value) == (2, 2)


@pytest.mark.parametrize(
    "more, why",
    [({"is_complete": False}, "before its end"), ({"digest": None, "why": "iterable"}, "iterable"),
     ({"num_replicas": None}, "does not say"), ({"num_replicas": 3}, "2 of 3 shares"),
     ({"num_padded": None}, "pads"), ({"dataset_size": None}, "size"),
     ({"dataset_size": 12, "drops_last": True}, "dropped"),
     ({"replica": 0, "num_replicas": 1}, "different samples")],
)  # fmt: skip
def test_what_is_not_known_is_none_and_no_accusation(build, more, why):
    epoch(build, 0, range(5), **more)
    epoch(build, 1, range(5, 10), **more)
    (line,) = answer(build).epochs
    assert line.duplicated.value is None and line.missing.value is None
    assert why in line.duplicated.reason and not line.drawn.is_wrong


def test_ranks_that_draw_the_same_share_while_another_is_left_are_told(build):
    for rank in (0, 1):
        epoch(build, rank, range(5), replica=0)
    (line,) = answer(build).epochs
    assert line.drawn.is_wrong and line.duplicated.value is None
    assert line.duplicated.reason == "ranks 0, 1 all drew share 0 of 2; 1 of 2 shares of the data set were seen"


@pytest.mark.parametrize(
    "second, more, is_told",
    [(range(5), {}, True), (range(4, 9), {}, False), (range(5), {"is_shuffled": False}, False),
     (range(5), {"is_complete": False}, False)],
)  # fmt: skip
def test_a_shuffling_sampler_that_draws_the_same_in_every_epoch_is_told(build, second, more, is_told):
    for number, samples in ((0, range(5)), (1, second)):
        for rank in (0, 1):
            shifted = [5 * rank + sample for sample in samples]
            epoch(build, rank, shifted, size=20, **({"epoch": number, "is_shuffled": True} | more))
    assert answer(build).repeated == (("Text",) if is_told else ())


def test_ranks_of_one_share_count_once(build):
    build.world_size = 4
    for rank in range(4):
        half = range(5) if rank < 2 else range(5, 10)
        epoch(build, rank, half, replica=rank // 2)
    (line,) = answer(build).epochs
    assert (line.duplicated.value, line.missing.value, line.drawn.num_samples) == (0, 0, 10)


def test_one_rank_without_shares(tmp_path):
    build = RunBuilder(tmp_path / "run", world_size=1)
    epoch(build, 0, range(10), replicas=None, replica=None)
    (line,) = answer(build).epochs
    assert (line.duplicated.value, line.missing.value) == (0, 0)
