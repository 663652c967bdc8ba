"""A decision whose challenger lists its model and counts prompts
honestly, and answers wrongly: it names the reason, and the reference stays.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from agentload.decision import means
from agentload.decision.budget import BudgetLimit
from agentload.decision.look import Criterion, Look
from agentload.decision.play import Deciding
from agentload.errors import AgentloadError, EndpointError
from agentload.live import health
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace
from agentload.run.servers import arms_of
from agentload.serve.server import ServerOptions
from agentload.store.database import reading
from agentload.store.places import began
from agentload.study.kinds import Decide
from agentload.study.parts import Live, Load, TraceRef
from tests.live.hostile import MODES
from tests.live.hostility import behind
from tests.live.scripted import END, STREAM, Answer, Peer, good, serving
from tests.serve.serving import served

pytestmark = [pytest.mark.loopback, pytest.mark.slow]
LOAD = Load(sessions=2, duration_s=1.0, wait_cap_s={"user": 0.1, "tool": 0.1})


@pytest.fixture(autouse=True)
def any_lateness_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a machine that is busy with other tests play all the same."""
    monkeypatch.setenv("AGENTLOAD_CLIENT_CHECK", "0")
    for limit in ("MAX_SEND_LAG_MS", "MAX_STALL_MS", "MAX_COALESCED_SHARE"):
        monkeypatch.setattr(health, limit, math.inf)


@pytest.mark.parametrize(
    ("mode", "status", "reason"),
    [
        ("error_body_that_drives_a_terminal", "http_error", "engine"),
        ("event_of_nested_lists", "unreadable", "Expected `object`, got `array`"),
    ],
)
async def test_a_challenger_that_answers_wrongly_is_named_with_the_reason_and_never_used(
    mode: str, status: str, reason: str, tmp_path: Path
) -> None:
    said = list[str]()
    database = tmp_path / "x.duckdb"
    arms, options = arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]), ServerOptions(speed=3.0)
    async with (
        served(arms[0], options) as good,
        served(arms[1], options) as bad,
        serving(behind(bad.url, MODES[mode].answer)) as hostile,
    ):
        study = Decide(
            traces=(TraceRef(path="demo-chat"),),
            servers=Live(endpoints=f"good={good.url},bad={hostile.url}", force=True),
            load=LOAD,
            budget_s=240.0,
        )
        place, audience = StudyPlace(database=database), Audience(notice=said.append)
        deciding = Deciding(study=study, place=place, audience=audience)
        document = None
        with suppress(AgentloadError):  # pairs that a busy machine made invalid, or 16 failures
            document = (await asyncio.to_thread(deciding.play)).document
        hostile.failures.clear()
    assert document is None or document.headline.startswith("stay on good")
    assert any("bad: prefix reuse could not be tried: " in each and reason in each for each in said)
    named = re.compile(rf"warning: bad: \d+ {status}, such as: .*{re.escape(reason)}")
    assert any(named.match(each) for each in said)
    assert streams_ended(database) == {status}


async def test_servers_that_answer_no_prompt_end_a_decision_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    async def refuse(peer: Peer) -> None:
        told = b'{"error": {"message": "no such token", "type": "InternalServerError"}}'
        head = f"HTTP/1.1 500 Internal Server Error\r\ncontent-length: {len(told)}\r\n"
        await peer.send(head.encode() + b"content-type: application/json\r\n\r\n" + told)

    (arm,), options = arms_of("llama-3.1-8b-h100", ["bf16"]), ServerOptions(speed=3.0)
    async with served(arm, options) as one, serving(behind(one.url, refuse)) as silent:
        study = Decide(
            traces=(TraceRef(path="demo-chat"),),
            servers=Live(endpoints=f"good={one.url},bad={silent.url}"),
            load=LOAD,
            budget_s=240.0,
        )
        place = StudyPlace(database=tmp_path / "x.duckdb")
        deciding = Deciding(study=study, place=place, audience=Audience())
        with pytest.raises(
            EndpointError, match=r"^bad answers no prompt: .*no such token"
        ) as ended:
            await asyncio.to_thread(deciding.play)
        silent.failures.clear()
    assert ended.value.hint is not None
    assert "--force" in ended.value.hint
    assert began(place.database, deciding.run) is None


def streams_ended(database: Path) -> set[str]:
    """Return how the hostile arm's calls ended, but for those that we ended."""
    with reading(database) as connection:
        query = "SELECT DISTINCT status FROM calls WHERE arm = 'bad' AND asked_tokens > 1"
        ends = {each for (each,) in connection.execute(query).fetchall()}
    return ends - {"cancelled", "not_sent", "stopped"}


def study_of(endpoints: str, *, budget_s: float = 240.0) -> Decide:
    return Decide(
        traces=(TraceRef(path="demo-chat"),),
        servers=Live(endpoints=endpoints, force=True),
        load=LOAD,
        budget_s=budget_s,
    )


@asynccontextmanager
async def challenged(
    wrong: Answer, only: Literal["streams", "questions"] | None = None
) -> AsyncIterator[str]:
    """Serve a good arm, and one that answers wrongly; yield both as endpoints."""
    (arm,), options = arms_of("llama-3.1-8b-h100", ["bf16"]), ServerOptions(speed=3.0)
    async with (
        served(arm, options) as good,
        served(arm, options) as bad,
        serving(behind(bad.url, wrong, only=only)) as hostile,
    ):
        yield f"good={good.url},bad={hostile.url}"
        hostile.failures.clear()


