"""Whatever a server does, the run ends, the other arm loses
nothing, and nothing is called ok that did not end well.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from agentload.dispatch.call import GOOD_ENDS
from agentload.dispatch.dispatcher import PlayEnd
from agentload.live.caller import RequestStyle
from agentload.live.runner import RunLeg, Runner
from agentload.live.station import Called, Job
from agentload.live.target import Target
from agentload.live.workers.pool import calling
from agentload.model.commands import Limits, Send, Settle
from agentload.model.plan import Play, Round
from agentload.model.rows import CallRow
from agentload.model.trace import Session, Turn
from agentload.prompts.tokenizer import WORD_TOKENS
from tests.dispatch.playing import one_block, said
from tests.live.calls import MS
from tests.live.hostile import MODES, TIMED_OUT
from tests.live.rows import Rows
from tests.live.scripted import Peer, serving

SECOND = 1_000 * MS
pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("read_path")]
HANGING_S = 120
"""Only a run that hangs takes so long, however busy the machine is."""
PATIENT = Limits(
    connect_ns=HANGING_S * SECOND,
    first_ns=HANGING_S * SECOND,
    idle_ns=HANGING_S * SECOND,
    total_ns=HANGING_S * SECOND,
)
LONG = {
    "text_without_end",
    "tokens_without_end",
    "comments_without_end",
    "event_without_end",
    "an_event_of_200000_lines",
    "comments_of_2_mb_ahead_of_the_answer",
    "empty_deltas_without_end",
    "a_token_now_and_then_for_ever",
    "a_head_that_drips",
    "answers_when_nobody_else_comes",
    "text_of_15_mb_in_one_event",
    "answer_of_18_mb",
    "error_body_of_18_mb",
}
"""Modes whose calls end by megabytes or by time limits, one after the other."""
PATHS = ("interpreter", "thread")
HASTY = Limits(
    connect_ns=HANGING_S * SECOND, first_ns=1_000 * MS, idle_ns=500 * MS, total_ns=1_500 * MS
)


def cases() -> Iterator[object]:
    """Yield every mode on both paths; the fast tests take the one and the other in turn."""
    for place, name in enumerate(MODES):
        for number, path in enumerate(PATHS):
            is_slow = name in LONG or number != place % 2
            yield pytest.param(path, name, marks=pytest.mark.slow if is_slow else ())


async def barrier(
    settle: Settle, ends: tuple[PlayEnd, ...], *, fault: str | None, again: bool
) -> tuple[tuple[int, str], ...]:
    return ()


async def rows_of(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[CallRow]]:
    """Play two sessions of two turns against a good
    server, and at the same time against a hostile one.
    """
    talks = tuple(
        Session(
            session=session,
            workload="chat",
            start_s=0.0,
            turns=tuple(
                Turn(add=(said("user", 4, f"{session}.{number}"),), output=3) for number in range(2)
            ),
        )
        for session in "st"
    )
    plays = tuple(Play(block=0, arm=arm, pair=0, salt="salt") for arm in ("good", "hostile"))
    limits = HASTY if MODES[name].ends & TIMED_OUT else PATIENT
    plan = replace(
        one_block(talks, arms=("good", "hostile")),
        rounds=(Round(index=0, plays=plays),),
        limits=limits,
    )
    rows = Rows()
    async with serving(Peer.answer) as good, serving(MODES[name].answer) as hostile:
        targets = [
            Target(arm="good", url=good.url, ends_with_mark=True),
            Target(arm="hostile", url=hostile.url, ends_with_mark=True),
        ]
        job = Job(
            run_id="run",
            leg=1,
            seed=0,
            targets=partial(tuple, targets),
            styles={target.arm: RequestStyle(model="m") for target in targets},
            trace_seed=0,
            block=64,
            tokenizer=WORD_TOKENS,
        )
        async with asyncio.timeout(HANGING_S), calling(job, rows.append) as caller:
            call = caller.call

            async def patient(send: Send, streamed: Callable[[int], None]) -> Called:
                is_good = send.arm == "good"  # however long this machine stands still
                return await call(replace(send, limits=PATIENT) if is_good else send, streamed)

            monkeypatch.setattr(caller, "call", patient)
            await Runner(plan, caller, barrier, leg=RunLeg(number=1), journal=rows).play()
        hostile.failures.clear()  # it was hung up on
    return {
        arm: [row for row in rows if isinstance(row, CallRow) and row.arm == arm]
        for arm in ("good", "hostile")
    }


@pytest.mark.parametrize(("read_path", "name"), list(cases()), indirect=["read_path"])
async def test_whatever_a_server_does_costs_its_own_calls_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = await rows_of(name, monkeypatch)
    assert [row.status for row in rows["good"]] == ["ok"] * 4
    mode, sent = MODES[name], [row for row in rows["hostile"] if row.status != "not_sent"]
    assert len(rows["hostile"]) == 4
    assert {row.status for row in sent} <= mode.ends, sent[0].error
    assert sent
    for row in sent:
        assert (row.status != "ok") or (row.finish_reason in GOOD_ENDS and row.output_tokens == 3)
        assert len(row.error or "") <= 300
        assert all((text or "").isprintable() for text in (row.error, row.finish_reason)), row
        assert mode.says in (row.error or "")
