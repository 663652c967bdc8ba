"""Recorded conversations get the lengths that the server counted, and waits of the right kind."""

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.importers.parts.chat import ContextPiece, apportion
from agentload.importers.parts.dialogue import CallTiming, CallUsage, Dialogue
from agentload.importers.parts.intake import ContentKeys, Intake
from agentload.importers.parts.notes import ImportNotes
from agentload.importers.parts.reuse import BlockReuse
from agentload.model.trace import Recorded, Role, Segment, Turn, TurnRef
from tests.growth import least_cpu_s
from tests.importers.importing import KEY, ideal_of, lengths


def begun(*, lead: str | None = None, spawned_s: float | None = None) -> Dialogue:
    intake = Intake(
        files=(Path("f"),), notes=ImportNotes(), identity=ContentKeys(KEY), source=BlockReuse(16)
    )
    return Dialogue(intake=intake, origin_s=1000.0, lead=lead, spawned_s=spawned_s)


def piece(role: Role, tokens: int, key: str) -> ContextPiece:
    return ContextPiece(role=role, tokens=tokens, key=key)


def segment(role: Role, tokens: int, key: str) -> Segment:
    return Segment(role=role, tokens=tokens, key=key)


def test_a_prompt_that_was_counted_gives_its_news_their_lengths() -> None:
    dialogue = begun(lead="lead")
    dialogue.add([piece("user", 10, "u")])
    dialogue.call(
        timing=CallTiming(sent_s=1000.0, first_s=1000.5, done_s=1003.0),
        usage=CallUsage(prompt=500, output=40, cached=16),
        answer=[piece("assistant", 7, "a")],
        place="f:1",
    )
    dialogue.add([piece("tool", 100, "r1"), piece("tool", 50, "r2")])
    dialogue.call(
        timing=CallTiming(sent_s=1005.0), usage=CallUsage(prompt=600, output=5), place="f:2"
    )
    assert dialogue.session("s", workload="w").turns == (
        Turn(
            add=(segment("system", 490, "lead"), segment("user", 10, "u")),
            output=40,
            recorded=Recorded(ttft_s=0.5, api_s=3.0, cached=16),
        ),
        Turn(
            add=(
                segment("assistant", 40, "a"),
                segment("tool", 40, "r1"),
                segment("tool", 20, "r2"),
            ),
            output=5,
            wait="tool",
            wait_s=2.0,
            recorded=Recorded(start_s=5.0),
        ),
    )


def test_without_counts_lengths_are_estimates_and_the_notes_say_so() -> None:
    dialogue = begun(lead="lead")
    dialogue.add([piece("user", 10, "u")])
    dialogue.call(
        timing=CallTiming(), usage=CallUsage(), answer=[piece("assistant", 7, "a")], place="f:1"
    )
    dialogue.add([piece("user", 3, "v")])
    dialogue.call(
        timing=CallTiming(), usage=CallUsage(), answer=[piece("assistant", 2, "b")], place="f:2"
    )
    assert dialogue.turns == [
        Turn(add=(segment("user", 10, "u"),), output=7),
        Turn(add=(segment("assistant", 7, "a"), segment("user", 3, "v")), output=2, wait="user"),
    ]
    assert dialogue.intake.notes.estimated == {
        "output tokens of a call: estimated from its answer": 2,
        "prompt tokens of a call: estimated from its messages": 2,
    }


def test_a_compaction_keeps_the_lead_and_what_it_says() -> None:
    dialogue = begun(lead="lead")
    dialogue.add([piece("user", 10, "u")])
    dialogue.call(
        timing=CallTiming(),
        usage=CallUsage(prompt=110, output=40),
        answer=[piece("assistant", 7, "a")],
        place="f",
    )
    dialogue.restart([piece("user", 30, "summary"), piece("assistant", 7, "a")])
    dialogue.call(
        timing=CallTiming(), usage=CallUsage(prompt=150, output=1), place="f", event="compact"
    )
    assert dialogue.turns[1] == Turn(
        add=(segment("user", 10, "summary"), segment("assistant", 40, "a")),
        output=1,
        keep=1,
        event="compact",
    )


