"""Mooncake files: what came from one goes back as it
came, and any trace keeps lengths, times and sharing.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agentload.exporters.mooncake import lines
from agentload.importers.catalog import conversion
from agentload.model.trace import Header, Recorded, Segment, Session, Trace, Turn, TurnRef
from tests.importers import test_mooncake, test_weka
from tests.importers.importing import KEY, ideal_of, imported, jsonl, written


def exported(trace: Trace, **options: Any) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in lines(trace, **options)]


requests = st.lists(
    st.builds(
        lambda at, ids, last, output: {
            "timestamp": at,
            "input_length": 4 * (len(ids) - 1) + last,
            "output_length": output,
            "hash_ids": ids,
        },
        st.integers(0, 5_000),
        st.lists(st.integers(0, 30), min_size=1, max_size=8),
        st.integers(1, 4),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=12,
)


@given(requests)
def test_what_came_from_mooncake_goes_back_as_it_came(found: list[dict[str, Any]]) -> None:
    """Every request's time, lengths and ids, wherever times begin."""
    import tempfile  # hypothesis and fixtures of a function do not mix

    found.sort(key=lambda request: request["timestamp"])
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "m.jsonl", jsonl(*found))
        again = exported(conversion([path], key=KEY, options={"block": 4}).trace)
    assert again == found


def test_sessions_go_back_too_with_the_recorded_times(tmp_path: Path) -> None:
    text = jsonl(
        {
            "session_id": 1,
            "timestamp": 0,
            "input_length": 9,
            "output_length": 5,
            "hash_ids": [0, 1, 2],
        },
        {"timestamp": 2000, "input_length": 3, "output_length": 5, "hash_ids": [7]},
        {
            "session_id": 1,
            "timestamp": 3000,
            "input_length": 16,
            "output_length": 1,
            "hash_ids": [0, 1, 3, 4],
        },
    )
    made = conversion(
        [written(tmp_path / "m.jsonl", text)], key=KEY, options={"block": 4, "history": "full"}
    )
    expected = [
        {name: value for name, value in msgspec.json.decode(line).items() if name != "session_id"}
        for line in text.splitlines()
    ]
    assert exported(made.trace) == expected


def test_aiperfs_extensions_come_back_as_sessions(tmp_path: Path) -> None:
    sessions, summary = imported(
        tmp_path / "in", {"w.jsonl": jsonl(test_weka.TRACE, test_weka.TRACE)}, "weka", block=4
    )
    text = b"".join(
        lines(Trace(header=Header(name="w", block=4), sessions=sessions), sessions="aiperf")
    )
    again, second = imported(tmp_path / "out", {"m.jsonl": text}, "mooncake", block=4)
    assert sorted(len(session.turns) for session in again) == sorted(
        len(session.turns) for session in sessions
    )
    assert (second.calls, second.prompt_tokens, second.ideal_import) == (
        summary.calls,
        summary.prompt_tokens,
        summary.ideal_import,
    )


def test_another_traces_blocks_share_what_its_contexts_share(tmp_path: Path) -> None:
    sessions, summary = imported(
        tmp_path / "in", {"w.jsonl": jsonl(test_weka.TRACE)}, "weka", block=4
    )
    trace = Trace(header=Header(name="w", block=4), sessions=sessions)
    again, second = imported(
        tmp_path / "out", {"m.jsonl": b"".join(lines(trace))}, "mooncake", block=4
    )
    assert [line["timestamp"] for line in exported(trace)] == [0, 3_500, 9_500, 25_000, 90_000]
    assert second.prompt_tokens == summary.prompt_tokens
    assert ideal_of(again, 4) == summary.ideal_import == second.ideal_import


def test_times_that_were_not_recorded_come_out_of_starts_waits_and_edges() -> None:
    segment = (Segment(role="user", tokens=5, key="a"),)
    after = (TurnRef(session="child", turn=-1),)
    sessions = [
        Session(
            session="parent",
            workload="w",
            start_s=1.0,
            turns=(
                Turn(add=segment, output=10, spawn=("child",)),
                Turn(add=(), output=10, after=after, wait_s=2.0),
            ),
        ),
        Session(
            session="child",
            workload="w",
            turns=(Turn(add=segment, output=100, wait_s=0.5), Turn(add=(), output=0, wait_s=1.0)),
        ),
        Session(
            session="later",
            workload="w",
            start_s=1.5,
            turns=(
                Turn(add=segment, output=1, recorded=Recorded(api_s=4.0)),
                Turn(add=(), output=1),
            ),
        ),
    ]
    trace = Trace(header=Header(name="t"), sessions=sessions)
    # The child is sent at 1 + 10 x 0.02 + 0.5 and again
    # 2 + 1 s later; the parent goes on 2 s behind that.
    assert [line["timestamp"] for line in exported(trace, s_per_token=0.02)] == [
        1_000,
        1_500,
        1_700,
        4_700,
        5_500,
        6_700,
    ]


def test_calls_are_sorted_by_time_also_where_what_they_waited_for_was_recorded_later_or_comes_later() -> (
    None
):
    def said(at_s: float | None, *after: str) -> Turn:
        recorded = None if at_s is None else Recorded(start_s=at_s)
        return Turn(
            add=(),
            output=50,
            after=tuple(TurnRef(session=name, turn=-1) for name in after),
            recorded=recorded,
        )

    sessions = [
        Session(
            session="a",
            workload="w",
            start_s=0.0,
            turns=(replace(said(None), spawn=("b",)), said(5.0, "b"), said(None, "c")),
        ),
        Session(session="b", workload="w", turns=(said(6.0),)),
        Session(session="c", workload="w", start_s=9.0, turns=(said(None),)),
    ]
    found = exported(Trace(header=Header(name="t"), sessions=sessions))
    assert [line["timestamp"] for line in found] == [0, 5_000, 6_000, 9_000, 10_000]


def test_the_size_of_blocks_can_be_chosen(tmp_path: Path) -> None:
    sessions, _ = imported(tmp_path, {"m.jsonl": test_mooncake.LINES}, block=4)
    found = exported(Trace(header=Header(name="m", block=4), sessions=sessions), block=2)
    assert [len(line["hash_ids"]) for line in found] == [5, 6, 5]
    assert found[0]["hash_ids"][:4] == found[1]["hash_ids"][:4]
    assert found[0]["hash_ids"][4] != found[1]["hash_ids"][4]
