"""A decision on real sockets: stopped, killed, or with a server
that dies, it loses nothing and goes on within its budget.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer

import duckdb
import pytest

from agentload.decision import means
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.errors import AgentloadError
from agentload.evidence.view import run_view
from agentload.live import health
from agentload.model.commands import Send
from agentload.model.rows import CallRow
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace
from agentload.run.servers import arms_of
from agentload.serve.processes import Servers, start
from agentload.serve.server import ServerOptions
from agentload.store.database import reading
from agentload.study.change import extend
from agentload.study.kinds import Decide
from agentload.study.parts import Live, Load, TraceRef

pytestmark = pytest.mark.loopback

LOAD = Load(sessions=2, duration_s=1.5, wait_cap_s={"user": 0.1, "tool": 0.1})


@pytest.fixture(autouse=True)
def any_lateness_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a machine that is busy with other tests go on under the load that it began with."""
    for limit in ("MAX_SEND_LAG_MS", "MAX_STALL_MS", "MAX_COALESCED_SHARE"):
        monkeypatch.setattr(health, limit, math.inf)


@contextmanager
def serving(*arms: str, port: int = 0) -> Iterator[Servers]:
    with start(
        arms_of("llama-3.1-8b-h100", arms or ["bf16", "fp8"]),
        ServerOptions(noise=False, speed=3.0, port=port),
    ) as servers:
        yield servers


def study(endpoints: str) -> Decide:
    return Decide(
        traces=(TraceRef(path="demo-chat"),),
        servers=Live(endpoints=endpoints),
        load=LOAD,
        budget_s=240.0,
    )


def urls(servers: Servers) -> str:
    return ",".join(f"{arm}={url}" for arm, url in servers.urls.items())


@dataclass
class Listener:
    """Hears a decision, and stops it over the question with a number."""

    stops_at: int
    asked: list[str] = field(default_factory=list)

    def notice(self, text: str) -> None:
        """Count questions."""
        if text.startswith("asking: "):
            self.asked.append(text)
            if len(self.asked) == self.stops_at:
                raise KeyboardInterrupt


@dataclass
class Hanging:
    """Hears the calls of a pair, and has a server hang
    once one of its calls is over and another is under way.
    """

    pid: int
    ended_arms: set[str] = field(default_factory=set)

    def sent(self, send: Send) -> None:
        """Stop the server in its second call."""
        if send.arm in self.ended_arms and send.arm == "fp8":
            os.kill(self.pid, signal.SIGSTOP)

    def ended(self, send: Send, ended: CallRow) -> None:
        """Note whose calls are answered."""
        if ended.status == "ok":
            self.ended_arms.add(send.arm)


def decided(
    made: Decide, place: StudyPlace, *, stops_at: int
) -> tuple[DecisionOutcome, Deciding, list[str]]:
    listener = Listener(stops_at)
    deciding = Deciding(study=made, place=place, audience=Audience(notice=listener.notice))
    return deciding.play(), deciding, listener.asked


