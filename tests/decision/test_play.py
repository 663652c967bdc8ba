"""A decision from start to end, in virtual time: what
is asked is kept in one run, and it ends as it should.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

import duckdb
import msgspec
import pytest

from advisor.policy import Policy
from agentload.cli._decide import beyond_budget
from agentload.decision.budget import BudgetLimit, BudgetSpentError
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known, RunRows, knowledge
from agentload.decision.ledger import Ledger, LedgerEntry, ledger
from agentload.decision.look import Look
from agentload.decision.means import Means, replay_begun
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.pair_load import SESSIONS
from agentload.decision.paired_answers import PairedAnswers
from agentload.decision.play import Deciding
from agentload.decision.state import DecisionState
from agentload.decision.user_trace import UserTrace
from agentload.errors import EvidenceError, InterruptError, PlanError, UsageError
from agentload.model.rows import AnswerRow, VerdictRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.report.advise import advise
from agentload.report.document import document
from agentload.report.formats.json import json as as_json
from agentload.run import door
from agentload.run.audience import Audience
from agentload.run.past import ADDED_FROM
from agentload.run.place import StudyPlace
from agentload.run.record import PlayedOn, run_row
from agentload.store import tables
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.places import journal_folder
from agentload.study.change import extend
from agentload.study.kinds import Decide, Replay
from agentload.study.parts import Live, Load, Timeouts, TraceRef, Virtual
from agentload.study.stored import Notes
from agentload.tracefile.files import write
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import Verdict, verdict
from tests.evidence.runs import block, view
from tests.report import sample

P = ParamSpec("P")
T = TypeVar("T")
LLAMA = Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8"))
STUDY = Decide(
    traces=(TraceRef(path="demo-chat"),), servers=LLAMA, load=Load(sessions=4), accuracy_margin=0.05
)
SHORT = extend(STUDY, budget_s=240.0, min_change=0.07)


def decided(study: Decide, folder: Path) -> DecisionOutcome:
    place = StudyPlace(database=folder / "x.duckdb")
    return Deciding(study=study, place=place, audience=Audience()).play()


@dataclass(frozen=True, kw_only=True)
class WatchedDecision:
    """A short decision, what it said and stood at on its way, and what it made how often."""

    database: Path
    outcome: DecisionOutcome
    said: list[str]
    states: list[DecisionState]
    made: Counter[str]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> WatchedDecision:
    database = tmp_path_factory.mktemp("decision") / "x.duckdb"
    said, made = list[str](), Counter[str]()

    def counted(name: str, make: Callable[P, T]) -> Callable[P, T]:
        def call(*given: P.args, **options: P.kwargs) -> T:
            made[name] += 1
            return make(*given, **options)

        return call

    def notice(text: str) -> None:
        said.append(text)
        states.append(deciding.state())

    deciding = Deciding(
        study=SHORT, place=StudyPlace(database=database), audience=Audience(notice=notice)
    )
    states = [deciding.state()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agentload.report.advise.document", counted("documents", document))
        patched.setattr("agentload.decision.known.verdict", counted("verdicts", verdict))
        outcome = deciding.play()
    return WatchedDecision(database=database, outcome=outcome, said=said, states=states, made=made)


def test_pairs_whose_answers_are_long_take_what_the_profile_says(tmp_path: Path) -> None:
    study = Decide(traces=(TraceRef(path="code"),), servers=LLAMA, seed=1)
    deciding = Deciding(
        study=study, place=StudyPlace(database=tmp_path / "x.duckdb"), audience=Audience()
    )
    look = Look(criterion="speed", amount=2)
    planned = deciding.price(look).minutes
    took = deciding._ask(look, deciding.price(look))
    assert took == pytest.approx(planned, rel=0.1)


def test_all_that_is_asked_lies_in_one_run_and_is_told_while_it_is_asked(
    watched: WatchedDecision,
) -> None:
    outcome = watched.outcome
    assert outcome.ending in ("decided", "budget", "open")
    assert outcome.document is not None
    with duckdb.connect(str(watched.database), read_only=True) as database:
        runs = database.execute("SELECT run_id, kind FROM runs").fetchall()
        (stored,) = database.execute("SELECT count(*) FROM verdicts").fetchall()
        (pairs,) = database.execute(
            "SELECT count(DISTINCT pair) FROM blocks WHERE void IS NULL"
        ).fetchall()
    assert runs == [(outcome.run_id, "simulated")]
    assert stored == (1,)
    speed = [each.stage.amount for each in outcome.asked if each.stage.criterion == "speed"]
    assert pairs == (speed[-1],)
    assert len([line for line in watched.said if line.startswith("asking: ")]) == len(outcome.asked)
    assert sum(each.minutes for each in outcome.asked) == pytest.approx(
        SHORT.budget_s / 60 - outcome.left_minutes
    )


def answer(context: int, item: int) -> AnswerRow:
    return AnswerRow(
        run_id="r",
        arm="bf16",
        task="needle",
        item=str(item),
        context_tokens=context,
        depth=None,
        repetition=0,
        score=None,
        right=True,
        answer=None,
    )


def test_a_pair_is_whole_where_every_arm_has_a_valid_block_of_it() -> None:
    blocks = (
        *(block(arm, 0, 0.0) for arm in ("bf16", "fp8", "bf16@control")),
        block("bf16", 1, 0.0),
        block("bf16", 2, 0.0),
        block("fp8", 2, 0.0, void="clock drop"),
        block("bf16", 3, 0.0, void="server died"),
        block("fp8", 3, 0.0, void="clock drop"),
        *(block(arm, ADDED_FROM, 0.0) for arm in ("bf16", "fp8")),
    )
    rows = RunRows(arms=("bf16", "fp8"), blocks=blocks)
    assert (rows.pairs, rows.invalid) == (1, "clock drop")
    assert replace(rows, blocks=(*blocks, block("fp8", 2, 9.0))).pairs == 2
    assert replace(rows, blocks=blocks[:4]).invalid is None


def test_what_is_known_follows_from_a_verdict_and_the_questions_that_were_answered() -> None:
    found = Verdict(
        view=view(), decision=sample.decision(), evidence=sample.evidence(), setting=Setting()
    )
    asked = [(8192, 0), (8192, 1), (4096, 0), (4096, 0)]
    pairs = tuple(block(arm, pair, 0.0) for arm in ("bf16", "fp8") for pair in range(6))
    rows = RunRows(
        arms=("bf16", "fp8"),
        blocks=pairs,
        answers=tuple(answer(context, item) for context, item in asked),
        verdict=found,
    )
    begun = Ledger(database=Path("x.duckdb"), run="r")

    def at(rows: RunRows, *, counts_answers: bool) -> Known:
        return knowledge(
            rows, begun, counts_answers=counts_answers, is_compared=True, has_twins=True, starts=2
        )

    expected = Known(
        ledger=begun,
        decision=found.decision,
        findings=found.decision.findings,
        pairs=6,
        items=3,
        lengths=(4096, 8192),
        starts=2,
    )
    assert at(rows, counts_answers=True) == expected
    assert at(rows, counts_answers=False) == replace(expected, items=0, lengths=()), (
        "the answers of a canary are no look"
    )
    assert at(replace(rows, verdict=None, fault="one piece"), counts_answers=True) == Known(
        ledger=begun, pairs=6, invalid="one piece"
    )


def test_a_decision_makes_one_document_however_many_questions_it_asks(
    watched: WatchedDecision,
) -> None:
    outcome = watched.outcome
    asked_of_pairs = [each for each in outcome.asked if each.stage.criterion != "checks"]
    assert len(asked_of_pairs) > 1
    assert watched.made == {"documents": 1, "verdicts": len(asked_of_pairs)}
    with reading(watched.database) as connection:
        (row,) = tables.rows(connection, VerdictRow, run_id=outcome.run_id)
    assert outcome.document is not None
    assert row.decision == as_json(outcome.document)


def test_whoever_reads_a_decided_run_judges_it_as_it_was_decided_unless_a_policy_is_named(
    watched: WatchedDecision,
) -> None:
    outcome = watched.outcome
    assert outcome.document is not None
    read = advise(watched.database, outcome.run_id, setting=Setting())
    assert read.decision == outcome.document.decision
    assert (read.policy.planned_looks, read.policy.min_change) == (True, 0.07)
    named = advise(
        watched.database,
        outcome.run_id,
        setting=Setting(policy=Policy(min_change=0.02), name="mine.yaml"),
    )
    assert (named.policy.planned_looks, named.policy.min_change) == (False, 0.02)


def test_a_decision_says_what_it_asks_what_is_spent_and_what_is_known(
    watched: WatchedDecision,
) -> None:
    seen, outcome = watched.states, watched.outcome
    assert seen[0].asking is None
    last = outcome.asked[-1]
    assert (seen[-1].asking, seen[-1].asked[-1]) == (None, last)
    assert seen[-1].budget_minutes == 4
    assert seen[-1].spent_minutes == 4 - outcome.left_minutes
    asking = {each.asking.look for each in seen if each.asking is not None}
    assert asking <= {each.stage for each in outcome.asked}


def test_questions_that_bring_no_answer_are_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PairedAnswers, "ask", lambda *_: 0.0)
    monkeypatch.setattr(
        "agentload.decision.agenda.next_looks",
        lambda *_, **__: iter([Look(criterion="accuracy", amount=30, lengths=(8192,))]),
    )
    outcome = decided(STUDY, tmp_path)
    asked = [each.stage.criterion for each in outcome.asked]
    assert (outcome.ending, asked.count("accuracy")) == ("open", 1)


def test_a_first_pair_that_tells_nothing_is_followed_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def silent(*_: object, **__: object) -> Verdict:
        raise EvidenceError("2 of 2 blocks left out: answers in one piece", hint="play it again")

    def notice(text: str) -> None:
        said.append(text)
        if text.startswith("asking: speed, 4"):
            raise KeyboardInterrupt

    monkeypatch.setattr("agentload.decision.known.verdict", silent)
    outcome = Deciding(
        study=SHORT,
        place=StudyPlace(database=tmp_path / "x.duckdb"),
        audience=Audience(notice=notice),
    ).play()
    assert (outcome.ending, outcome.document) == ("stopped", None)
    assert (
        "  1 of 4 block pairs; first comparison after 4; others are invalid: 2 of 2 "
        "blocks left out: answers in one piece"
    ) in said


CHECKS = LedgerEntry(
    stage=Look(criterion="checks", amount=1), planned_minutes=0.1, minutes=0.1, said=""
)
URLS = Live(endpoints="bf16=http://127.0.0.1:9/v1,fp8=http://127.0.0.1:8/v1")


class Killed(BaseException):
    """What a process that is killed does not even see."""


@dataclass
class Question:
    """A question that takes a few minutes, as a test carries it out."""

    carry_out: Callable[[], float]

    def price(self, _: Look, __: Known) -> LookPrice:
        """Take a few minutes."""
        return LookPrice(minutes=3.0)

    def ask(self, _: Look, __: Known, ___: BudgetLimit) -> float:
        """Do what the test says."""
        return self.carry_out()

    def said(self, _: Known) -> str:
        """Say nothing."""
        return ""


def checked(
    study: Decide, database: Path, asked: Callable[[], float], **before: object
) -> Deciding:
    """Return a decision whose checks are over, and whose pairs are these."""
    deciding = Deciding(
        study=study, place=StudyPlace(database=database, run="r"), audience=Audience()
    )
    # fields by name
    asked_before = replace(deciding.known.ledger.write("asked", CHECKS), **before)  # type: ignore[arg-type]
    deciding.known = replace(deciding.known, ledger=asked_before)
    deciding._agenda.of["speed"] = Question(asked)
    return deciding


def test_what_a_killed_first_pair_took_is_spent_before_the_run_is_begun(tmp_path: Path) -> None:
    database, found = tmp_path / "x.duckdb", list[Ledger]()

    def killed() -> float:
        journal = journal_folder(database, "r") / "leg001.journal"
        with Writer(journal) as writer:  # so far as it came, two minutes later
            writer.append(block("bf16", 0, 0.0))
        later = time.time() + 120
        os.utime(journal, (later, later))
        found.append(ledger(database, "r"))
        raise Killed

    with pytest.raises(Killed):
        checked(msgspec.structs.replace(STUDY, servers=URLS), database, killed)._under_one_load()
    assert found[0].asked == (CHECKS,)
    assert found[0].minutes == pytest.approx(2.1, abs=0.1)


@pytest.mark.parametrize(("lost", "asked"), [((), 1), ((2.0,), 1), ((43.0,), 0)])
def test_a_first_pair_that_others_went_before_is_played_within_what_they_left(
    tmp_path: Path, lost: tuple[float, ...], asked: int
) -> None:
    played = list[str]()

    def stopped() -> float:
        played.append("a pair")
        raise KeyboardInterrupt

    study = msgspec.structs.replace(STUDY, servers=URLS)
    outcome = checked(study, tmp_path / "x.duckdb", stopped, lost_minutes=lost)._under_one_load()
    assert (len(played), outcome.ending) == (asked, "stopped" if asked else "budget")
    if not asked:
        said = beyond_budget(outcome) or ""
        assert said.endswith("1 block pair, 3 min; left: 2 min. --budget 47m pays for it.")


@pytest.mark.parametrize(("is_spent", "error"), [(True, BudgetSpentError), (False, InterruptError)])
def test_pairs_that_end_before_their_first_call_say_who_ended_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_spent: bool, error: type[Exception]
) -> None:
    def stopped(_: object, __: object, audience: Audience, *, adapt: object) -> None:
        limit = audience.stopping.__self__  # type: ignore[attr-defined]  # a method of the limit
        limit.is_spent = is_spent
        raise InterruptError("stopped")

    monkeypatch.setattr(door, "carry_out", stopped)
    study = msgspec.structs.replace(STUDY, servers=URLS)
    place = StudyPlace(database=tmp_path / "x.duckdb", run="r")
    deciding = Deciding(study=study, place=place, audience=Audience())
    with pytest.raises(error):
        deciding._ask(Look(criterion="speed", amount=1), LookPrice(minutes=1.0))


def test_pairs_that_the_budget_ended_are_priced_by_what_they_took(tmp_path: Path) -> None:
    def ended() -> float:
        raise BudgetSpentError("the budget ended a block pair")

    study = msgspec.structs.replace(STUDY, servers=URLS)
    deciding = checked(study, tmp_path / "x.duckdb", ended)
    forecast = deciding.price(Look(criterion="speed", amount=1)).minutes
    deciding._since_s -= 60 * 3 * forecast
    outcome = deciding._under_one_load()
    assert outcome.ending == "budget"
    assert outcome.wants is not None
    look, minutes = outcome.wants
    assert look.criterion == "speed"
    assert minutes == pytest.approx(3 * deciding.price(look).minutes, rel=0.05)


@pytest.mark.slow
def test_a_decision_asked_for_twice_says_the_same(tmp_path: Path) -> None:
    first, second = (decided(STUDY, tmp_path / name) for name in ("a", "b"))
    assert (first.run_id, first.asked, first.ending) == (second.run_id, second.asked, second.ending)


@pytest.mark.slow
def test_a_budget_that_is_spent_says_what_it_could_not_reach(tmp_path: Path) -> None:
    # Longer contexts make it pay, and no such budget shows answers to be equal within a point.
    longer = (TraceRef(path="chat"),)
    outcome = decided(
        Decide(traces=longer, servers=LLAMA, budget_s=900.0, accuracy_margin=0.01), tmp_path
    )
    assert outcome.ending == "budget"
    assert outcome.wants is not None
    stage, minutes = outcome.wants
    assert minutes > outcome.left_minutes
    assert stage not in [each.stage for each in outcome.asked]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"budget_s": 60.0}, "--budget 60 s is too short to measure anything: at least 3m"),
        ({"budget_s": 45.0}, "--budget 45 s is too short to measure anything: at least 3m"),
        ({"arms": ("bf16",)}, "a decision needs two arms, got bf16"),
        ({"reference": "fp4"}, "--reference: no arm 'fp4'"),
    ],
)
def test_what_cannot_be_decided_is_refused_at_once(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        decided(extend(STUDY, **change), tmp_path)
    assert not (tmp_path / "x.duckdb").exists()


def test_tasks_decide_nothing_of_a_trace_whose_sessions_have_a_single_turn(tmp_path: Path) -> None:
    add = (Segment(role="user", tokens=64, key="u"),)
    alone = (
        Session(session=f"s{number}", workload="w", start_s=0.0, turns=(Turn(add=add, output=9),))
        for number in range(4)
    )
    write(tmp_path / "t.jsonl", Trace(header=Header(name="t"), sessions=alone))
    study = extend(STUDY, traces=(TraceRef(path=str(tmp_path / "t.jsonl")),), decide_by="tasks")
    with pytest.raises(PlanError, match="--decide-by tasks needs sessions") as refused:
        decided(study, tmp_path)
    assert (refused.value.hint or "").startswith("--decide-by latency --agents")


def test_a_decision_that_was_killed_before_there_was_a_database_is_resumed_under_the_load_of_its_journal(
    tmp_path: Path,
) -> None:
    database, load = tmp_path / "x.duckdb", Load(sessions=7)
    pairs = Replay(
        traces=STUDY.traces, servers=Live(endpoints="a=http://x/v1,b=http://y/v1"), load=load
    )
    with Writer(journal_folder(database, "r1") / "leg001.journal") as writer:
        writer.append(
            run_row(
                "r1",
                pairs,
                plan=None,
                trace_hash=None,
                created_ns=1,
                command="",
                notes=Notes(),
                on=PlayedOn(kind="measured", model=None),
            )
        )
    study = Decide(traces=STUDY.traces, servers=pairs.servers)

    def means(resume: str) -> Means:
        place = StudyPlace(database=database, resume=resume)
        return Means(
            study=study,
            place=place,
            audience=Audience(),
            run=resume,
            user=UserTrace(study),
            began=replay_begun(place),
        )

    assert means("r1").load == load
    checks = LedgerEntry(
        stage=Look(criterion="checks", amount=1), planned_minutes=0.1, minutes=0.1, said=""
    )
    ledger(database, "r3").write("asked", checks)
    assert means("r3").load.sessions == SESSIONS
    with pytest.raises(PlanError, match="no journal of run r2"):
        _ = means("r2").load


@pytest.mark.parametrize(
    ("budget_min", "given", "expected_s", "patience_s"),
    [
        (90, Timeouts(), 0, 540),
        (140, Timeouts(), 0, 600),
        (140, Timeouts(first_timeout_s=30), 0, 840),
        (200, Timeouts(first_timeout_s=30), 0, 1200),
        (200, Timeouts(total_timeout_s=700), 0, 700),
        (90, Timeouts(), 570, 570),
        (90, Timeouts(), 1800, 600),
    ],
)
def test_an_untimed_question_takes_a_tenth_of_the_budget_and_no_longer_than_without_one(
    tmp_path: Path, budget_min: int, given: Timeouts, expected_s: float, patience_s: float
) -> None:
    study = msgspec.structs.replace(STUDY, budget_s=60.0 * budget_min, timeouts=given)
    place = StudyPlace(database=tmp_path / "x.duckdb")
    means = Means(study=study, place=place, audience=Audience(), run="r", user=UserTrace(study))
    assert means.patience(600.0, expected_s=expected_s).total_timeout_s == patience_s


def test_what_is_computed_between_two_questions_is_spent_from_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deciding = Deciding(
        study=STUDY, place=StudyPlace(database=tmp_path / "x.duckdb"), audience=Audience()
    )

    class Slow:
        def ask(self, look: Look, known: Known, limit: BudgetLimit) -> None:
            now[0] += 60

    monkeypatch.setitem(deciding._agenda.of, "checks", Slow())
    look, price = Look(criterion="checks", amount=1), LookPrice(minutes=1.0, calls=0)
    now[0] = 30.0
    assert deciding._ask(look, price) == 1.5
    now[0] += 45
    assert deciding._ask(look, price) == 1.75
