"""Data loaders of every kind in one process: rows of batches and epochs, digests against the indices drawn."""

import warnings
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler
from torch.utils.data.distributed import DistributedSampler

from rankscope.hooks import loader_budget
from rankscope.hooks.base import TIMED_ONE_IN, Guard
from rankscope.hooks.loader_budget import STRIKES, WINDOW
from rankscope.hooks.loader_epochs import ITERABLE, NOT_WHOLE, OVER_BUDGET
from rankscope.schema.sample_indices import MODULUS, decode, digest, digest_of_range, signed


class Numbers(Dataset):
    """0, 1, ..., size - 1."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.tensor(int(index))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(10))


class Words(Dataset):
    words = ("a", "b", "c")

    def __getitem__(self, key):
        return torch.tensor(self.words.index(key))


@pytest.fixture
def seen(recorder, install):
    with ExitStack() as undo:
        install(recorder, undo, "data_loading")
        yield recorder


def epochs(recorder):
    return [body["row"] for kind, body in recorder.lines if kind == "row" and body["table"] == "sample_epoch"]


def batches(recorder):
    return [row.values for row in recorder.of("sample_batch")]


def digest_of(batch):
    return signed(digest(batch.numpy().astype(np.int64)))


@pytest.mark.parametrize("num_workers, persistent, in_order", [(0, False, True), (2, True, True), (2, False, False)])
def test_every_batch_has_the_digest_of_its_samples(seen, num_workers, persistent, in_order):
    kwargs = {"in_order": in_order} if num_workers else {}
    loader = DataLoader(Numbers(23), 4, shuffle=True, num_workers=num_workers, persistent_workers=persistent, **kwargs)
    drawn = [[batch.clone() for batch in loader] for _ in range(2)]
    rows = batches(seen)
    assert [row["digest"] for row in rows] == [digest_of(batch) for epoch in drawn for batch in epoch]
    assert [row["num_samples"] for row in rows] == [len(batch) for epoch in drawn for batch in epoch]
    assert [row["epoch"] for row in rows] == [0] * 6 + [1] * 6
    assert {row["num_workers"] for row in rows} == {num_workers}
    assert all((row["queue_depth"] >= 0) == (num_workers > 0) and row["wait_ns"] > 0 for row in rows)
    whole = signed(digest_of_range(23))
    for number, row in enumerate(epochs(seen)):
        assert (row["epoch"], row["digest"], row["num_samples"], row["num_batches"]) == (number, whole, 23, 6)
        assert (row["dataset_size"], row["is_complete"], row["is_persistent"]) == (23, True, persistent)
        assert (row["num_padded"], row["why"], row["sampler"]) == (0, None, "RandomSampler")


@pytest.mark.parametrize("size, drop_last", [(103, False), (103, True), (100, False), (3, False)])
def test_the_digests_of_all_replicas_add_up_to_the_data_set_and_its_padding(seen, size, drop_last):
    data = Numbers(size)
    drawn = []
    for replica in range(4):
        sampler: DistributedSampler[int] = DistributedSampler(data, num_replicas=4, rank=replica, drop_last=drop_last)
        drawn += [index for batch in DataLoader(data, 5, sampler=sampler) for index in batch.tolist()]
    found = epochs(seen)
    padded, padding = sum(row["num_padded"] for row in found), sum(row["padding_digest"] for row in found)
    assert padded == (0 if drop_last else -size % 4)
    total = sum(row["digest"] for row in found) % MODULUS
    assert total == digest(np.array(drawn, np.int64))
    if not drop_last:
        assert total == (digest_of_range(size) + padding) % MODULUS
    assert [(row["num_replicas"], row["replica"]) for row in found] == [(4, replica) for replica in range(4)]
    assert [row["is_shuffled"] for row in found] == [True] * 4


def test_a_warning_of_torch_meets_the_filters_of_the_user(seen):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module=r"torch\.utils\.data")
        list(DataLoader(Numbers(8), 4, pin_memory=True))
    assert given == []
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        list(DataLoader(Numbers(8), 4, pin_memory=True))
    assert all("rankscope" not in item.filename for item in given)


def test_iterable_data_sets_have_no_digest_and_say_why(seen):
    assert len(list(DataLoader(Stream(), 4))) == 3
    assert [(row["digest"], row["num_samples"]) for row in batches(seen)] == [(0, -1)] * 3
    (row,) = epochs(seen)
    assert row["why"] == ITERABLE and row["num_batches"] == 3 and row["is_complete"]
    assert row.keys().isdisjoint({"digest", "num_samples", "indices"})


def test_keys_that_are_no_numbers_say_so(seen):
    assert len(list(DataLoader(Words(), 2, sampler=Words.words))) == 2
    assert [(row["digest"], row["num_samples"]) for row in batches(seen)] == [(0, 2), (0, 1)]
    (row,) = epochs(seen)
    assert row["why"] == NOT_WHOLE and row["num_samples"] == 3 and "digest" not in row


class Backwards(Sampler):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return iter(torch.arange(self.size).flip(0))

    def __len__(self):
        return self.size


@pytest.mark.parametrize(
    "make",
    [
        lambda data: DataLoader(data, 4, sampler=Backwards(len(data))),
        lambda data: DataLoader(data, batch_sampler=[[0, 1, 2], [3, 4, 5, 6], list(range(7, 10))]),
        lambda data: DataLoader(data, batch_size=None),
        lambda data: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 3, drop_last=False)),
    ],
    ids=["tensors as indices", "list of batches", "no batches", "batch sampler"],
)
def test_custom_samplers(seen, make):
    list(make(Numbers(10)))
    (row,) = epochs(seen)
    assert row["digest"] == signed(digest_of_range(10)) and row["num_samples"] == 10 and row["is_complete"]


def test_several_loaders_are_told_apart_and_remade_ones_go_on(seen):
    data = Numbers(8)
    for _ in range(2):
        for _ in zip(DataLoader(data, 4), DataLoader(Numbers(4), 2), strict=True):
            pass
    list(DataLoader(data, 2))
    told = [(row["loader"], row["epoch"], row["num_batches"]) for row in epochs(seen)]
    assert ("Numbers", 0, 2) in told and ("Numbers", 1, 2) in told and ("Numbers#3", 0, 4) in told
    assert len(set(told)) == len(told) == 5


def test_a_loader_that_is_left_early_is_told_as_incomplete(recorder, install):
    with ExitStack() as undo:
        install(recorder, undo, "data_loading")
        for _ in DataLoader(Numbers(10), 3):
            break
        assert epochs(recorder) == []
        left = iter(DataLoader(Numbers(10), 3))
        next(left)
        assert [(row["is_complete"], row["num_samples"]) for row in epochs(recorder)] == [(False, 3)]
    assert [(row["is_complete"], row["num_batches"]) for row in epochs(recorder)] == [(False, 1), (False, 1)]


@pytest.mark.parametrize("has_roaring", [True, False])
def test_indices_are_kept_on_request(recorder, install, monkeypatch, has_roaring):
    monkeypatch.setenv("RANKSCOPE_INDICES", "1")
    if not has_roaring:
        monkeypatch.setattr("rankscope.schema.sample_indices.find_spec", lambda name: None)
    with ExitStack() as undo:
        install(recorder, undo, "data_loading")
        drawn = torch.cat(list(DataLoader(Numbers(1000), 7, sampler=[*range(0, 1000, 3), 0])))
    (row,) = epochs(recorder)
    assert row["indices_format"] == ("roaring" if has_roaring else "bitmap+zlib")
    assert decode(row["indices_format"], row["indices"]).tolist() == sorted(set(drawn.tolist()))
    assert row["num_samples"] == len(drawn) == 335


class Free(Dataset):
    """Samples that cost next to nothing: observing every batch of them costs more than the budget."""

    def __len__(self):
        return 10_000_000

    def __getitem__(self, index):
        return index


def pass_over(num_batches, batch_size=4):
    """Read so many batches without collating; how many there were."""
    order = list(range(num_batches * batch_size))
    return sum(1 for _ in DataLoader(Free(), batch_size, sampler=order, collate_fn=len))


def test_over_the_budget_one_batch_in_n_is_observed_and_the_epoch_says_so(seen):
    num = 6 * WINDOW
    assert pass_over(num) == num
    rows, (row,) = batches(seen), epochs(seen)
    assert STRIKES * WINDOW <= len(rows) < num / 2
    assert (row["num_batches"], row["why"], row["is_complete"]) == (num, OVER_BUDGET, True)
    assert "digest" not in row and "num_samples" not in row
    said = [body["why"] for kind, body in seen.lines if kind == "hook"]
    assert len(said) == 1 and "one batch in" in said[0]
    short = 40
    assert pass_over(short) == short, "the next epoch begins with all of them"
    assert len(batches(seen)) == len(rows) + short
    assert epochs(seen)[1]["num_batches"] == short and "digest" in epochs(seen)[1]


def test_without_a_budget_every_batch_is_observed(recorder, install, monkeypatch):
    monkeypatch.setenv("RANKSCOPE_COST_BUDGET", "0")
    with ExitStack() as undo:
        install(recorder, undo, "data_loading")
        pass_over(4 * WINDOW)
    assert len(batches(recorder)) == 4 * WINDOW
    assert "digest" in epochs(recorder)[0]


@pytest.mark.parametrize("cost_ns, mask", [(90_000, 0), (400_000, 31)])
def test_the_budget_is_a_share_of_the_time_between_batches(recorder, monkeypatch, cost_ns, mask):
    clock = [0]
    monkeypatch.setattr(loader_budget, "now_ns", lambda: clock[0])
    budget = loader_budget.LoaderBudget(Guard(recorder, "data_loading"))
    budget.begin()
    for _ in range(STRIKES * WINDOW // TIMED_ONE_IN):
        clock[0] += TIMED_ONE_IN * 10_000_000  # 10 ms a batch, of which 1 % are 100 us
        budget.spent(cost_ns)
    assert budget.mask == mask, "the rows that are left take a quarter of the budget"
