"""Joining: rank 0 names the run, the others learn it without ever waiting, each process group is an incarnation."""

import dataclasses
import threading
import time
from pathlib import Path

import pytest

from rankscope.tracer import joining as module
from rankscope.tracer.identity import identify
from rankscope.tracer.joining import Joining, Run, is_solo, own_run
from rankscope.tracer.settings import Settings

HOME = Path("/somewhere")
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none"}


class Store:
    """A store that never blocks because it cannot: `get` of a missing key fails the test."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.num_checks = 0

    def check(self, keys: list[str]) -> bool:
        self.num_checks += 1
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        return self.values[key]

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()


class Broken(Store):
    def check(self, keys: list[str]) -> bool:
        self.num_checks += 1
        raise RuntimeError("connection reset")


@pytest.fixture(autouse=True)
def first_group(monkeypatch):
    monkeypatch.setattr(module, "_num_joined", 0)
    for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock(monkeypatch):
    now = [1_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    return now


def make(settings: Settings | None = None, num_records: int = 0) -> tuple[Joining, list[dict]]:
    told: list[dict] = []
    made = Joining(
        settings or Settings(),
        identify(),
        HOME,
        lambda kind, **body: told.append({"k": kind, **body}),
        lambda: num_records,
    )
    return made, told


def test_rank_zero_names_the_run_and_publishes_it():
    store = Store()
    joining, told = make(num_records=5)
    joining.joined(0, 4, store)
    assert joining.run == Run(joining.own.run_id, joining.own.run_dir, 0)
    assert told == [{
        "k": "join", "run_id": joining.own.run_id, "run_dir": f"/somewhere/rankscope-runs/{joining.own.run_id}",
        "incarnation": 0, "from_record": 5, "rank": 0, "world_size": 4, "restart_count": 0,
        "token": joining.run.token, "origin": joining.own.run_dir,
    }]  # fmt: skip
    assert len(store.values) == 1


def test_the_others_learn_it_and_are_bound_from_where_they_joined(clock):
    store = Store()
    first, _ = make(Settings(run_id="a"))
    other, told = make(Settings(), num_records=7)
    other.joined(1, 2, store)
    assert told == []
    assert store.num_checks == 0  # what is there already could be an earlier attempt's
    module._num_joined = 0
    first.joined(0, 2, store)
    clock[0] += 10**9
    other.poll()
    assert not other.is_pending and other.run == Run("a", "/somewhere/rankscope-runs/a", 0)
    assert (told[0]["run_id"], told[0]["from_record"], told[0]["rank"]) == ("a", 7, 1)


def test_the_store_is_asked_less_and_less(clock):
    store = Store()
    joining, _ = make()
    joining.joined(1, 2, store)
    for _ in range(100_000):
        clock[0] += 10_000_000  # 1,000 s in all
        joining.poll()
    assert 10 < store.num_checks < 40


def test_a_store_that_fails_is_left_alone(clock):
    store = Broken()
    joining, told = make()
    joining.joined(1, 2, store)
    for _ in range(50):
        clock[0] += 10**11
        joining.poll()
    assert store.num_checks == module.MAX_FAILURES and not joining.is_pending and told == []


def test_an_answer_from_before_a_restart_is_not_believed(clock):
    store = Store()
    long_ago = (identify().started_ns or 0) - 2 * module.STALE_NS
    store.set(module.KEY.format(ordinal=0), f'["a","/d",0,{long_ago}]')
    joining, told = make()
    joining.joined(1, 2, store)
    joining.poll()
    assert told == []
    clock[0] += 10**9
    store.set(module.KEY.format(ordinal=0), f'["a","/d",1000,{time.time_ns()}]')
    joining.poll()
    assert told[0]["incarnation"] == 1000


def test_clocks_that_disagree_do_not_lose_a_rank(clock):
    store = Store()
    store.set(module.KEY.format(ordinal=0), '["a","/d",0,5]')
    joining, told = make()
    joining.joined(1, 2, store)
    joining.poll()
    clock[0] += 2 * module.DOUBT_NS
    joining.poll()
    assert told[0]["run_id"] == "a"


def test_leaving_asks_for_the_last_time(clock):
    store = Store()
    joining, told = make()
    joining.joined(1, 2, store)
    store.set(module.KEY.format(ordinal=0), f'["a","/d",3,{time.time_ns()}]')
    joining.left()
    assert told[0]["incarnation"] == 3 and not joining.is_pending


def test_every_process_group_and_every_restart_is_an_incarnation(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    joining, told = make()
    store = Store()
    joining.joined(0, 2, store)
    joining.left()
    joining.joined(0, 2, store)
    assert [line["incarnation"] for line in told] == [2000, 2001]
    assert len(store.values) == 2


def test_the_users_run_directory_wins_over_the_published_one():
    store = Store()
    store.set(module.KEY.format(ordinal=0), f'["a","/theirs",0,{time.time_ns()}]')
    joining, _ = make(Settings(run_dir="/mine"))
    joining.joined(1, 2, store)
    joining.poll()
    assert joining.run == Run("a", "/mine", 0)


def test_under_torchrun_the_id_outlives_a_restart_but_not_the_launcher():
    first, other = identify(), dataclasses.replace(identify(1), launcher=identify().launcher)
    assert own_run(Settings(), first, TORCHRUN, HOME) == own_run(Settings(), other, TORCHRUN, HOME)
    moved = dataclasses.replace(first, launcher="another boot")
    assert own_run(Settings(), moved, TORCHRUN, HOME) != own_run(Settings(), first, TORCHRUN, HOME)


def test_without_a_launcher_every_process_is_its_own_run():
    assert own_run(Settings(), identify(), {}, HOME) != own_run(Settings(), identify(1), {}, HOME)
    assert own_run(Settings(run_id="x"), identify(), {}, HOME) == ("x", "/somewhere/rankscope-runs/x")


def test_a_process_alone_is_bound_once_and_only_if_alone(monkeypatch):
    joining, told = make()
    joining.bind_alone()
    joining.bind_alone()
    assert [(line["rank"], line["world_size"], line["incarnation"]) for line in told] == [(0, 1, 0)]
    monkeypatch.setenv("WORLD_SIZE", "2")
    joining, told = make()
    joining.bind_alone()
    assert told == []
    assert is_solo({"WORLD_SIZE": "1"}) and not is_solo(TORCHRUN)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/a/train ddp.py", "-x"], "train-ddp"),
        (["-c"], "python"),
        ([""], "python"),
        (["/x/.py"], "py"),
        ([], "python"),
    ],
)
def test_the_run_is_named_after_the_script(monkeypatch, argv, name):
    monkeypatch.setattr("sys.argv", argv)
    assert module.script_name() == name


def test_the_token_of_rank_zero_and_its_folder_are_journalled_by_the_others(clock, monkeypatch):
    store, others = Store(), Settings(run_dir="/mine")
    first, _ = make()
    first.joined(0, 2, store)
    monkeypatch.setattr(module, "_num_joined", 0)  # another process
    told = []
    joining = Joining(others, identify(), Path("/w"), lambda kind, **body: told.append(body), lambda: 0)
    joining.joined(1, 2, store)
    joining.poll()
    assert first.run is not None and len(first.run.token) == 16
    assert (told[0]["token"], told[0]["origin"], told[0]["run_dir"]) == (first.run.token, first.own.run_dir, "/mine")


def test_an_answer_for_a_group_that_is_gone_leaves_the_next_one_alone(clock):
    """The watch's question is under way while the training leaves its group and makes another."""
    joining, told = make()

    class Slow(Store):
        def get(self, key: str) -> bytes:
            joining.joined(1, 4, Store())
            return super().get(key)

    store = Slow()
    store.set(module.KEY.format(ordinal=0), f'["a","/d",0,{time.time_ns()}]')
    joining.joined(1, 2, store)
    joining.poll()
    assert joining.is_pending and told == []
    assert joining.seat == module.Seat(1, 4, None)


def test_a_group_that_comes_while_the_process_is_bound_alone_has_the_last_word(monkeypatch):
    """The watch binds the process alone at the moment in which the training joins: never a mixture of both."""
    joining, told = make()
    seats, asked = [], module.is_solo

    def is_solo_at_last(environment):
        thread = threading.Thread(target=joining.joined, args=(1, 2, Store()))
        thread.start()
        thread.join(0.05)
        seats.append(joining.seat)
        threads.append(thread)
        return asked(environment)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(module, "is_solo", is_solo_at_last)
    joining.bind_alone()
    threads[0].join()
    assert seats == [module.Seat()]
    assert joining.seat == module.Seat(1, 2, None) and joining.is_pending
    assert [line["rank"] for line in told] == [0]


def test_a_forked_child_does_not_wait_for_a_lock_of_its_parent():
    joining, _ = make()
    joining.joined(1, 2, Broken())
    joining._lock.acquire()
    joining.forked()
    joining.left()
    joining.joined(0, 1, Store())
    assert joining.seat.rank == 0 and not joining.is_pending
