"""The registry: what is asked, what is not, and how what is found becomes headlines, the worst first."""

from pathlib import Path

import pytest
from run_builder import RunBuilder, healthy_run

from rankscope.analyzers import report as reporting
from rankscope.analyzers.headline import CRITICAL, INFO, WARNING, Headline, verdict_headline, worst_first
from rankscope.analyzers.questions import FINDINGS, QUESTIONS, Finding, Question
from rankscope.analyzers.report import report
from rankscope.analyzers.run import Run
from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.errors import NoEvidence
from rankscope.schema.measurement import Verdict


def test_every_answer_has_the_names_that_the_registry_says(tmp_path: Path) -> None:
    with Run.open(str(healthy_run(tmp_path / "run"))) as run:
        for question in QUESTIONS:
            answer = question.ask(run, 1.0)
            for item in () if answer is None else answer.measurements:
                assert question.may_answer(item.name), (question.name, item.name)


def test_names_are_unique_and_answers_exist_in_the_catalogue() -> None:
    names = [question.name for question in QUESTIONS]
    assert len(names) == len(set(names))
    for question in QUESTIONS:
        for prefix in question.answers:
            assert any(name.startswith(prefix) for name in CATALOGUE), (question.name, prefix)


def test_a_question_without_rows_is_not_asked_by_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def wrapped(question: Question[Finding]) -> Question[Finding]:
        def ask(run: Run, share: float | None) -> Finding | None:
            asked.append(question.name)
            return question.function(run, share)

        return Question(question.name, ask, question.answers, question.tables)

    monkeypatch.setattr(reporting, "FINDINGS", tuple(wrapped(question) for question in FINDINGS))
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 100)
    build.entities()
    with Run.open(str(build.seal())) as run:
        report(run)
    assert asked and set(asked) == {
        question.name for question in FINDINGS if not set(question.tables) - {"step", "process"}
    }


def test_a_question_that_is_slow_on_a_large_run_is_left_to_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(run: Run, share: float | None) -> Finding | None:
        raise AssertionError("asked")

    slow = Question("stragglers", ask, ("straggler.",), ("collective",), most_rows=11)
    of_time = Question("exposure", ask, ("time.",), ("collective",), most_rows=11, command="time")
    monkeypatch.setattr(reporting, "FINDINGS", (slow, of_time))
    with Run.open(str(healthy_run(tmp_path / "run"))) as run:  # 12 operations
        told = {(item.text, item.command) for item in report(run).headlines}
    assert ("So large a run is not asked for its stragglers here.", "stragglers") in told
    assert ("So large a run is not asked for its exposure here.", "time") in told


def test_too_few_rows_for_an_answer_are_no_answer(tmp_path: Path) -> None:
    def ask(run: Run, share: float | None) -> Finding | None:
        raise NoEvidence(f"{run.run_id}: nothing")

    with Run.open(str(healthy_run(tmp_path / "run"))) as run:
        assert Question("x", ask, ("step.",)).ask(run, None) is None


def test_conclusions_come_before_observations_and_those_before_what_is_undecided() -> None:
    observed, sure = Headline(WARNING, "observed"), Headline(WARNING, "sure", "x", 0.9)
    unsure, undecided = Headline(WARNING, "unsure", "x", 0.6), Headline(WARNING, "undecided", "x", 0.5)
    worse, least = Headline(CRITICAL, "worse"), Headline(INFO, "least", "x", 1.0)
    found = worst_first([least, undecided, observed, unsure, sure, worse])
    assert [item.text for item in found] == ["worse", "sure", "unsure", "observed", "undecided", "least"]


def test_a_verdict_in_words() -> None:
    verdict = Verdict("straggler_set", (4, 5, 6), "node b is late", 0.8, cause="network", since_step=40)
    told = verdict_headline(verdict, "stragglers")
    assert told.text == "Straggler set: node b is late (ranks 4-6), since step 40, cause: network."
    assert (told.level, told.command, told.confidence) == (WARNING, "stragglers", 0.8)
    assert verdict_headline(Verdict("hang", (1,), "rank 1 missing", 0.9), "hang").text == "Hang: rank 1 missing."
    assert verdict_headline(Verdict("hang", (1,), "rank 1 missing", 0.9), "hang").level == CRITICAL
    assert verdict_headline(Verdict("nothing", (), "no straggler", 0.9), "stragglers").level == INFO
