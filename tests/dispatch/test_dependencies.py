"""When a turn is due, what it holds, and what follows when one that others wait for fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.dispatch.session import cut_answer
from agentload.model.check import Has
from agentload.model.commands import Outcome, Reply, Send
from agentload.model.plan import ClosedLoop, Load, WaitScale
from agentload.model.trace import Segment, Session, Turn, TurnRef
from tests.dispatch.playing import S, one_block, play, said, took
from tests.dispatch.talks import instants, talk


def test_a_turn_is_due_when_the_one_before_it_is_complete_plus_its_wait() -> None:
    log = play(one_block((talk("s", 3),)), took(0.25))
    assert instants(log) == [("s", 0, 0.0), ("s", 1, 1.25), ("s", 2, 2.5)]


def test_context_grows_by_what_each_turn_adds_and_keep_cuts_it() -> None:
    session = talk("s", 3)
    cut = replace(session, turns=(*session.turns[:2], replace(session.turns[2], keep=1)))
    contexts = [[seg.key for seg in d.send.call.context] for d in play(one_block((cut,))).done]
    assert contexts == [["sys", "s.0"], ["sys", "s.0", "s.1"], ["sys", "s.2"]]
    assert [d.send.call.context_tokens for d in play(one_block((cut,))).done] == [15, 20, 15]


def test_a_spawned_session_starts_when_the_spawning_turn_completes_and_a_join_waits_for_it() -> (
    None
):
    parent = talk("p", 2, wait_s=0.0, spawn=("c",))
    joined = replace(
        parent,
        turns=(parent.turns[0], replace(parent.turns[1], after=(TurnRef(session="c", turn=-1),))),
    )
    log = play(one_block((joined, talk("c", 2, start_s=None, wait_s=3.0))), took(1.0))
    assert instants(log) == [("p", 0, 0.0), ("c", 0, 1.0), ("c", 1, 5.0), ("p", 1, 6.0)]


def test_a_live_edge_carries_the_answer_and_is_cut_to_the_segment() -> None:
    source = Segment(role="user", tokens=1, key="r", source=TurnRef(session="eye", turn=0))
    main = Session(
        session="main",
        workload="mm",
        start_s=0.0,
        turns=(Turn(add=(source,), output=2, after=(TurnRef(session="eye", turn=0),)),),
    )

    def serve(send: Send, now: int) -> Outcome:
        return Outcome(status="ok", done_ns=now + S, reply=Reply(text="a red square", tokens=3))

    log = play(one_block((talk("eye", 1), main)), serve)
    (filled,) = log.done[1].send.call.context
    assert (filled.text, filled.tokens, filled.source) == ("a", 1, None)
    assert log.done[0].send.call.wants_reply
    assert not log.done[1].send.call.wants_reply


@pytest.mark.parametrize(
    ("text", "tokens", "wanted", "kept"),
    [
        ("a red square", 3, 5, "a red square"),
        ("a red square", 3, 2, "a red"),
        ("a red  square", 6, 4, "a red"),
        ("a", 9, 3, ""),
        ("", 4, 2, ""),
    ],
)
def test_an_answer_is_cut_at_a_word_in_proportion_to_its_tokens(
    text: str, tokens: int, wanted: int, kept: str
) -> None:
    assert cut_answer(Reply(text=text, tokens=tokens), wanted) == kept


def test_a_checked_turn_wants_its_answer() -> None:
    assert play(one_block((talk("s", 1, check=(Has(text="x"),)),))).sent[0].call.wants_reply


def test_a_failed_fixed_session_goes_on_and_a_live_one_ends_with_rows_not_sent() -> None:
    def fails_first(send: Send, now: int) -> Outcome:
        return Outcome(
            status="reset" if send.call.turn == 0 else "ok",
            done_ns=now + S,
            reply=Reply(text="x", tokens=1),
        )

    turns = tuple(
        replace(t, add=(said("assistant", 3, "a"), *t.add)) if i else t
        for i, t in enumerate(talk("s", 3).turns)
    )
    session = replace(talk("s", 3), turns=turns)
    assert len(play(one_block((session,)), fails_first).sent) == 3
    live = play(one_block((session,), load=Load(history="live")), fails_first)
    assert [s.call.turn for s in live.sent] == [0]
    assert [s.call.turn for s in live.skipped] == [1, 2]


def test_what_waits_for_a_turn_that_never_comes_is_skipped_not_awaited() -> None:
    waiting = talk("w", 2, after=(TurnRef(session="nobody", turn=0),))
    log = play(one_block((waiting, talk("ok", 1), talk("orphan", 1, start_s=None))))
    assert [(s.call.session, s.call.turn) for s in log.skipped] == [
        ("w", 0),
        ("w", 1),
        ("orphan", 0),
    ]
    closed = play(one_block((waiting, talk("ok", 1)), load=Load(arrivals=ClosedLoop(sessions=1))))
    assert [s.call.session for s in closed.sent] == ["ok"]


def test_waits_are_scaled_and_capped_by_kind() -> None:
    load = Load(waits={"user": WaitScale(scale=10, cap_s=4.0)})
    assert [at for *_, at in instants(play(one_block((talk("s", 2),), load=load), took(0.5)))] == [
        0.0,
        4.5,
    ]
