"""Where does a number come from, and does it come out again?

A measurement is looked up among the questions that give its name, then derived anew: the same analyzer runs on a fresh
reader of the same files, with another number of threads, and must give the same bits. Beside it the measurement's own
statement is run there: it gives either the value itself (one row fits the scope and one of its cells is the value) or
the rows from which the analyzer, as its docstring says, makes the value. Costs the analyzers concerned, twice.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import Any, Final

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.errors import InputError, NoEvidence
from rankscope.schema.measurement import Measurement

from .coverage import coverage
from .questions import QUESTIONS, Answer, Question
from .rerun import Reruns, StatementResult
from .run import Run

_MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Explained:
    """One measurement, derived twice. question: the analyzer that was asked. formula: what its docstring says.

    again: None where the second derivation did not give it. is_same_dataset: both read the same rows.
    """

    measurement: Measurement
    question: str
    formula: str
    columns: tuple[str, ...]
    again: Measurement | None
    threads: int
    is_same_dataset: bool
    statement: StatementResult

    @property
    def is_equal(self) -> bool:
        """Value, interval, number of observations and reason came out again, to the last bit."""
        return self.again is not None and _bits(self.again) == _bits(self.measurement)


class Explainer:
    """A run and a fresh reader of it, each asked every question at most once. Close it, or use it as a context manager.

    threads: of the fresh reader. Raises what `Run.open` does.
    """

    def __init__(self, run: Run, *, threads: int = 1) -> None:
        self._first, self._threads = _Asked(run), threads
        self._fresh = _Asked(run.again(threads=threads))
        self._reruns = Reruns(self._fresh.run)

    def explain(self, name: str, scope: Mapping[str, str], *, question: str = "") -> tuple[Explained, ...]:
        """Every measurement called `name` whose scope says `scope`, in the order of the analyzers.

        question: only those of that analyzer. Raises InputError (no such name) or NoEvidence (the run gives none).
        """
        found = [(item, told) for item in _questions(name, question) for told in self._first.measured(item, name)]
        chosen = [(item, told) for item, told in found if _fits(told.scope, scope)]
        if not chosen:
            raise NoEvidence(_nothing(self._first.run, name, [told for _, told in found]))
        return tuple(self._explained(item, told) for item, told in chosen)

    def close(self) -> None:
        """Close the fresh reader."""
        self._fresh.run.close()

    def __enter__(self) -> "Explainer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _explained(self, question: Question[Answer], told: Measurement) -> Explained:
        again = (item for item in self._fresh.measured(question, told.name) if item.scope == told.scope)
        return Explained(
            told, question.name, formula(told.provenance.analyzer), CATALOGUE[told.name].inputs, next(again, None),
            self._threads, self._first.run.digest == self._fresh.run.digest, self._reruns.result(told),
        )  # fmt: skip


class _Asked:
    """The answers of one reader, by question."""

    def __init__(self, run: Run) -> None:
        self.run, self._answers = run, dict[str, Answer | None]()

    @cached_property
    def _share(self) -> float | None:
        covered = coverage(self.run).coverage.value
        return None if covered is None else float(covered)

    def measured(self, question: Question[Answer], name: str) -> list[Measurement]:
        """What `question` tells under `name`."""
        if question.name not in self._answers:
            self._answers[question.name] = question.ask(self.run, self._share)
        answer = self._answers[question.name]
        return [] if answer is None else [item for item in answer.measurements if item.name == name]


def formula(analyzer: str) -> str:
    """The docstring of an analyzer: how it computes, with its sources."""
    try:
        return (import_module(f".{analyzer}", __package__).__doc__ or "").strip()
    except ImportError:
        return ""


def _questions(name: str, question: str) -> list[Question[Answer]]:
    if name not in CATALOGUE:
        near = get_close_matches(name, CATALOGUE, _MAX_NAMED, 0.5)
        part = [known for known in CATALOGUE if name and name in known][:_MAX_NAMED]
        nearest = list(dict.fromkeys([*part, *near]))[:_MAX_NAMED]
        raise InputError(f"no measurement is called {name}" + (f"; nearest: {', '.join(nearest)}" if nearest else ""))
    asked = [item for item in QUESTIONS if item.may_answer(name) and question in ("", item.name)]
    if not asked:
        by = f" by {question}" if question else ""
        raise NoEvidence(f"{name} is not computed{by} from one run")
    return asked


def _fits(scope: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    return all(key in scope and said(scope[key]) == text for key, text in wanted.items())


def said(value: Any) -> str:
    """A value of a scope as people write it: none for null."""
    return "none" if value is None else str(value)


def _nothing(run: Run, name: str, found: list[Measurement]) -> str:
    where = run.place.address
    if not found:
        return f"{where}: nothing in it gives {name}"
    keys = sorted({key for item in found for key in item.scope})
    known = "; ".join(f"{key}: {_values(found, key)}" for key in keys)
    return f"{where}: no {name} with that scope; there is {known or 'one without any'}"


def _values(found: list[Measurement], key: str) -> str:
    values = list(dict.fromkeys(said(item.scope[key]) for item in found if key in item.scope))
    return ", ".join(values[:_MAX_NAMED]) + (", ..." if len(values) > _MAX_NAMED else "")


def _bits(measurement: Measurement) -> tuple[object, ...]:
    interval = measurement.interval
    ends = () if interval is None else (_exact(interval.low), _exact(interval.high), interval.level, interval.method)
    return (_exact(measurement.value), measurement.n, measurement.reason, *ends)


def _exact(value: float | int | str | None) -> object:
    """Floats by their bits: equal means the same, and nothing else is."""
    return struct.pack("<d", value) if isinstance(value, float) else (type(value).__name__, value)
