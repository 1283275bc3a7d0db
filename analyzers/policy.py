"""Rules that a run must meet, committed beforehand with an owner each: pass, fail or cannot tell.

A policy is a TOML file of [[rule]] tables:

    [[rule]]
    name = "slow steps are rare"
    owner = "training-platform"
    measure = "step.tail_ratio"        # any measurement of `rankscope report`, `efficiency`, `time`, ...
    max = 1.5                          # and / or min
    scope = { statistic = "p99" }      # only measurements with these; without it the worst of all counts
    if_unknown = "fail"                # or "pass": what "cannot tell" means for the gate

With a baseline run `max_of_baseline = 1.05` and `min_of_baseline` bound the ratio to the same measurement there; what
else the two runs differ in is told beside (`baseline_differences`), since a ratio means little where the batch is
another one. With
`certain = true` a rule whose interval holds both sides of its bound cannot tell. A rule of which a measurement is none
and no other one fails cannot tell either: an absent number is no pass.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.errors import NoEvidence, UnreadableFile
from rankscope.schema.measurement import Measurement

from .differences import CONFOUNDER, SCALE, Difference, differences, job_of
from .manifest import manifest
from .questions import QUESTIONS
from .run import Run

PASS, FAIL, CANNOT_TELL = "pass", "fail", "cannot tell"
_BOUNDS: Final = (("min", "max"), ("min_of_baseline", "max_of_baseline"))
_ASKED_FOR: Final = {"efficiency.time_to_target": "rankscope efficiency --target tells it"}
"""Measurements that a run has only where somebody asks for a certain one."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule as written. Bounds are inclusive."""

    name: str
    owner: str
    measure: str
    max: float | None = None
    min: float | None = None
    max_of_baseline: float | None = None
    min_of_baseline: float | None = None
    scope: dict[str, Any] = {}
    if_unknown: Literal["fail", "pass"] = "fail"
    certain: bool = False

    @property
    def needs_baseline(self) -> bool:
        """It bounds a ratio to another run."""
        return self.max_of_baseline is not None or self.min_of_baseline is not None


class _Policy(msgspec.Struct, forbid_unknown_fields=True):
    rule: list[Rule]


@dataclass(frozen=True, slots=True)
class Ruling:
    """How one rule came out. text: the number and the bound in words; measurement: the one that decided."""

    rule: Rule
    outcome: str
    text: str
    measurement: Measurement | None = None

    @property
    def is_bad(self) -> bool:
        """The gate stays shut."""
        return self.outcome == FAIL or (self.outcome == CANNOT_TELL and self.rule.if_unknown == "fail")

    def as_json(self) -> dict[str, Any]:
        """The form of `rankscope check --json`."""
        return {
            "name": self.rule.name, "owner": self.rule.owner, "measure": self.rule.measure, "outcome": self.outcome,
            "is_bad": self.is_bad, "text": self.text,
            "measurement": None if self.measurement is None else self.measurement.as_json(),
        }  # fmt: skip


def read_policy(path: str) -> tuple[Rule, ...]:
    """The rules of a file. Raises UnreadableFile, which names what is wrong with which rule."""
    try:
        rules = msgspec.toml.decode(Path(path).read_bytes(), type=_Policy).rule
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path}: {error}") from error
    if not rules:
        raise UnreadableFile(f"{path}: no [[rule]] in it")
    for rule in rules:
        _check(path, rule)
    return tuple(rules)


def judge(rules: Sequence[Rule], run: Run, share: float | None, baseline: Run | None = None) -> tuple[Ruling, ...]:
    """How `run` stands to the rules. Raises UnreadableFile if a rule needs a baseline and there is none."""
    names = {rule.measure for rule in rules}
    here, there = _measured(names, run, share), _measured(names, baseline, None) if baseline is not None else {}
    found = []
    for rule in rules:
        if rule.needs_baseline and baseline is None:
            raise UnreadableFile(f"rule {rule.name!r} bounds a ratio to a baseline: give one with --baseline")
        some = [item for item in here.get(rule.measure, ()) if _is_meant(rule, item)]
        found.append(_ruling(rule, some, there.get(rule.measure, ())))
    return tuple(found)


def baseline_differences(run: Run, baseline: Run) -> tuple[Difference, ...]:
    """What makes a ratio to the baseline mean something else: what changes the speed, and the number of ranks.

    Raises NoEvidence: the baseline is the run itself, or one of another job.
    """
    if (run.run_id, run.digest) == (baseline.run_id, baseline.digest):
        raise NoEvidence(f"{baseline.place.address}: the baseline is the run itself: every ratio is 1")
    one, other = manifest(baseline), manifest(run)
    jobs = sorted({name for name in map(job_of, (one, other)) if name})
    if len(jobs) > 1:
        raise NoEvidence(f"runs of different jobs: {' and '.join(jobs)}")
    return tuple(item for item in differences(one, other) if item.kind in (CONFOUNDER, SCALE))


