"""Sessions of pi: a line or a tree of entries, compactions and branches."""

from pathlib import Path
from typing import Any

import pytest

from agentload.model.trace import Recorded
from tests.importers.entries import answer, entry, iso, result, session, user
from tests.importers.importing import imported, jsonl, lengths, sent

LINE = [
    session(),
    user("a", None, 1, "u" * 80),
    answer("b", "a", 1.5, 4.0, (900, 100, 20, 50)),
    result("c", "b", 4.5, "r" * 400),
    entry("m", "c", 4.6, "model_change", provider="x", modelId="y"),
    answer("d", "m", 5.0, 6.0, (10, 1_000, 160, 7)),
    user("e", "d", 66.0, "v" * 40),
    answer("f", "e", 66.5, 70.0, (10, 1_170, 20, 30)),
]


def shape(line: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries without ids, as version 1 has them."""
    return [
        {name: value for name, value in record.items() if name not in {"id", "parentId", "version"}}
        for record in line
    ]


def test_answers_are_calls_with_the_lengths_and_times_of_their_usage(tmp_path: Path) -> None:
    (only,), summary = imported(tmp_path, {"s.jsonl": jsonl(*LINE)})
    assert summary.format == "pi"
    assert (only.start_s, lengths(only), [turn.output for turn in only.turns]) == (
        1.5,
        [1_020, 1_170, 1_200],
        [50, 7, 30],
    )
    assert [[(segment.role, segment.tokens) for segment in turn.add] for turn in only.turns] == [
        [("system", 1_000), ("user", 20)],
        [("assistant", 50), ("tool", 100)],
        [("assistant", 7), ("user", 23)],
    ]
    assert [(turn.wait, turn.wait_s) for turn in only.turns] == [
        (None, 0.0),
        ("tool", 1.0),
        ("user", 60.5),
    ]
    assert only.turns[1].recorded == Recorded(api_s=1.0, cached=1_000, start_s=5.0)
    assert only.turns[1].add[1].extra == (("name", '"read"'),)
    assert summary.recorded_hits == 2_270 / 3_390


def test_all_versions_say_the_same(tmp_path: Path) -> None:
    tree, _ = imported(tmp_path / "3", {"s.jsonl": jsonl(*LINE)})
    line, _ = imported(tmp_path / "1", {"s.jsonl": jsonl(*shape(LINE))})
    mixed, _ = imported(
        tmp_path / "2", {"s.jsonl": jsonl(*LINE[:4], *shape(LINE[4:5]), *shape(LINE[5:]))}
    )
    assert tree == line == mixed


def test_a_compaction_keeps_the_lead_its_summary_and_what_it_says_first(tmp_path: Path) -> None:
    more = [
        entry(
            "k",
            "f",
            80.0,
            "compaction",
            summary="s" * 120,
            firstKeptEntryId="e",
            tokensBefore=1_230,
        ),
        user("g", "k", 90.0, "w" * 40),
        answer("h", "g", 91.0, 92.0, (1_120, 0, 0, 5)),
    ]
    (only,), summary = imported(tmp_path, {"s.jsonl": jsonl(*LINE, *more)})
    last = only.turns[-1]
    assert (last.keep, [(segment.role, segment.tokens) for segment in last.add]) == (
        1,
        [("user", 50), ("user", 23), ("assistant", 30), ("user", 17)],
    )
    assert lengths(only)[-1] == 1_120
    # What is kept is what it was: the same words have the same name and length.
    assert last.add[1] == only.turns[2].add[1]
    assert summary.dropped == (
        ("the call that wrote a compaction's summary: not in the transcript", 1, None),
    )
    compaction = {name: value for name, value in more[0].items() if name != "firstKeptEntryId"} | {
        "firstKeptEntryIndex": 6
    }
    by_index = shape([*LINE, compaction, *more[1:]])
    old, _ = imported(tmp_path / "1", {"s.jsonl": jsonl(*by_index)})
    assert old == [only]


def test_a_branch_goes_on_from_where_it_left_and_both_branches_were_calls(tmp_path: Path) -> None:
    more = [user("x", "b", 100.0, "x" * 40), answer("y", "x", 101.0, 102.0, (1_080, 0, 0, 5))]
    (only,), _ = imported(tmp_path, {"s.jsonl": jsonl(*LINE, *more)})
    assert (len(only.turns), only.turns[3].keep) == (4, 3)
    assert [context[:3] for context in sent(only)][3] == sent(only)[1][:3]
    assert lengths(only)[3] == 1_080


def test_parents_in_a_circle_or_missing_are_counted(tmp_path: Path) -> None:
    circle = [
        user("p", "q", 200.0, "p"),
        user("q", "p", 201.0, "q"),
        answer("z", "nowhere", 202.0, 203.0, (500, 0, 0, 1)),
    ]
    (only,), summary = imported(tmp_path, {"s.jsonl": jsonl(*LINE, *circle)})
    assert lengths(only)[-1] == 500
    assert {what for what, _, _ in summary.odd} >= {"a missing parent"}


def test_calls_without_a_token_are_no_calls(tmp_path: Path) -> None:
    """Stopped before the first token: no usage. Stopped later: a call like any other."""
    more = [
        answer("g", "f", 71.0, 72.0, (0, 0, 0, 0), stopReason="aborted"),
        answer("h", "g", 73.0, 74.0, (1_260, 0, 0, 3), stopReason="aborted"),
        answer("i", "h", 75.0, 76.0, None, model="delivery-mirror"),
    ]
    (only,), summary = imported(tmp_path, {"s.jsonl": jsonl(*LINE, *more)})
    assert lengths(only) == [1_020, 1_170, 1_200, 1_260]
    assert {what for what, _, _ in summary.dropped} == {
        "a call that failed or was stopped before its first token",
        "an answer not from a model (a copy of what was delivered)",
    }


@pytest.mark.parametrize(
    "usage", [None, (0, 0, 0, 0)], ids=["none", "zeros, as servers that do not count write"]
)
def test_an_answer_without_usage_is_estimated_and_named(
    tmp_path: Path, usage: tuple[int, int, int, int] | None
) -> None:
    (only,), summary = imported(
        tmp_path,
        {
            "s.jsonl": jsonl(
                session(), user("a", None, 1, "u" * 80), answer("b", "a", 2, 3, usage, "t" * 40)
            )
        },
    )
    assert (lengths(only), only.turns[0].output) == ([20], 19)
    assert summary.odd == (("an answer without usage", 1, f"{tmp_path / 's.jsonl'}:3"),)


def test_shell_commands_and_other_messages_are_part_of_the_context(tmp_path: Path) -> None:
    shell = {"role": "bashExecution", "command": "ls", "output": "o" * 37, "exitCode": 0}
    more = [
        entry("s1", "f", 80, message=shell),
        entry("s2", "s1", 81, message=shell | {"excludeFromContext": True}),
        entry("s3", "s2", 82, "custom_message", customType="note", content="n" * 40),
        entry("s4", "s3", 83, "branch_summary", fromId="b", summary="b" * 40),
        entry("s5", "s4", 84, "brand_new"),
        answer("s6", "s5", 85, 86, (1_260, 0, 0, 3)),
    ]
    (only,), summary = imported(tmp_path, {"s.jsonl": jsonl(*LINE, *more)})
    assert [(segment.role, segment.tokens) for segment in only.turns[-1].add] == [
        ("assistant", 30),
        ("user", 10),
        ("user", 10),
        ("user", 10),
    ]
    assert [what for what, _, _ in summary.odd] == ["an entry of an unknown type"]


def test_sessions_come_in_the_order_of_their_first_calls(tmp_path: Path) -> None:
    """The file that begins first may call last."""
    late = [session(), user("a", None, 900, "u"), answer("b", "a", 901, 902, (100, 0, 0, 1))]
    early = [
        session(5.0, cwd="/elsewhere"),
        user("a", None, 6, "u"),
        answer("b", "a", 7, 8, (100, 0, 0, 1)),
    ]
    sessions, _ = imported(
        tmp_path,
        {
            "1.jsonl": jsonl(*late),
            "2.jsonl": jsonl(*early),
            "3.jsonl": jsonl({"type": "session", "timestamp": iso(3)}),
        },
    )
    assert [only.start_s for only in sessions] == [7.0, 901.0]
    # Prompts of two folders are two.
    assert sessions[0].turns[0].add[0].key != sessions[1].turns[0].add[0].key
