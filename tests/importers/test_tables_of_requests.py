"""Traces that are tables of requests without content: Azure and BurstGPT."""

from pathlib import Path

import pytest

from agentload.errors import TraceError
from agentload.model.trace import Recorded, Segment, Session, Turn
from tests.importers.importing import imported, lengths

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 18:15:46.6805900,374,44\r
2023-11-16 18:15:50.9951690,396,109\r
"""
LMM = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-08 00:00:00.1,2,1000,10\n"
BURST = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,7,2,ChatGPT,100,20,120,Conversation log
6,,0.5,GPT-4,50,5,55,API log
20,7,3,ChatGPT,150,30,180,Conversation log
90,7,3,ChatGPT,60,10,70,Conversation log
91,8,3,ChatGPT,60,0,60,Conversation log
"""
OLD = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log "
    "Type\n5,ChatGPT,472,18,490,Conversation log\n"
)


def user(tokens: int, key: str) -> Segment:
    return Segment(role="user", tokens=tokens, key=key)


def test_azure_rows_are_sessions_that_share_nothing(tmp_path: Path) -> None:
    sessions, summary = imported(tmp_path, {"a.csv": AZURE})
    assert sessions == [
        Session(
            session="s0",
            workload="azure",
            start_s=0.0,
            turns=(Turn(add=(user(374, "s0.0"),), output=44),),
        ),
        Session(
            session="s1",
            workload="azure",
            start_s=4.314579,
            turns=(Turn(add=(user(396, "s1.0"),), output=109),),
        ),
    ]
    assert (summary.format, summary.ideal_source, summary.ideal_import) == ("azure", 0.0, 0.0)
    assert summary.licence is not None
    assert "CC-BY" in summary.licence


def test_a_shared_system_prompt_can_be_assumed(tmp_path: Path) -> None:
    sessions, summary = imported(tmp_path, {"a.csv": AZURE}, system=160)
    assert sessions[1].turns[0].add == (
        Segment(role="system", tokens=160, key="system"),
        user(236, "s1.0"),
    )
    assert summary.ideal_import == 160 / 770


def test_azures_images_are_images(tmp_path: Path) -> None:
    (session,), summary = imported(tmp_path, {"a.csv": LMM})
    assert [(segment.role, segment.tokens) for segment in session.turns[0].add] == [
        ("image", 256),
        ("image", 256),
        ("user", 488),
    ]
    assert summary.estimated == (("size of an image: 448 x 448", 2, None),)


def test_burstgpts_sessions_grow_where_their_lengths_allow_it(tmp_path: Path) -> None:
    (first, lone), summary = imported(tmp_path, {"b.csv": BURST})
    assert lone.turns == (
        Turn(add=(user(50, "s1.0"),), output=5, model="GPT-4", recorded=Recorded(api_s=0.5)),
    )
    assert first.turns == (
        Turn(add=(user(100, "s0.0"),), output=20, recorded=Recorded(api_s=2.0)),
        Turn(
            add=(Segment(role="assistant", tokens=20, key="s0.a0"), user(30, "s0.1")),
            output=30,
            wait="user",
            wait_s=13.0,
            recorded=Recorded(start_s=15.0, api_s=3.0),
        ),
        Turn(
            add=(user(60, "s0.2"),),
            output=10,
            wait="user",
            wait_s=67.0,
            keep=0,
            recorded=Recorded(start_s=85.0, api_s=3.0),
        ),
    )
    assert (lone.start_s, lengths(first)) == (1.0, [100, 150, 60])
    assert summary.dropped == (("a failed request: no answer", 1, None),)


def test_burstgpts_first_version_has_no_sessions(tmp_path: Path) -> None:
    (session,), _ = imported(tmp_path, {"b.csv": OLD}, system=72)
    assert session.turns[0].add == (
        Segment(role="system", tokens=72, key="system"),
        user(400, "s0.0"),
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x,1,1\n", "TIMESTAMP is not a date and time"),
        ("2023-11-16 18:15:46,-1,1\n", "ContextTokens: Expected `int` >= 0"),
        ("2023-11-16 18:15:46,1\n", "2 cells, the header has 3"),
    ],
)
def test_a_row_that_is_none_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(TraceError) as caught:
        imported(tmp_path, {"a.csv": AZURE + text})
    assert caught.value.message == f"{tmp_path / 'a.csv'}:4: {what}"


def test_a_cell_may_be_as_long_as_a_prompt(tmp_path: Path) -> None:
    noted = "".join(
        f"{line},{note}\n"
        for line, note in zip(AZURE.splitlines(), ("Note", "x" * 200_000, ""), strict=True)
    )
    assert imported(tmp_path, {"a.csv": noted})[0] == imported(tmp_path, {"b.csv": AZURE})[0]
