"""A load that this client cannot send in time is given up, and half of it is tried."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pytest

from agentload.cli._decide import notes
from agentload.decision.block_pairs import BlockPairs
from agentload.decision.budget import BudgetLimit
from agentload.decision.known import Known
from agentload.decision.ledger import Ledger, LedgerEntry, ledger
from agentload.decision.lighter import EasedLoad, LateError, caveat, half_of, load_after
from agentload.decision.look import Look
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.evidence import grades
from agentload.evidence.gather import gather
from agentload.evidence.view import run_view
from agentload.layout.cost import Cost
from agentload.live.look import SWITCH, cores
from agentload.model.commands import Send
from agentload.model.metrics import ClockStart
from agentload.model.rows import AnswerRow, CallRow, LegRow, RunRow
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace
from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.serve.server import ServerOptions
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.kinds import Decide, Replay
from agentload.study.parts import Live, Load, TraceRef, Virtual
from agentload.study.stored import study_of
from agentload.verdict.policy import Setting
from tests.run.test_ready import busy_loops

CHECKS = LedgerEntry(
    stage=Look(criterion="checks", amount=1), planned_minutes=0.2, minutes=0.1, said=""
)
PAIR = LedgerEntry(
    stage=Look(criterion="speed", amount=1), planned_minutes=2.0, minutes=3.0, said=""
)
CANARY = LedgerEntry(
    stage=Look(criterion="canary", amount=12, lengths=(4096,)),
    planned_minutes=1.0,
    minutes=0.8,
    said="",
)
LATE = "requests left 9.3 ms late (p99; limit 5)"


@pytest.mark.parametrize(
    ("load", "halves"),
    [
        (Load(sessions=8), [4, 2, 1]),
        (Load(sessions=3), [1]),
        (Load(sessions=1), []),
        (Load(rate_per_s=0.02), [0.01, 0.005]),
        (Load(), []),
    ],
)
def test_a_load_is_halved_until_there_is_no_half(load: Load, halves: list[float]) -> None:
    found = []
    while (step := half_of(load, LATE)) is not None:
        load = load_after(load, [step])
        found.append(load.rate_per_s if load.sessions is None else load.sessions)
    assert found == halves


def test_who_reads_the_result_is_told_the_load_and_what_it_changes() -> None:
    steps = [
        EasedLoad(of="sessions", before=8, now=4, why=LATE),
        EasedLoad(of="sessions", before=4, now=2, why="this process stood still for 300 ms"),
    ]
    said = caveat(steps)
    assert said is not None
    assert said.startswith("Measured with 2 sessions at once, since with 8 this client could not")
    assert LATE in said
    assert "figures hold for this load alone" in said
    assert caveat([]) is None


def test_the_ledger_of_a_lighter_run_keeps_checks_answers_and_what_was_spent(
    tmp_path: Path,
) -> None:
    first = Ledger(database=tmp_path / "x.duckdb", run="r").write("asked", CHECKS)
    first = first.write("asked", CANARY).write("stopped", PAIR)
    step = EasedLoad(of="sessions", before=8, now=4, why=LATE)
    second = first.ease(step, setting=Setting(name="decide"))
    assert (second.run, second.asked, second.given_up) == (
        "r-4-sessions",
        (CHECKS, CANARY),
        (step,),
    )
    assert second.minutes == pytest.approx(first.minutes)
    assert ledger(tmp_path / "x.duckdb", "r").goes_on_as == "r-4-sessions"
    assert ledger(tmp_path / "x.duckdb", "r-4-sessions") == second
    third = second.write("asked", PAIR).ease(
        EasedLoad(of="sessions", before=4, now=2, why=LATE), setting=None
    )
    assert third.run == "r-2-sessions"
    assert third.minutes == pytest.approx(first.minutes + PAIR.minutes)
    assert ledger(tmp_path / "x.duckdb", third.run) == third


@pytest.mark.slow
def test_answers_are_kept_under_a_lighter_load_and_the_time_that_they_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, lines, asked = tmp_path / "x.duckdb", list[str](), BlockPairs.ask

    def late(speed: BlockPairs, look: Look, known: Known, limit: BudgetLimit) -> float | None:
        if look.amount > 1 and not speed.means.given_up:
            raise LateError(LATE)
        return asked(speed, look, known, limit)

    def notice(text: str) -> None:
        lines.append(text)
        if "asking: speed, 4" in text and deciding.means.given_up:
            raise KeyboardInterrupt

    monkeypatch.setattr(BlockPairs, "ask", late)
    servers = Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8"))
    study = Decide(
        traces=(TraceRef(path="demo-chat"),), servers=servers, load=Load(sessions=4), budget_s=480.0
    )
    deciding = Deciding(
        study=study, place=StudyPlace(database=database, run="r"), audience=Audience(notice=notice)
    )
    outcome = deciding.play()
    assert outcome.run_id == "r-2-sessions"
    assert sum(line.startswith("asking: canary") for line in lines) == 1
    (canary,) = (each for each in outcome.asked if each.stage.criterion == "canary")
    assert canary.minutes > 0
    assert ledger(database, "r-2-sessions").looks("canary") == {canary.stage.amount: canary.minutes}
    with reading(database) as connection:
        answers = {
            run: tables.rows(connection, AnswerRow, run_id=run) for run in ("r", "r-2-sessions")
        }
        lengths = [grades.canary(run_view(connection, run)) for run in answers]
    assert lengths[0] == lengths[1] != ()
    assert {replace(row, run_id="r") for row in answers["r-2-sessions"]} == set(answers["r"])
    assert len(answers["r"]) == 2 * canary.stage.amount


@dataclass
class Busy:
    """Keeps the loop busy whenever a call goes out, as long as a decision plays many sessions."""

    deciding: Deciding | None = None
    until: int = 1
    """So many sessions it lets pass."""

    def sent(self, _: Send) -> None:
        """Make the request late."""
        assert self.deciding is not None
        if (self.deciding.means.load.sessions or 0) > self.until:
            time.sleep(0.02)

    def ended(self, _: Send, __: CallRow) -> None:
        """Let it go."""

    @contextmanager
    def progress(self, _: Cost, __: ClockStart) -> Iterator[Busy]:
        """Follow a part of a run."""
        yield self


def decided(place: StudyPlace, urls: str, busy: Busy, said: list[str]) -> DecisionOutcome:
    study = Decide(
        traces=(TraceRef(path="demo-chat"),),
        servers=Live(endpoints=urls),
        load=Load(sessions=4, duration_s=1.5, wait_cap_s={"user": 0.1, "tool": 0.1}),
        budget_s=240.0,
    )

    def notice(text: str) -> None:
        said.append(text)
        if "asking: speed, 4" in text:
            raise KeyboardInterrupt

    audience = Audience(notice=notice, progress=busy.progress)
    busy.deciding = Deciding(study=study, place=place, audience=audience)
    return busy.deciding.play()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.loopback
def test_a_decision_whose_requests_leave_late_goes_on_with_fewer_sessions(tmp_path: Path) -> None:
    database, said = tmp_path / "x.duckdb", list[str]()
    arms = arms_of("llama-3.1-8b-h100", ["bf16", "fp8"])
    with start(arms, ServerOptions(noise=False, speed=3.0)) as servers:
        urls = ",".join(f"{arm}={url}" for arm, url in servers.urls.items())
        outcome = decided(StudyPlace(database=database, run="mine"), urls, Busy(), said)
        again = decided(StudyPlace(database=database, resume="mine"), urls, Busy(), said)
    assert [step.now for step in outcome.given_up] == [2, 1], said
    assert outcome.run_id == again.run_id == "mine-1-sessions"
    assert [each.stage.criterion for each in outcome.asked][:1] == ["checks"]
    tried = [line for line in said if "could not keep up with" in line]
    assert [line.split("with ")[1].split(" ")[0] for line in tried] == ["4", "2"]
    with reading(database) as connection:
        rows = {row.run_id: row for row in tables.rows(connection, RunRow)}
        lags = {name: max(said_of(connection, name)) for name in rows}
        for name, lag_ms in lags.items():
            report = [
                each.send_lag_p99_ms or 0.0
                for each in gather(connection, run_view(connection, name)).health
            ]
            assert max(report) == pytest.approx(lag_ms), (
                "the terminal and the report name one figure"
            )
    assert list(rows) == ["mine", "mine-2-sessions", "mine-1-sessions"]
    played = {name: study_of(row) for name, row in rows.items()}
    loads = [each.load.sessions for each in played.values() if isinstance(each, Replay)]
    assert loads == [4, 2, 1]
    assert lags["mine"] > 5.0
    assert lags["mine-2-sessions"] > 5.0
    with duckdb.connect(str(database), read_only=True) as connection:
        query = "SELECT options->>'$.caveats[0]' FROM runs WHERE run_id = 'mine-1-sessions'"
        (kept,) = connection.execute(query).fetchone() or (None,)
    assert kept is not None
    assert "with 4 this client could not keep up" in kept
    if outcome.document is not None:
        assert "Measured with 1 session at once" in " ".join(notes(busy_study(urls), outcome))


def said_of(connection: duckdb.DuckDBPyConnection, run: str) -> list[float]:
    """Return how late each part of a run said that its requests left."""
    told = [row.health for row in tables.rows(connection, LegRow, run_id=run)]
    return [json.loads(text)["send_lag_p99_ms"] or 0.0 for text in told if text is not None]


def busy_study(urls: str) -> Decide:
    return Decide(traces=(TraceRef(path="demo-chat"),), servers=Live(endpoints=urls))


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.loopback
def test_a_client_that_never_keeps_up_ends_with_the_reason(tmp_path: Path) -> None:
    arms = arms_of("llama-3.1-8b-h100", ["bf16", "fp8"])
    with start(arms, ServerOptions(noise=False, speed=3.0)) as servers:
        urls = ",".join(f"{arm}={url}" for arm, url in servers.urls.items())
        place = StudyPlace(database=tmp_path / "x.duckdb")
        outcome = decided(place, urls, Busy(until=0), [])
    assert outcome.ending == "late"
    assert outcome.late is not None
    assert "late" in outcome.late
    assert [step.now for step in outcome.given_up] == [2, 1]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.loopback
def test_a_decision_on_a_busy_machine_tries_a_smaller_load_after_every_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    database, said = tmp_path / "x.duckdb", list[str]()
    arms = arms_of("llama-3.1-8b-h100", ["bf16", "fp8"])
    with start(arms, ServerOptions(noise=False, speed=3.0)) as servers, busy_loops(len(cores())):
        urls = ",".join(f"{arm}={url}" for arm, url in servers.urls.items())
        outcome = decided(StudyPlace(database=database), urls, Busy(until=99), said)
    refused = [line for line in said if line.startswith("warning: timings are invalid")]
    tried = [line for line in said if "could not keep up with" in line]
    assert any("requests may leave late" in line for line in said), said
    assert len(refused) == len(tried) + (outcome.late is not None)
    assert (outcome.ending == "late") == (outcome.late is not None)
    if outcome.ending != "late":
        assert outcome.document is not None, said
        assert not refused or outcome.given_up