def test_thinking_that_is_dropped_makes_the_answer_shorter() -> None:
    """The context grows by less than the answer had: the history holds no thinking."""
    dialogue = begun()
    dialogue.add([piece("user", 10, "u")])
    dialogue.call(
        timing=CallTiming(),
        usage=CallUsage(prompt=10, output=40, thinking=30),
        answer=[piece("assistant", 40, "a")],
        place="f",
    )
    dialogue.add([piece("user", 10, "v")])
    dialogue.call(timing=CallTiming(), usage=CallUsage(prompt=30, output=1), place="f")
    assert dialogue.turns[1].add == (segment("assistant", 16, "a"), segment("user", 4, "v"))
    assert dialogue.turns[0].thinking == 30


def test_an_image_keeps_the_tokens_of_its_size() -> None:
    dialogue = begun()
    dialogue.add(
        [ContextPiece(role="image", tokens=256, key="i", pixels=(448, 448)), piece("user", 10, "u")]
    )
    dialogue.call(timing=CallTiming(), usage=CallUsage(prompt=300, output=1), place="f")
    assert [segment.tokens for segment in dialogue.turns[0].add] == [256, 44]
    dialogue.add([ContextPiece(role="image", tokens=256, key="j", pixels=(448, 448))])
    dialogue.call(timing=CallTiming(), usage=CallUsage(prompt=310, output=1), place="f")
    # An image that cannot be as small as the server counted: the recorded length stands beside.
    assert (lengths(dialogue.session("s", workload="w"))[1], dialogue.turns[1].context) == (
        256,
        310,
    )


def test_a_spawned_session_waits_from_the_call_that_spawned_it_and_a_parent_for_its_children() -> (
    None
):
    child = begun(spawned_s=1010.0)
    child.add([piece("user", 1, "u")])
    child.call(
        timing=CallTiming(sent_s=1010.5, done_s=1020.0),
        usage=CallUsage(prompt=1, output=1),
        place="f",
    )
    session = child.session("c", workload="w")
    assert (session.start_s, session.turns[0].wait_s, session.turns[0].recorded) == (
        None,
        0.5,
        Recorded(api_s=9.5, start_s=10.5),
    )
    parent = begun()
    parent.add([piece("user", 1, "u")])
    parent.call(
        timing=CallTiming(sent_s=1000.0, done_s=1010.0),
        usage=CallUsage(prompt=1, output=1),
        place="f",
    )
    parent.add([piece("tool", 1, "r")])
    after = TurnRef(session="c", turn=-1)
    parent.call(
        timing=CallTiming(sent_s=1021.0),
        usage=CallUsage(prompt=2, output=1),
        place="f",
        joins=[(1020.0, "c")],
    )
    assert (parent.turns[1].after, parent.turns[1].wait, parent.turns[1].wait_s) == (
        (after,),
        "tool",
        1.0,
    )


def test_a_call_that_overlaps_the_one_before_is_counted_and_played_after_it() -> None:
    dialogue = begun()
    dialogue.call(
        timing=CallTiming(sent_s=1000.0, done_s=1010.0),
        usage=CallUsage(prompt=0, output=1),
        place="f:1",
    )
    dialogue.call(
        timing=CallTiming(sent_s=1005.0, done_s=1012.0),
        usage=CallUsage(prompt=0, output=1),
        place="f:2",
    )
    assert dialogue.turns[1].wait_s == 0.0
    assert dialogue.intake.notes.placed(dialogue.intake.notes.odd) == (
        ("a call starts before its predecessor has ended: played after it", 1, "f:2"),
    )


