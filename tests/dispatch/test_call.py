from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.dispatch.answer import CallTerms, Parsed, ReplyToolCall
from agentload.dispatch.call import CallMachine
from agentload.dispatch.fault import Fault
from agentload.model.commands import Limits, Outcome, Reply, Status
from agentload.model.stamps import stamps

LIMITS = Limits(connect_ns=100, first_ns=1_000, idle_ns=300, total_ns=5_000)
T0 = 10_000
GOOD = Parsed(
    stamps_ns=(T0 + 60, T0 + 80),
    tokens=(1, 2),
    token_rule="token_ids",
    first_answer_ns=T0 + 60,
    prompt_tokens=9,
    output_tokens=3,
    finish_reason="length",
    has_end_mark=True,
    text="a b c",
)


def machine(asked: CallTerms | None = None) -> CallMachine:
    return CallMachine(
        released_ns=T0, limits=LIMITS, asked=asked or CallTerms(tokens=3, is_forced=True)
    )


def streaming(asked: CallTerms | None = None, *, status: int = 200) -> CallMachine:
    call = machine(asked)
    call.opened(T0 + 10)
    call.sent(T0 + 20)
    call.head(status, replica="peer")
    call.heard(T0 + 60)
    return call


def closed(**changes: object) -> Outcome:
    call = streaming()
    call.heard(T0 + 80)
    call.closed(T0 + 90)
    return call.outcome(_with(**changes))


def _with(**changes: object) -> Parsed:
    return Parsed(
        **{**{name: getattr(GOOD, name) for name in Parsed.__dataclass_fields__}, **changes}
    )


def test_a_call_that_fails_ahead_of_its_instant_ends_at_that_instant() -> None:
    call = machine()
    call.failed(T0 - 40, "refused", "nobody listens")
    assert call.outcome(stamp_source="user").done_ns == T0


def test_a_good_call_tells_everything() -> None:
    call = streaming(CallTerms(tokens=3, is_forced=True, wants_reply=True))
    call.heard(T0 + 85)
    call.closed(T0 + 90)
    assert call.outcome(GOOD, stamp_source="kernel") == Outcome(
        status="ok",
        opened_ns=T0 + 10,
        sent_ns=T0 + 20,
        first_ns=T0 + 60,
        first_answer_ns=T0 + 60,
        last_ns=T0 + 80,
        done_ns=T0 + 85,
        chunks=stamps([T0 + 60, T0 + 80], [1, 2]),
        stamp_source="kernel",
        coalesced_reads=0,
        token_rule="token_ids",
        prompt_tokens=9,
        output_tokens=3,
        http_status=200,
        finish_reason="length",
        replica="peer",
        reply=Reply(text="a b c", tokens=3),
    )


def test_a_reply_says_which_tool_was_called() -> None:
    call = streaming(CallTerms(tokens=3, is_forced=True, wants_reply=True))
    call.closed(T0 + 90)
    found = call.outcome(
        _with(tool_calls=(ReplyToolCall(name="ls", arguments='{"path":"/a"}'),))
    ).reply
    assert found is not None
    assert found.called == '{"name": "ls", "arguments": {"path": "/a"}}'


def refused(call: CallMachine) -> None:
    call.failed(T0 + 5, "refused", "nobody listens")


def connect_timeout(call: CallMachine) -> None:
    call.expired(T0 + 100)


def first_timeout(call: CallMachine) -> None:
    call.opened(T0 + 10)
    call.head(200)
    call.expired(T0 + 1_000)


def idle_timeout(call: CallMachine) -> None:
    call.opened(T0 + 10)
    call.heard(T0 + 900)
    call.expired(T0 + 1_200)


def total_timeout(call: CallMachine) -> None:
    call.opened(T0 + 10)
    call.heard(T0 + 4_900)
    call.expired(T0 + 5_000)


def reset_before_any_byte(call: CallMachine) -> None:
    call.opened(T0 + 10, is_new=False)
    call.cut(T0 + 20)


def reset(call: CallMachine) -> None:
    call.opened(T0 + 10)
    call.heard(T0 + 60)
    call.failed(T0 + 70, "reset", "ConnectionResetError")


def cancelled(call: CallMachine) -> None:
    call.opened(T0 + 10)
    call.heard(T0 + 60)
    call.cancel(T0 + 70)


