from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.builtin import find
from agentload.emulator.calls import Finished
from agentload.emulator.profile import parse
from agentload.emulator.steplog import Stay, StepLog
from agentload.emulator.steptime import off
from agentload.layout.plan import Scheme, plan
from agentload.model.commands import Limits
from agentload.model.plan import ClosedLoop, Load, Plan
from agentload.model.profile import EncoderTime
from agentload.model.rows import BlockRow, CallRow, SampleRow
from agentload.model.stamps import stamps
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.virtual.shell import Shell, stamps_of

ARMS = {
    arm.name: arm
    for arm in parse(
        find("profiles", "llama-3.1-8b-h100").read_text(), name="llama-3.1-8b-h100"
    ).arms
}
S = 1_000_000_000


def said(tokens: int, key: str) -> Segment:
    return Segment(role="user", tokens=tokens, key=key)


def talk(
    name: str, *lengths: tuple[int, int], start_s: float = 0.0, wait_s: float = 1.0
) -> Session:
    turns = tuple(
        Turn(
            add=(said(given, f"{name}.{i}"),), output=out, wait="user", wait_s=wait_s if i else 0.0
        )
        for i, (given, out) in enumerate(lengths)
    )
    return Session(session=name, workload="chat", start_s=start_s, turns=turns)


def planned(
    *sessions: Session,
    arms: tuple[str, ...] = ("bf16",),
    pairs: int = 1,
    limits: Limits | None = None,
    load: Load | None = None,
) -> Plan:
    return plan(
        Trace(header=Header(name="t"), sessions=sessions),
        arms,
        run="r",
        scheme=Scheme(pairs=pairs),
        limits=limits,
        load=load,
    )


def calls(made: Plan, seed: int = 1) -> list[CallRow]:
    return [row for row in Shell(made, ARMS, seed=seed).play() if isinstance(row, CallRow)]


def test_blocks_without_a_call_are_rows_too() -> None:
    rows = list(Shell(planned(arms=("bf16", "fp8"), pairs=2), ARMS, seed=1).play())
    assert len([row for row in rows if isinstance(row, BlockRow)]) == 4


def test_every_call_of_every_pair_is_a_row_with_its_stamps() -> None:
    made = planned(
        talk("a", (1000, 20), (200, 10)),
        talk("b", (3000, 5), start_s=0.5),
        arms=("bf16", "fp8"),
        pairs=2,
    )
    rows = calls(made)
    assert len(rows) == 2 * 3
    for row in rows:
        assert row.status == "ok"
        assert row.sent_ns == row.released_ns
        assert row.chunks is not None
        assert len(row.chunks) == row.output_tokens == row.asked_tokens
        assert row.first_ns == row.chunks.first_ns
        assert row.prompt_tokens == row.context_tokens
        assert row.stamp_source == "virtual"


def test_the_second_turn_is_due_when_the_last_token_of_the_first_came_plus_its_wait() -> None:
    first, second = calls(planned(talk("a", (100, 20), (50, 3), wait_s=2.5)))
    assert first.done_ns is not None
    assert second.due_ns == second.sent_ns == first.done_ns + round(2.5 * S)


def test_equal_seeds_give_equal_bytes_and_rounds_do_not_overlap() -> None:
    made = planned(
        talk("a", (1000, 20), (200, 10)), talk("b", (3000, 50)), arms=("bf16", "fp8"), pairs=2
    )
    once, twice = (
        [msgspec.msgpack.encode(row) for row in Shell(made, ARMS, seed=3).play()] for _ in range(2)
    )
    assert once == twice
    blocks = [row for row in Shell(made, ARMS, seed=3).play() if isinstance(row, BlockRow)]
    assert len(blocks) == 4
    assert all(
        before.ended_ns is not None and before.ended_ns < after.started_ns
        for before, after in pairwise(blocks)
    )


def test_nothing_is_kept_of_sessions_that_are_over() -> None:
    shell = Shell(planned(talk("a", (100, 4), (50, 4)), talk("b", (80, 4))), ARMS, seed=0)
    assert list(shell.play())
    assert not shell._contents._known


def test_a_limit_strikes_in_virtual_time_too() -> None:
    slow = calls(planned(talk("a", (100_000, 500), (10, 3)), limits=Limits(first_ns=S)))
    assert [row.status for row in slow] == ["first_timeout", "first_timeout"]
    assert slow[0].done_ns == S
    late = calls(planned(talk("a", (100, 5000)), limits=Limits(total_ns=S)))
    assert [row.status for row in late] == ["total_timeout"]