def _check(path: str, rule: Rule) -> None:
    _check_measure(path, rule)
    if not (rule.name.strip() and rule.owner.strip()):
        raise UnreadableFile(f"{path}: rule {rule.name!r} needs a name and an owner, who is asked when it fails")
    for pair in _BOUNDS:
        least, most = (getattr(rule, name) for name in pair)
        for name, bound in zip(pair, (least, most), strict=True):
            if bound is not None and not math.isfinite(bound):
                raise UnreadableFile(f"{path}: rule {rule.name!r}: {name} = {bound} is no bound")
        if least is not None and most is not None and least > most:
            raise UnreadableFile(f"{path}: rule {rule.name!r}: no number is at least {least:g} and at most {most:g}")


def _check_measure(path: str, rule: Rule) -> None:
    if rule.measure not in CATALOGUE:
        from difflib import get_close_matches

        close = get_close_matches(rule.measure, CATALOGUE, n=3, cutoff=0.5)
        near = f"; near it: {', '.join(close)}" if close else ""
        raise UnreadableFile(f"{path}: rule {rule.name!r}: no measurement is called {rule.measure}{near}")
    if all(bound is None for bound in (rule.max, rule.min, rule.max_of_baseline, rule.min_of_baseline)):
        raise UnreadableFile(f"{path}: rule {rule.name!r} has no bound: max, min, max_of_baseline or min_of_baseline")
    why = _ASKED_FOR.get(rule.measure, "it takes several runs")
    if rule.measure in _ASKED_FOR or not any(question.may_answer(rule.measure) for question in QUESTIONS):
        raise UnreadableFile(f"{path}: rule {rule.name!r}: a run by itself has no {rule.measure}: {why}")


def _measured(names: set[str], run: Run, share: float | None) -> dict[str, tuple[Measurement, ...]]:
    """The measurements of these names, each question asked once."""
    found: dict[str, list[Measurement]] = {name: [] for name in names}
    for question in QUESTIONS:
        if not any(question.may_answer(name) for name in names) or not question.arises(run):
            continue
        answer = question.ask(run, share)
        for item in answer.measurements if answer is not None else ():
            if item.name in found and item not in found[item.name]:
                found[item.name].append(item)
    return {name: tuple(items) for name, items in found.items()}


def _is_meant(rule: Rule, item: Measurement) -> bool:
    return all(str(item.scope.get(key)) == str(value) for key, value in rule.scope.items())


def _ruling(rule: Rule, some: Sequence[Measurement], baseline: Iterable[Measurement]) -> Ruling:
    if not some:
        scope = f" with {', '.join(f'{key}={value}' for key, value in rule.scope.items())}" if rule.scope else ""
        return Ruling(rule, CANNOT_TELL, f"the run has no {rule.measure}{scope}")
    known = {_place(item): item for item in baseline}
    found = [_one(rule, item, known.get(_place(item))) for item in some]
    order = (FAIL, CANNOT_TELL, PASS)
    return min(found, key=lambda ruling: order.index(ruling.outcome))


def _place(item: Measurement) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, str(value)) for key, value in item.scope.items()))


def _one(rule: Rule, item: Measurement, before: Measurement | None) -> Ruling:
    """The rule held against one measurement."""
    if item.value is None or isinstance(item.value, str):
        return Ruling(rule, CANNOT_TELL, item.reason or "not a number", item)
    if rule.needs_baseline and (before is None or before.value is None or isinstance(before.value, str)):
        return Ruling(rule, CANNOT_TELL, "the baseline has no such number", item)
    value, limits = float(item.value), _limits(rule, before)
    broken = [limit.words for limit in limits if not limit.is_met(value)]
    interval = item.interval
    if rule.certain and interval and any(limit.is_met(interval.low) != limit.is_met(interval.high) for limit in limits):
        return Ruling(rule, CANNOT_TELL, f"{value:.6g}, interval {interval.low:.6g} .. {interval.high:.6g}", item)
    words = "; ".join(broken or [limit.words for limit in limits])
    return Ruling(rule, FAIL if broken else PASS, f"{value:.6g}{_unit(item)}{_at(item)} ({words})", item)


def _unit(item: Measurement) -> str:
    return f" {item.unit}" if item.unit not in ("", "1") else ""


def _at(item: Measurement) -> str:
    return f" at {', '.join(f'{key} {value}' for key, value in item.scope.items())}" if item.scope else ""


@dataclass(frozen=True, slots=True)
class _Limit:
    """One bound, inclusive."""

    bound: float
    is_most: bool
    words: str

    def is_met(self, value: float) -> bool:
        return value <= self.bound if self.is_most else value >= self.bound


def _limits(rule: Rule, before: Measurement | None) -> list[_Limit]:
    base = float(before.value) if before is not None and isinstance(before.value, int | float) else 0.0
    found = []
    for bound, ratio, is_most, words in (
        (rule.max, rule.max_of_baseline, True, "at most"), (rule.min, rule.min_of_baseline, False, "at least"),
    ):  # fmt: skip
        if bound is not None:
            found.append(_Limit(bound, is_most, f"{words} {bound:g}"))
        if ratio is not None:
            found.append(_Limit(ratio * base, is_most, f"{words} {ratio:g} times the baseline's {base:.6g}"))
    return found