@given(st.lists(st.integers(0, 50), max_size=6), st.integers(0, 200))
def test_shares_add_up_and_nobody_goes_without_where_there_is_enough(
    weights: list[int], total: int
) -> None:
    shares = apportion(weights, total)
    assert sum(shares) == (total if weights else 0)
    if total >= len(weights):
        assert all(share >= 1 for share in shares)
    if total == sum(weights) and all(weights):
        assert shares == weights


steps = st.tuples(
    st.lists(st.tuples(st.sampled_from(["user", "tool"]), st.integers(1, 40)), max_size=3),
    st.integers(0, 400),
    st.integers(1, 40),
)


@given(st.lists(steps, min_size=1, max_size=6), st.sampled_from([None, "lead"]))
def test_every_prompt_has_the_length_that_was_counted_and_shares_what_the_source_shares(
    found: list[tuple[list[tuple[Role, int]], int, int]], lead: str | None
) -> None:
    dialogue = begun(lead=lead)
    counted = []
    for number, (news, prompt, output) in enumerate(found):
        dialogue.add(
            [piece(role, tokens, f"{number}.{index}") for index, (role, tokens) in enumerate(news)]
        )
        dialogue.call(
            timing=CallTiming(),
            usage=CallUsage(prompt=prompt, output=output),
            answer=[piece("assistant", 9, f"a{number}")],
            place="f",
        )
        counted.append(prompt)
    session = dialogue.session("s", workload="w")
    assert [turn.context for turn in session.turns] == [
        None if length == prompt else prompt
        for length, prompt in zip(lengths(session), counted, strict=True)
    ]
    for turn, length, prompt in zip(session.turns, lengths(session), counted, strict=True):
        assert length == prompt or (length == 0 and not turn.add)
    if dialogue.intake.source.prompt_tokens:
        assert dialogue.intake.source.ratio == ideal_of([session], 16)


@pytest.mark.slow
def test_a_call_costs_what_it_adds_however_long_the_conversation_is() -> None:
    """Each new piece is compared with nothing; with
    all before it, ten times the calls took a hundred times as long.
    """

    def converse(calls: int) -> None:
        dialogue = begun()
        for number in range(calls):
            dialogue.add([piece("user", 3, f"u{number}")])
            dialogue.call(
                timing=CallTiming(),
                usage=CallUsage(prompt=5 * number + 3, output=2),
                answer=[piece("assistant", 2, f"a{number}")],
                place="f",
            )
        assert [len(turn.add) for turn in dialogue.turns[:3]] == [1, 2, 2]
        assert {turn.keep for turn in dialogue.turns} == {None}

    assert least_cpu_s(partial(converse, 4_000)) < 24 * least_cpu_s(partial(converse, 500))


@given(st.data())
def test_what_a_call_keeps_and_adds_is_its_context_whatever_happened_before(
    data: st.DataObject,
) -> None:
    dialogue = begun(lead=data.draw(st.sampled_from([None, "lead"])))
    sent: list[tuple[int, int]] = []
    for number in range(data.draw(st.integers(1, 8))):
        news = [
            piece("user", data.draw(st.integers(1, 9)), data.draw(st.sampled_from("abc")))
            for _ in range(data.draw(st.integers(1, 3)))
        ]
        (dialogue.restart if data.draw(st.booleans()) else dialogue.add)(news)
        prompt = data.draw(st.none() | st.integers(20, 90))
        dialogue.call(
            timing=CallTiming(),
            usage=CallUsage(prompt=prompt, output=4),
            answer=[piece("assistant", 4, f"x{number}")],
            place="f",
        )
        sent.append((len(dialogue.turns), prompt or 0))
    context: tuple[Segment, ...] = ()
    for turn, (_, prompt) in zip(dialogue.turns, sent, strict=True):
        assert turn.keep is None or turn.keep < len(context)
        context = context[: turn.keep] + turn.add
        assert (
            not prompt or sum(each.tokens for each in context) == prompt or turn.context == prompt
        )