def stored(database: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.slow
def test_a_decision_that_is_stopped_decides_on_what_is_there_and_goes_on_within_what_is_left(
    tmp_path: Path,
) -> None:
    place = StudyPlace(database=tmp_path / "x.duckdb")
    with serving() as servers:
        made = study(urls(servers))
        outcome, first, _ = decided(made, place, stops_at=5)
        assert outcome.ending in ("stopped", "open"), (
            "open where this machine is too busy to time anything"
        )
        assert outcome.document is not None
        assert [each.stage.amount for each in outcome.asked] == [1, 1, 12, 4], (
            "checks, a pair, a canary, and the first look"
        )
        spent = 4.0 - outcome.left_minutes
        assert 0 < sum(each.minutes for each in outcome.asked) <= spent + 1e-6
        calls = stored(place.database, "SELECT count(*) FROM calls_row")
        began_s = time.monotonic()
        resumed, later, asked = decided(
            made, StudyPlace(database=place.database, resume=outcome.run_id), stops_at=1
        )
        took_s = time.monotonic() - began_s
    assert later.known.ledger.asked == first.known.ledger.asked
    assert 0 <= 60 * (outcome.left_minutes - resumed.left_minutes) <= took_s
    assert stored(place.database, "SELECT count(*) FROM calls_row") == calls
    assert all("4 block pairs" not in each for each in asked), "what was played is not played again"


@pytest.mark.slow
def test_a_killed_decision_goes_on_from_its_journals_before_there_is_a_database(
    tmp_path: Path,
) -> None:
    place = StudyPlace(database=tmp_path / "x.duckdb")
    with serving() as servers:
        made = study(urls(servers))
        outcome, _, _ = decided(made, place, stops_at=4)
        place.database.unlink()
        shutil.rmtree(tmp_path / "x.duckdb.wal", ignore_errors=True)
        for path in (tmp_path / "x.journal" / outcome.run_id).glob("decision.journal"):
            path.unlink()
        resumed, later, _ = decided(
            made, StudyPlace(database=place.database, resume=outcome.run_id), stops_at=4
        )
    assert resumed.document is not None
    assert later.known.ledger.lost_minutes[0] > 0, "the time of the question that was killed counts"


@pytest.mark.slow
def test_a_server_that_dies_ends_a_decision_with_the_command_that_resumes_it(
    tmp_path: Path,
) -> None:
    database, said = tmp_path / "x.duckdb", list[str]()
    with serving("bf16") as one, serving("fp8") as other, serving("bf16") as impostor:
        made = study(f"{urls(one)},{urls(other)}")

        def notice(text: str) -> None:
            said.append(text)
            if "4 block pairs" in text:
                Timer(4.0, other.stop).start()

        deciding = Deciding(
            study=made, place=StudyPlace(database=database), audience=Audience(notice=notice)
        )
        with pytest.raises(AgentloadError) as error:
            deciding.play()
        assert f"--resume {deciding.run}" in (error.value.hint or "")
        # Its calls notice it, or whoever asks it for its settings before they are sent.
        is_unreachable = error.value.message.startswith("fp8: cannot reach")
        assert is_unreachable or any(
            each.startswith("fp8 stopped answering (") and each.endswith("): stopping")
            for each in said
        )
        kept = stored(database, "SELECT count(*) FROM calls_row")
        assert kept > [(0,)]
        replaced = study(f"{urls(one)},fp8={impostor.urls['bf16']}")
        with pytest.raises(AgentloadError, match="kv_cache_dtype"):
            decided(replaced, StudyPlace(database=database, resume=deciding.run), stops_at=9)
        assert stored(database, "SELECT count(*) FROM calls_row") == kept
    with serving("fp8") as again, serving("bf16") as one:
        resumed, _, _ = decided(
            study(f"{urls(one)},{urls(again)}"),
            StudyPlace(database=database, resume=deciding.run),
            stops_at=3,
        )
    assert resumed.document is not None
    assert (
        len(
            stored(
                database,
                "SELECT pair FROM blocks WHERE void IS NULL GROUP BY pair HAVING "
                "count(DISTINCT arm) = 2",
            )
        )
        == 4
    )


@pytest.mark.slow
def test_a_server_that_hangs_ends_a_decision_which_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(means, "SILENT_SHARE", 0.03)  # seconds, and not half a minute each time
    database, asked = tmp_path / "x.duckdb", list[str]()
    with serving("bf16") as one, serving("fp8") as other:
        made, (pid,) = study(f"{urls(one)},{urls(other)}"), (each.pid for each in other.servers)

        audience = Audience(progress=lambda *_: nullcontext(Hanging(pid)))
        deciding = Deciding(study=made, place=StudyPlace(database=database), audience=audience)
        with pytest.raises(
            AgentloadError, match=r"fp8 (stopped answering|did not answer)"
        ) as error:  # within a window, or after it
            deciding.play()
        assert f"--resume {deciding.run}" in (error.value.hint or "")
        kept = stored(database, "SELECT request_id FROM calls_row")
        assert kept
        os.kill(pid, signal.SIGCONT)
        made = extend(made, budget_s=480.0)  # waiting for the server took most of the first one
        with suppress(AgentloadError):  # this machine may be too busy to time anything
            asked = decided(made, StudyPlace(database=database, resume=deciding.run), stops_at=2)[2]
    assert all("checks" not in each for each in asked), "what was asked is not asked again"
    assert set(kept) < set(stored(database, "SELECT request_id FROM calls_row"))


@pytest.mark.slow
def test_emulated_servers_are_started_once_for_all_that_is_asked(tmp_path: Path) -> None:
    place = StudyPlace(database=tmp_path / "x.duckdb")
    outcome, _, asked = decided(study("emulated:llama-3.1-8b-h100"), place, stops_at=5)
    assert outcome.document is not None
    assert asked
    # Servers that are only asked questions need not take the time of real ones, and are others.
    with reading(place.database) as connection:
        assert {play.restart for play in run_view(connection, outcome.run_id).plays} == {0}
