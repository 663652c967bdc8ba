"""Bailian traces: chats linked to their parents, with ids of 16-token blocks."""

from pathlib import Path
from typing import Any

from tests.importers.importing import ideal_of, imported, jsonl, lengths


def line(
    chat: int, parent: int, at: float, ids: list[int], tokens: int, **more: Any
) -> dict[str, Any]:
    known = {
        "chat_id": chat,
        "parent_chat_id": parent,
        "timestamp": at,
        "input_length": tokens,
        "output_length": 5,
        "type": "text",
        "turn": 1,
    }
    return known | {"hash_ids": ids} | more


TEXT = jsonl(
    line(159, -1, 61.114, [10, 11, 12], 40),
    line(200, -1, 61.5, [10, 11, 20], 48, type="search"),
    line(160, 159, 75.0, [10, 11, 30, 31], 60),
    line(161, 160, 99.0, [10, 11, 30, 31, 32], 70),
    line(162, 159, 120.0, [10, 11, 40], 35),
)


def test_a_chat_and_its_descendants_are_one_session(tmp_path: Path) -> None:
    (first, second), summary = imported(tmp_path, {"b.jsonl": TEXT})
    assert (first.workload, second.workload) == ("bailian-text", "bailian-search")
    assert (first.start_s, second.start_s) == (0.0, 0.386)
    assert [lengths(session) for session in (first, second)] == [[40, 60, 70, 35], [48]]
    assert [
        (turn.keep, [(segment.key, segment.tokens) for segment in turn.add]) for turn in first.turns
    ] == [
        (None, [((10, 2), 32), ((12, 1), 8)]),
        (1, [((30, 1), 16), ((31, 1), 12)]),
        (2, [((31, 2), 22)]),
        (1, [((40, 1), 3)]),
    ]
    assert [turn.wait_s for turn in first.turns] == [0.0, 13.886, 24.0, 21.0]
    assert summary.ideal_source == summary.ideal_import == ideal_of([first, second], 16)


def test_a_child_whose_parent_is_missing_begins_a_session(tmp_path: Path) -> None:
    sessions, summary = imported(
        tmp_path,
        {
            "b.jsonl": jsonl(
                line(5, 4, 1.0, [1], 16), line(6, 5, 2.0, [1, 2], 32), line(9, 9, 3.0, [1], 10)
            )
        },
    )
    assert [lengths(session) for session in sessions] == [[16, 32], [10]]
    assert summary.odd == (
        ("the parent is not in the source, or follows later", 2, f"{tmp_path / 'b.jsonl'}:1"),
    )
