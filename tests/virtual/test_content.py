from __future__ import annotations

from dataclasses import replace

from agentload.emulator.encoder import IMAGE
from agentload.model.commands import Call, Limits, Send
from agentload.model.trace import Segment
from agentload.virtual.content import Contents


def send(*context: Segment, session: str = "s", salt: str = "x") -> Send:
    call = Call(
        session=session,
        turn=0,
        workload="w",
        context=context,
        context_tokens=sum(s.tokens for s in context),
        output=1,
    )
    return Send(
        request_id="r",
        call=call,
        attempt=0,
        retry_of=None,
        arm="a",
        block=0,
        pair=0,
        due_ns=0,
        released_ns=0,
        salt=salt,
        limits=Limits(),
    )


SYSTEM = Segment(role="system", tokens=20, key="sys")
TOOLS = Segment(role="tools", tokens=30, key="tools")
USER = Segment(role="user", tokens=5, key="u")


def test_the_salt_replaces_the_first_tokens_and_lengths_stay() -> None:
    assert Contents(block=64).runs(send(SYSTEM, USER)) == (("salt\x1fx", 8), ("sys", 12), ("u", 5))
    assert Contents(block=64).runs(send(replace(USER, tokens=3))) == (("salt\x1fx", 3),)


def test_tools_follow_the_leading_system_text_as_in_chat_templates() -> None:
    runs = Contents(block=64).runs(send(TOOLS, SYSTEM, USER))
    assert [identity for identity, _ in runs] == ["salt\x1fx", "sys", "tools", "u"]


def test_an_imported_run_of_blocks_is_one_run_a_block_so_that_overlaps_share() -> None:
    imported = Segment(role="user", tokens=150, key=(7, 3))
    assert Contents(block=64).runs(send(SYSTEM, imported))[2:] == (
        ("#7", 64),
        ("#8", 64),
        ("#9", 22),
    )


def test_a_planted_fact_and_an_images_size_are_part_of_the_identity() -> None:
    planted = replace(USER, plant="The code is 7.", at=0.5)
    identities = {
        Contents(block=64).runs(send(SYSTEM, s))[2][0]
        for s in (USER, planted, replace(planted, at=0.6), replace(USER, pixels=(28, 28)))
    }
    assert len(identities) == 4


def test_a_salt_makes_a_leading_image_another_image() -> None:
    picture = Segment(role="image", tokens=50, key="p", pixels=(280, 140))
    one, other = (Contents(block=64).runs(send(picture, USER, salt=salt)) for salt in "xy")
    assert [tokens for _, tokens in one] == [50, 5]
    assert one[0][0].startswith(IMAGE)
    assert one[0] != other[0]


def test_a_growing_context_gives_the_same_runs_as_a_fresh_look() -> None:
    contents = Contents(block=64)
    first, grown, cut = (
        (SYSTEM, USER),
        (SYSTEM, USER, TOOLS, replace(USER, key="v")),
        (SYSTEM, replace(USER, key="w")),
    )
    for context in (first, grown, cut):
        assert contents.runs(send(*context)) == Contents(block=64).runs(send(*context))