async def test_a_challenger_that_answers_no_question_is_named_within_a_share_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(means, "SILENT_SHARE", 0.03)
    said = list[str]()
    async with challenged(MODES["half_closed_behind_the_head"].answer, "questions") as endpoints:
        place, audience = StudyPlace(database=tmp_path / "x.duckdb"), Audience(notice=said.append)
        deciding = Deciding(study=study_of(endpoints), place=place, audience=audience)
        with suppress(AgentloadError):  # pairs that a busy machine made invalid
            await asyncio.to_thread(deciding.play)
    assert "warning: bad failed 12 questions, the last with: no whole answer in time" in said
    (took,) = deciding.known.ledger.looks("canary").values()
    assert took < study_of(endpoints).budget_s / 60 / 2, "each of two rounds waits for that share"


async def test_a_stream_that_drips_for_ever_ends_with_a_share_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share in ("ANSWER_SHARE", "SILENT_SHARE"):
        monkeypatch.setattr(means, share, 0.03)
    database = tmp_path / "x.duckdb"
    async with challenged(MODES["a_token_now_and_then_for_ever"].answer, "streams") as endpoints:
        place = StudyPlace(database=database)
        deciding = Deciding(study=study_of(endpoints), place=place, audience=Audience())
        async with asyncio.timeout(270):
            with suppress(AgentloadError):  # pairs that a busy machine made invalid
                await asyncio.to_thread(deciding.play)
    assert streams_ended(database) == {"total_timeout"}


def limit_questions_to(
    seconds: float, monkeypatch: pytest.MonkeyPatch, *, criterion: Criterion
) -> asyncio.Event:
    """End questions of a criterion after so many *seconds*, but for a first pair.

    Returns what is set once one of them is asked.
    """
    asked, usual = asyncio.Event(), Deciding._limit

    def limited(deciding: Deciding, look: Look) -> BudgetLimit:
        limit = usual(deciding, look)
        if look.criterion != criterion or look == Look(criterion="speed"):
            return limit
        asked.set()
        return replace(limit, ends_s=time.monotonic() + seconds, ending_s=1.0)

    monkeypatch.setattr(Deciding, "_limit", limited)
    return asked


async def test_questions_that_the_budget_ends_count_for_no_arm_and_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, database = list[str](), tmp_path / "x.duckdb"
    limit_questions_to(0.0, monkeypatch, criterion="canary")
    async with challenged(MODES["half_closed_behind_the_head"].answer, "questions") as endpoints:
        place, audience = StudyPlace(database=database), Audience(notice=said.append)
        deciding = Deciding(study=study_of(endpoints), place=place, audience=audience)
        ended = await asyncio.to_thread(deciding.play)
    assert (ended.ending, ended.wants and ended.wants[0].criterion) == ("budget", "canary")
    assert "  the budget ended 12 questions before their answers: they count for no arm" in said
    assert "the budget is spent: what is in flight has 1 s to end; Ctrl-C ends it now" in said
    assert "canary" not in {each.stage.criterion for each in ended.asked}
    with reading(database) as connection:
        assert connection.execute("SELECT count(*) FROM answers").fetchone() == (0,)


async def test_a_challenger_that_never_answers_costs_checks_a_share_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(means, "SILENT_SHARE", 0.01)
    said = list[str]()
    async with challenged(MODES["half_closed_behind_the_head"].answer) as endpoints:
        place, audience = StudyPlace(database=tmp_path / "x.duckdb"), Audience(notice=said.append)
        study = study_of(endpoints, budget_s=180.0)
        deciding = Deciding(study=study, place=place, audience=audience)
        async with asyncio.timeout(180):
            with suppress(AgentloadError):
                await asyncio.to_thread(deciding.play)
    assert "warning: bad: prefix reuse could not be tried: no whole answer in time" in said
    assert "warning: bad: no prompt was answered" in said


async def test_a_stream_that_drips_in_a_later_pair_ends_with_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, database = list[str](), tmp_path / "x.duckdb"
    paired = limit_questions_to(5.0, monkeypatch, criterion="speed")

    async def answer(peer: Peer) -> None:
        if paired.is_set():
            await MODES["a_token_now_and_then_for_ever"].answer(peer)
            return
        await peer.send(STREAM)
        for payload in good(json.loads(peer.request.body)["max_tokens"]):
            await peer.events(payload)
            await asyncio.sleep(0.005)  # what comes in one piece is no stream
        await peer.send(END)

    async with challenged(answer, "streams") as endpoints:
        place, audience = StudyPlace(database=database), Audience(notice=said.append)
        deciding = Deciding(study=study_of(endpoints), place=place, audience=audience)
        async with asyncio.timeout(270):
            ended = await asyncio.to_thread(deciding.play)
    assert (ended.ending, ended.wants and ended.wants[0].criterion) == ("budget", "speed")
    assert "  the budget ended 4 block pairs: what is not whole does not count" in said
    assert streams_ended(database) == {"ok"}
