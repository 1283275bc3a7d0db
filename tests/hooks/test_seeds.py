"""Seeds: which are told, once each, and that seeding does what it did."""

import random
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from rankscope.hooks import seeds
from rankscope.hooks.seeds import CHOSEN_BELOW, MAX_SEEDS


@pytest.fixture
def seeded(recorder, monkeypatch):
    monkeypatch.setattr(torch, "initial_seed", lambda: CHOSEN_BELOW)
    with ExitStack() as undo:
        seeds.install(recorder, undo)
        yield recorder


def _told(recorder):
    return [(row["name"], row.get("version")) for row in _rows(recorder)]


def _rows(recorder):
    return [body["row"] for kind, body in recorder.lines if kind == "row" and body["table"] == "artifact"]


def test_each_seed_is_told_once(seeded):
    for _ in range(2):
        torch.manual_seed(7)
        random.seed(8)
        np.random.seed(9)
    torch.random.manual_seed(np.int64(11))
    assert _told(seeded) == [("torch", "7"), ("random", "8"), ("numpy", "9"), ("torch", "11")]
    assert {row["kind"] for row in _rows(seeded)} == {"seed"}


def test_what_is_no_number_is_told_by_digest_alone(seeded):
    random.seed("hunter2")
    random.seed()
    (row,) = _rows(seeded)
    assert len(row["digest"]) == 64 and "hunter2" not in str(row) and "version" not in row


def test_many_seeds_are_bounded(seeded):
    for number in range(MAX_SEEDS + 5):
        torch.manual_seed(number)
    assert len(_told(seeded)) == MAX_SEEDS


def test_a_seed_set_before_the_attach_is_found(recorder, monkeypatch):
    monkeypatch.setattr(torch, "initial_seed", lambda: 42)
    with ExitStack() as undo:
        seeds.install(recorder, undo)
    assert _told(recorder) == [("torch", "42")] and _rows(recorder)[0]["source"] == "set before the attach"


def test_seeding_does_what_it_did(seeded):
    assert isinstance(torch.manual_seed(5), torch.Generator)
    first = (torch.rand(1), random.seed(5), random.random(), np.random.seed(5), np.random.rand())
    assert isinstance(torch.manual_seed(seed=5), torch.Generator)
    assert first == (torch.rand(1), random.seed(a=5), random.random(), np.random.seed(seed=5), np.random.rand())


def test_a_wrong_seed_is_the_users_error(seeded):
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        torch.manual_seed("nonsense")
    assert _told(seeded) == []
