"""One plan through sockets and through the virtual shell:
equal calls, order, token counts and statuses; stamps alike.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from agentload.builtin import find
from agentload.dispatch.dispatcher import PlayEnd
from agentload.emulator.profile import parse
from agentload.layout.plan import Scheme, plan
from agentload.live.caller import RequestStyle
from agentload.live.runner import RunLeg, Runner
from agentload.live.station import Job
from agentload.live.target import Target
from agentload.live.workers.pool import calling
from agentload.model.commands import Settle
from agentload.model.plan import Load, Plan
from agentload.model.profile import ArmProfile, Noise
from agentload.model.rows import CallRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef
from agentload.prompts.tokenizer import WORD_TOKENS
from agentload.serve.server import ServedArm, ServerOptions, serve
from agentload.store import journal
from agentload.store.places import worker_journals
from agentload.virtual.shell import Shell
from tests.live.rows import Rows

pytestmark = pytest.mark.loopback
SEED = 3
ARMS = {
    arm.name: replace(arm, noise=Noise())
    for arm in parse(
        find("profiles", "llama-3.1-8b-h100").read_text(), name="llama-3.1-8b-h100"
    ).arms
}


def said(role: str, tokens: int, key: str) -> Segment:
    # tests name roles freely
    return Segment(role=role, tokens=tokens, key=key)  # type: ignore[arg-type]


def talk(
    name: str,
    *,
    start_s: float | None,
    turns: int = 3,
    spawn: tuple[str, ...] = (),
    join: tuple[str, ...] = (),
) -> Session:
    first = Turn(add=(said("user", 300, f"{name}.0"),), output=12, spawn=spawn)
    rest = [
        Turn(
            add=(said("assistant", 12, f"{name}.a{i}"), said("tool", 120, f"{name}.{i}")),
            output=20,
            wait="tool",
            wait_s=0.08,
            after=tuple(TurnRef(session=child, turn=-1) for child in join) if i == 1 else (),
        )
        for i in range(1, turns)
    ]
    return Session(session=name, workload="code", start_s=start_s, prefix="P", turns=(first, *rest))


def planned() -> Plan:
    prefix = (said("system", 200, "sys"), said("tools", 420, "tools"))
    sessions = [talk(f"s{i}", start_s=i * 0.07) for i in range(5)]
    sessions[2:3] = [
        talk("parent", start_s=0.2, spawn=("child",), join=("child",)),
        talk("child", start_s=None, turns=2),
    ]
    # a compaction keeps the prefix alone, and a tail that is too long for the model is refused
    sessions.append(
        replace(
            talk("compact", start_s=0.4),
            turns=(
                *talk("compact", start_s=0.4).turns,
                Turn(add=(said("user", 90, "sum"),), output=5, keep=2),
                Turn(add=(said("user", 140_000, "huge"),), output=5),
            ),
        )
    )
    # a live edge: the second session quotes what the model answered to the first
    seen = talk("eye", start_s=0.1, turns=1)
    quoted = Segment(role="user", tokens=9, key="eye.text", source=TurnRef(session="eye", turn=-1))
    main = Session(
        session="main",
        workload="code",
        start_s=0.1,
        prefix="P",
        turns=(
            Turn(
                add=(quoted, said("user", 40, "main.0")),
                output=6,
                after=(TurnRef(session="eye", turn=-1),),
            ),
        ),
    )
    sessions[1:1] = [seen, main]
    trace = Trace(
        header=Header(name="t", seed=SEED, prefixes={"P": prefix}), sessions=tuple(sessions)
    )
    return plan(trace, tuple(ARMS), run="diff", scheme=Scheme(pairs=2), load=Load(max_in_flight=4))


async def live(made: Plan, journals: tuple[Path, ...]) -> list[CallRow]:
    until, all_up = asyncio.Event(), asyncio.Event()
    urls, rows = dict[str, str](), Rows()

    def ready(name: str, running: ServedArm) -> None:
        urls[name] = running.url
        if len(urls) == len(ARMS):
            all_up.set()

    async def started(name: str, arm: ArmProfile) -> None:
        await serve(
            arm, ServerOptions(noise=False), until=until, ready=lambda running: ready(name, running)
        )

    async def barrier(
        settle: Settle, ends: tuple[PlayEnd, ...], *, fault: str | None, again: bool
    ) -> tuple[tuple[int, str], ...]:
        return ()

    async with asyncio.TaskGroup() as tasks:
        for name, arm in ARMS.items():
            tasks.create_task(started(name, arm))
        await all_up.wait()
        job = Job(
            run_id=made.run,
            leg=1,
            seed=0,
            targets=partial(tuple, [Target(arm=name, url=url) for name, url in urls.items()]),
            styles={name: RequestStyle(model=arm.model.name) for name, arm in ARMS.items()},
            trace_seed=SEED,
            block=made.header.block,
            tokenizer=WORD_TOKENS,
        )
        async with calling(job, rows.append, journals=journals) as caller:
            health = await Runner(made, caller, barrier, leg=RunLeg(number=1), journal=rows).play()
        until.set()
    assert health.calls > 0
    assert len(health.workers) == len(journals)
    rows += [row for path in journals for row in journal.read(path)]
    return [row for row in rows if isinstance(row, CallRow)]


@pytest.fixture(
    scope="module", params=[1, pytest.param(2, marks=[pytest.mark.slow, pytest.mark.alone])]
)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[CallRow], list[CallRow]]:
    made = planned()
    virtual = [row for row in Shell(made, ARMS, seed=0).play() if isinstance(row, CallRow)]
    folder = tmp_path_factory.mktemp("journals")
    journals = (
        worker_journals(folder / "leg001.journal", request.param) if request.param > 1 else ()
    )
    return asyncio.run(live(made, journals)), virtual


def test_live_and_virtual_send_the_same_calls_with_the_same_counts_and_ends(
    both: tuple[list[CallRow], list[CallRow]],
) -> None:
    def facts(row: CallRow) -> dict[str, object]:
        return {
            "call": (row.arm, row.pair, row.block, row.session, row.turn, row.attempt),
            "tokens": (
                row.context_tokens,
                row.asked_tokens,
                row.prompt_tokens,
                row.cached_tokens,
                row.output_tokens,
            ),
            "end": (row.status, row.http_status, row.finish_reason),
            "chunks": len(row.chunks) if row.chunks else None,
        }

    seen, expected = ({row.request_id: facts(row) for row in rows} for rows in both)
    assert seen == expected
    assert {"ok", "http_error"} == {row.status for row in both[0]}
    assert any(row.cached_tokens for row in both[0])


def test_live_and_virtual_keep_the_order_within_each_session(
    both: tuple[list[CallRow], list[CallRow]],
) -> None:
    def order(rows: list[CallRow]) -> dict[tuple[str, int, str], list[int]]:
        out: dict[tuple[str, int, str], list[int]] = {}
        for row in sorted(rows, key=lambda row: row.released_ns):
            out.setdefault((row.arm, row.pair, row.session), []).append(row.turn)
        return out

    assert order(both[0]) == order(both[1])


def test_arms_got_the_same_bytes_but_for_their_own_answers(
    both: tuple[list[CallRow], list[CallRow]],
) -> None:
    hashes: dict[tuple[int, str, int], set[str | None]] = {}
    for row in both[0]:
        if row.session == "main":
            continue
        hashes.setdefault((row.pair, row.session, row.turn), set()).add(row.prompt_hash)
    assert all(len(found) == 1 and None not in found for found in hashes.values())


@pytest.mark.slow
@pytest.mark.alone
def test_live_stamps_are_those_of_virtual_time(both: tuple[list[CallRow], list[CallRow]]) -> None:
    # Bounds for a busy machine; `make bench` prints how close they are on a quiet one.
    virtual = {row.request_id: row for row in both[1]}
    ttft_ms, token_ms = [], []
    for row in both[0]:
        twin = virtual[row.request_id]
        if row.status != "ok" or row.sent_ns is None or row.first_ns is None or row.last_ns is None:
            continue
        assert twin.sent_ns is not None
        assert twin.first_ns is not None
        assert twin.last_ns is not None
        ttft_ms.append(abs((row.first_ns - row.sent_ns) - (twin.first_ns - twin.sent_ns)) / 1e6)
        token_ms.append(
            abs((row.last_ns - row.first_ns) - (twin.last_ns - twin.first_ns))
            / 1e6
            / (row.asked_tokens - 1)
        )
    assert median(ttft_ms) < 10
    assert median(token_ms) < 1
