"""RAGPulse: requests made of system prompts, passages
and words, whose lengths are in tables beside the trace.
"""

from pathlib import Path

import pytest

from agentload.errors import TraceError
from tests.importers.importing import ideal_of, imported, jsonl, lengths, written

# Blank lines between the rows and times as text: as the source has them.
TRACE = """\
{"timestamp": "10", "input_length": 70, "output_length": 9, "hash_ids": {"sys_prompt": [1, 2], "passages_ids": [7, 8], \
"history": [4], "web_search": [], "user_input": [5]}, "session_id": "x"}

{"timestamp": "8", "input_length": 52, "output_length": 1, "hash_ids": {"sys_prompt": [1, 2], "passages_ids": [7]}, "session_id": "y"}

{"timestamp": "40", "input_length": 60, "output_length": 9, "hash_ids": {"sys_prompt": [1, 3], "user_input": [99]}, "session_id": "x"}
"""
TABLES = {
    "1_sys_prompt.jsonl": jsonl(
        *[{"sys_prompt_id": number, "token_length": 16} for number in (1, 2, 3)]
    ),
    "2_passages.jsonl": jsonl(
        {"passage_id": 7, "token_length": 20}, {"passage_id": 8, "token_length": 9}
    ),
    "3_more.jsonl": jsonl(
        {"history_id": 4, "token_length": 3}, {"user_input_id": 5, "token_length": 2}
    ),
}


def test_contexts_are_put_together_from_ids_and_lengths(tmp_path: Path) -> None:
    (early, late), summary = imported(tmp_path, {"0_trace.jsonl": TRACE} | TABLES)
    assert [
        (turn.keep, [(segment.role, segment.tokens, segment.key) for segment in turn.add])
        for turn in late.turns
    ] == [
        (
            None,
            [
                ("system", 16, "s1"),
                ("system", 16, "s2"),
                ("user", 20, "p7"),
                ("user", 9, "p8"),
                ("user", 3, "h4"),
                ("user", 2, "u5"),
                ("user", 4, "s1.0"),
            ],
        ),
        (1, [("system", 16, "s3"), ("user", 28, "s1.1")]),
    ]
    assert (early.start_s, late.start_s, lengths(early), late.turns[1].wait_s) == (
        0.0,
        2.0,
        [52],
        30.0,
    )
    assert summary.ideal_source == summary.ideal_import == ideal_of([early, late], 16)
    assert summary.odd == (
        (
            "an id without a length in the tables: its tokens have no identity",
            1,
            f"{tmp_path / '0_trace.jsonl'}:5",
        ),
    )


def test_the_tables_are_found_beside_the_trace(tmp_path: Path) -> None:
    for name, text in TABLES.items():
        written(tmp_path / name, text)
    sessions, _ = imported(tmp_path, {"0_trace.jsonl": TRACE})
    assert [lengths(session) for session in sessions] == [[52], [70, 60]]


def test_without_tables_there_is_nothing_to_put_together(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no table of lengths next to it"):
        imported(tmp_path, {"0_trace.jsonl": TRACE})