def stopped(call: CallMachine) -> None:
    call.cancel(T0 + 5, "stopped")


def no_http(call: CallMachine) -> None:
    call.opened(T0 + 10)
    call.failed(T0 + 70, "unreadable", "this is not HTTP")


NETWORK: list[tuple[Callable[[CallMachine], None], Status, str | None]] = [
    (refused, "refused", "nobody listens"),
    (connect_timeout, "connect_timeout", "no connection in time"),
    (first_timeout, "first_timeout", "no byte of the answer in time"),
    (idle_timeout, "idle_timeout", "the stream went silent"),
    (total_timeout, "total_timeout", "the answer took too long"),
    (
        reset_before_any_byte,
        "reset",
        "the server closed the connection before any byte of the answer",
    ),
    (reset, "reset", "ConnectionResetError"),
    (cancelled, "cancelled", None),
    (stopped, "stopped", None),
    (no_http, "unreadable", "this is not HTTP"),
]


@pytest.mark.parametrize(
    ("happens", "status", "error"), NETWORK, ids=lambda value: getattr(value, "__name__", None)
)
def test_what_the_network_did_decides_when_the_answer_is_not_whole(
    happens: Callable[[CallMachine], None], status: Status, error: str | None
) -> None:
    call = machine()
    happens(call)
    outcome = call.outcome(_with(finish_reason=None, has_end_mark=False))
    assert (outcome.status, outcome.error, call.deadline_ns()) == (status, error, None)


@pytest.mark.parametrize("happens", [reset, cancelled, idle_timeout])
def test_a_whole_answer_stays_whole_when_the_connection_misbehaves_after_it(
    happens: Callable[[CallMachine], None],
) -> None:
    call = machine()
    call.head(200)
    happens(call)
    assert call.outcome(GOOD).status == "ok"


ANSWERS: list[tuple[dict[str, object], Status, str | None]] = [
    ({}, "ok", None),
    ({"fault": Fault(kind="E", message="broken", code=500)}, "stream_error", "E: broken"),
    ({"fault": Fault(kind="E", message="full", code=503)}, "busy", "503 E: full"),
    ({"unreadable": "no JSON"}, "unreadable", "no JSON"),
    ({"finish_reason": None}, "truncated", "the answer has no finish_reason"),
    ({"has_end_mark": False}, "truncated", "the answer has no end mark"),
    ({"output_tokens": 2}, "short", "2 tokens where 3 were forced (length)"),
    ({"output_tokens": 4}, "long", "4 tokens where 3 were asked"),
    (
        {"output_tokens": 6},
        "long",
        "usage says 6 tokens where 3 were asked and 2 chunks came: usage disagrees with the stream",
    ),
    ({"output_tokens": 2, "token_rule": "one_a_chunk"}, "ok", None),
    ({"output_tokens": None}, "ok", None),
    ({"text": "!" * 400}, "garbage", "repetition: nothing but '!'"),
    ({"finish_reason": "tool_calls"}, "ok", None),
    ({"finish_reason": "function_call"}, "ok", None),
    ({"finish_reason": "error"}, "aborted", "the answer ended with the finish reason 'error'"),
    (
        {"finish_reason": "abort", "output_tokens": 2},
        "aborted",
        "the answer ended with the finish reason 'abort'",
    ),
    (
        {"finish_reason": "content_filter"},
        "filtered",
        "the answer ended with the finish reason 'content_filter'",
    ),
    ({"finish_reason": "banana"}, "unreadable", "the answer ended with the finish reason 'banana'"),
]


@pytest.mark.parametrize(("changes", "status", "error"), ANSWERS)
def test_a_clean_end_is_checked(
    changes: dict[str, object], status: Status, error: str | None
) -> None:
    outcome = closed(**changes)
    assert (outcome.status, outcome.error) == (status, error)


@pytest.mark.parametrize(
    ("code", "fault", "status", "error"),
    [
        (429, Fault(kind="E", message="slow down"), "busy", "E: slow down"),
        (503, None, "busy", "HTTP 503"),
        (400, Fault(kind="E", message="too long", code=400), "http_error", "E: too long"),
        (502, None, "http_error", "HTTP 502"),
        (307, None, "http_error", "HTTP 307"),
    ],
)
def test_a_refusal_is_told_apart_from_being_busy(
    code: int, fault: Fault | None, status: Status, error: str
) -> None:
    call = streaming(status=code)
    call.closed(T0 + 90)
    outcome = call.outcome(Parsed(fault=fault))
    assert (outcome.status, outcome.error, outcome.http_status) == (status, error, code)