def test_an_answer_whose_tokens_keep_coming_is_never_silent_however_long_it_takes() -> None:
    limits = Limits(first_ns=2 * S, idle_ns=S)
    steady, other = calls(
        planned(talk("a", (100, 3000)), talk("b", (100, 2000), start_s=0.1), limits=limits)
    )
    assert (steady.status, other.status) == ("ok", "ok")
    assert all(
        row.done_ns is not None and row.done_ns - row.released_ns > 10 * S
        for row in (steady, other)
    )


def test_a_prompt_longer_than_the_model_is_an_http_error_like_a_servers() -> None:
    (row,) = calls(planned(talk("a", (200_000, 5))))
    assert (row.status, row.http_status) == ("http_error", 400)


def test_a_cancelled_stream_keeps_the_tokens_that_came_and_says_so() -> None:
    rows = calls(
        planned(*(talk(f"s{i}", (100, 50)) for i in range(40)), load=Load(cancel_share=0.5))
    )
    cancelled = [row for row in rows if row.status == "cancelled"]
    assert 8 < len(cancelled) < 32
    assert {row.status for row in rows} == {"ok", "cancelled"}
    assert all(
        row.chunks is not None and len(row.chunks) == (row.output_tokens or 0) < row.asked_tokens
        for row in cancelled
    )


def test_samples_carry_the_names_of_telemetry() -> None:
    rows = list(
        Shell(planned(talk("a", (1000, 400), (1000, 400), wait_s=20.0)), ARMS, seed=1).play()
    )
    names = {row.name for row in rows if isinstance(row, SampleRow)}
    assert {
        "running",
        "waiting",
        "kv_usage",
        "preemptions",
        "prefix_queries",
        "prefix_hits",
    } <= names


def test_an_image_is_encoded_in_virtual_time_once_for_all_sessions_that_show_it() -> None:
    def first_ms(encoder: EncoderTime | None) -> list[float]:
        picture = Segment(role="image", tokens=100, key="p", pixels=(280, 280))
        showing = tuple(
            Session(
                session=name,
                workload="w",
                start_s=start_s,
                turns=(Turn(add=(said(1000, name), picture), output=2),),
            )
            for name, start_s in (("a", 0.0), ("b", 10.0))
        )
        seeing = {"bf16": replace(off(ARMS["bf16"]), encoder=encoder)}
        rows = Shell(planned(*showing), seeing, seed=1).play()
        return [
            (row.first_ns - row.released_ns) / 1e6
            for row in rows
            if isinstance(row, CallRow) and row.first_ns is not None
        ]

    blind, seeing = first_ms(None), first_ms(EncoderTime(ms_per_token=1.0))
    extra = [with_ms - without_ms for with_ms, without_ms in zip(seeing, blind, strict=True)]
    assert extra == pytest.approx([100.0, 0.0], abs=0.01)


def test_a_closed_loop_on_the_engine_keeps_its_concurrency() -> None:
    made = planned(
        *(talk(f"s{i}", (500, 40)) for i in range(12)), load=Load(arrivals=ClosedLoop(sessions=3))
    )
    rows = calls(made)
    edges = sorted(
        [(row.sent_ns or 0, 1) for row in rows] + [(row.done_ns or 0, -1) for row in rows],
        key=lambda edge: (edge[0], edge[1]),
    )
    running = [0]
    for _, step in edges:
        running.append(running[-1] + step)
    assert max(running) == 3


ANSWERS = st.tuples(
    st.lists(st.integers(0, 5 * 10**9), min_size=1, max_size=60),
    st.integers(0, 10**18),
    st.integers(0, 10**15),
    st.integers(0, 60),
)


@given(st.lists(ANSWERS, max_size=4))
def test_whole_calls_are_packed_as_single_stamps_are(
    drawn: list[tuple[list[int], int, int, int]],
) -> None:
    answers, singly = [], []
    for gaps, start, origin, preempted in drawn:
        log = StepLog()
        for at in accumulate(gaps[1:], initial=start):
            log.append(at)
        counts = np.arange(1, len(gaps) + 1, dtype=np.uint16)
        stays = [Stay(log, 1, len(gaps), counts)]
        if 0 < preempted < len(gaps):
            early = Stay(log, 1, preempted, counts)
            stays = [early, Stay(log, preempted + 1, len(gaps), counts[preempted:])]
        ns = [origin + -(-at // 1000) for at in accumulate(gaps[1:], initial=start)]
        answers.append(Finished("r", ns[-1], tuple(stays), 10, 0, 0, origin))
        assert answers[-1].token_ns.tolist() == ns
        assert answers[-1].token_counts.tolist() == counts.tolist()
        singly.append(stamps(ns, counts.tolist()))
    assert list(stamps_of(answers)) == singly