def test_every_status_but_not_sent_is_reached_by_these_tables() -> None:
    reached = (
        {status for _, status, _ in NETWORK} | {status for _, status, _ in ANSWERS} | {"http_error"}
    )
    assert reached == set(get_args(Status)) - {"not_sent"}


def test_a_connection_that_ends_in_mid_answer_truncates_it() -> None:
    call = streaming()
    call.cut(T0 + 90)
    outcome = call.outcome(_with(finish_reason=None, has_end_mark=False))
    assert (outcome.status, outcome.error, outcome.done_ns) == (
        "truncated",
        "the connection ended before the answer did",
        T0 + 90,
    )


def test_a_server_without_end_marks_ends_with_its_finish_reason() -> None:
    call = streaming(CallTerms(tokens=3, is_forced=True, ends_with_mark=False))
    call.closed(T0 + 90)
    assert call.outcome(_with(has_end_mark=False)).status == "ok"


def test_fewer_tokens_are_no_fault_when_none_were_forced() -> None:
    call = streaming(CallTerms(tokens=3))
    call.closed(T0 + 90)
    assert call.outcome(_with(output_tokens=1, finish_reason="stop")).status == "ok"


def test_an_answer_that_says_it_reached_a_length_which_nobody_asked_for_is_short() -> None:
    call = streaming(CallTerms(tokens=3))
    call.closed(T0 + 90)
    outcome = call.outcome(_with(output_tokens=2, finish_reason="length"))
    assert (outcome.status, outcome.error) == ("short", "cut at 2 tokens, where up to 3 were asked")


def test_an_aborted_answer_stays_one_when_no_length_was_forced() -> None:
    call = streaming(CallTerms(tokens=5))
    call.closed(T0 + 90)
    assert call.outcome(_with(output_tokens=2, finish_reason="abort")).status == "aborted"


def test_the_limit_of_each_stage_counts_from_the_release_and_the_idle_limit_from_the_last_byte() -> (
    None
):
    call = machine()
    seen = [call.deadline_ns()]
    call.opened(T0 + 10)
    seen.append(call.deadline_ns())
    call.head(200)
    seen.append(call.deadline_ns())
    call.heard(T0 + 60)
    seen.append(call.deadline_ns())
    call.heard(T0 + 4_800)
    seen.append(call.deadline_ns())
    call.closed(T0 + 4_900)
    seen.append(call.deadline_ns())
    assert seen == [T0 + 100, T0 + 1_000, T0 + 1_000, T0 + 360, T0 + 5_000, None]


def test_a_limit_strikes_at_its_instant_and_not_before() -> None:
    call = machine()
    assert (call.expired(T0 + 99), call.expired(T0 + 100), call.has_ended) == (False, True, True)


def test_the_first_end_counts() -> None:
    call = streaming()
    call.cancel(T0 + 70)
    call.closed(T0 + 80)
    call.failed(T0 + 90, "reset", "late")
    assert call.outcome(_with(finish_reason=None)).status == "cancelled"


def test_an_answer_without_an_end_mark_is_whole_where_its_framing_ends_and_not_where_its_connection_dies() -> (
    None
):
    asked = CallTerms(tokens=3, is_forced=True, ends_with_mark=False)
    ended, died = streaming(asked), streaming(asked)
    ended.closed(T0 + 90)
    died.failed(T0 + 90, "reset", "reset by peer")
    assert [call.outcome(_with(has_end_mark=False)).status for call in (ended, died)] == [
        "ok",
        "reset",
    ]


@given(heard=st.lists(st.integers(1, 4_000), min_size=1))
def test_telling_only_the_last_byte_gives_the_same_deadline_as_telling_all(
    heard: list[int],
) -> None:
    every, last = machine(), machine()
    for call in (every, last):
        call.opened(T0)
    for at_ns in heard:
        every.heard(T0 + at_ns)
    last.heard(T0 + max(heard))
    assert every.deadline_ns() == last.deadline_ns()
