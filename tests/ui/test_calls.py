"""From a pair of blocks to its sessions, their calls, and a call's tokens."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.model.rows import Row
from agentload.model.stamps import stamps as packed
from agentload.store.database import reading
from agentload.ui.pages.calls import ChunkLine, call, pair, session
from agentload.ui.source import NotFoundError, Query
from tests.store.rows import MS, S
from tests.ui.site import EVIL, block, hostile, site, stored, whole
from tests.ui.site import call as call_row

TURNS = 3
FASTER = {"bf16": 1_000, "fp8": 500}
"""Milliseconds that a turn's tokens take."""


def run() -> list[Row]:
    """Return a run of two pairs: in the second, fp8
    answers twice as fast, and one session fails.
    """
    rows = whole("r1")
    for arm, took_ms in FASTER.items():
        rows.append(replace(block("r1", round_=2 + (arm == "fp8"), arm=arm), salt="s"))
        for name in ("a", "b/2"):
            for turn in range(TURNS):
                at = turn * 3 * S
                times = {
                    "first_ns": at + 300 * MS,
                    "last_ns": at + (300 + took_ms) * MS,
                    "done_ns": at + (300 + took_ms) * MS,
                }
                stamps = packed([at + 300 * MS, at + 400 * MS, at + 600 * MS], [1, 2, 1])
                failed = (
                    {"status": "http_error", "error": "503"}
                    if (name, arm, turn) == ("b/2", "fp8", 1)
                    else {}
                )
                where = {
                    "session": name,
                    "turn": turn,
                    "due_ns": at,
                    "released_ns": at,
                    "sent_ns": at,
                    "request_id": f"{arm}-{name}-{turn}",
                }
                rows.append(
                    # of a table
                    call_row("r1", 1, arm=arm, pair=1, chunks=stamps, **where, **times, **failed)  # type: ignore[arg-type]
                )
    return rows


def asked(page: str, **words: str) -> Query:
    return Query(page=page, name="r1", words=tuple(words.items()))


def test_the_sessions_of_a_pair_are_compared_where_all_their_calls_were_answered(
    tmp_path: Path,
) -> None:
    with reading(stored(tmp_path, run())) as connection:
        found = pair(connection, asked("pair", pair="1"))
    assert [(each.session, each.changes) for each in found.sessions] == [
        ("a", (pytest.approx(800 / 1300 - 1),)),
        ("b/2", (None,)),
    ]
    assert (found.before, found.after, [each.arm for each in found.blocks]) == (
        0,
        None,
        ["bf16", "fp8"],
    )


def test_a_session_is_laid_out_from_its_own_start_on_each_arm(tmp_path: Path) -> None:
    with reading(stored(tmp_path, run())) as connection:
        found = session(connection, asked("session", pair="1", session="b/2"))
    assert found.seconds == pytest.approx(7.3)
    assert [(bar.turn.arm, bar.turn.turn, round(bar.start * 7.3, 6)) for bar in found.bars] == [
        (arm, turn, 3.0 * turn) for arm in FASTER for turn in range(TURNS)
    ]
    assert all(bar.start + bar.held + bar.first + bar.wrote <= 1 + 1e-9 for bar in found.bars)


def test_a_call_has_its_tokens_one_by_one_and_its_neighbours(tmp_path: Path) -> None:
    with reading(stored(tmp_path, run())) as connection:
        found = call(connection, asked("call", call="fp8-a-1"))
    assert found.chunks == (
        ChunkLine(at_ms=300.0, gap_ms=None, tokens=1),
        ChunkLine(at_ms=400.0, gap_ms=100.0, tokens=2),
        ChunkLine(at_ms=600.0, gap_ms=200.0, tokens=1),
    )
    assert [each.request_id for each in found.twins] == ["bf16-a-1"]
    assert found.before is not None
    assert found.after is not None
    assert (found.before.turn, found.after.turn) == (0, 2)
    tokens, gaps = found.charts
    assert [(each.label, each.ys) for each in tokens.series] == [
        ("bf16", (1.0, 3.0, 4.0)),
        ("fp8", (1.0, 3.0, 4.0)),
    ]
    assert [each.ys for each in gaps.series] == [(100.0, 200.0)] * 2


@pytest.mark.parametrize(
    ("page", "words", "said"),
    [
        (pair, {"pair": "9"}, "run r1 has no pair 9"),
        (pair, {"pair": "x"}, "run r1 has no pair x"),
        (session, {"pair": "1", "session": "z"}, "pair 1 has no session 'z'"),
        (call, {"call": "z"}, "run r1 has no call 'z'"),
    ],
)
def test_what_is_not_there_is_said(
    tmp_path: Path, page: object, words: dict[str, str], said: str
) -> None:
    assert callable(page)
    with reading(stored(tmp_path, run())) as connection, pytest.raises(NotFoundError, match=said):
        page(connection, asked("page", **words))


@pytest.mark.loopback
async def test_links_lead_from_a_run_to_a_call_and_back(tmp_path: Path) -> None:
    """Whatever a session is called: a slash in its name is no part of the path."""
    async with site(stored(tmp_path, run())) as client:
        for start, links in (
            (
                "/db/bench/runs/r1",
                (
                    "/pairs/1",
                    "/sessions/b%2F2",
                    "/calls/fp8-b%2F2-2",
                    "/sessions/b%2F2",
                    "/pairs/1",
                    "/runs/r1#blocks",
                ),
            ),
        ):
            at = start
            for wanted in links:
                answer = await client.get(at)
                text = await answer.text()
                assert answer.status == 200, at
                at = next(
                    link for link in re.findall(r'href="([^"]+)"', text) if link.endswith(wanted)
                )


@pytest.mark.loopback
async def test_words_of_others_are_escaped_on_every_page(tmp_path: Path) -> None:
    async with site(stored(tmp_path, hostile())) as client:
        evil = EVIL.replace("/", "%2F").replace("<", "%3C").replace(">", "%3E")
        for path in ("pairs/0", f"pairs/0/sessions/{evil}", f"calls/r-evil-{evil}-0-2"):
            answer = await client.get(f"/db/bench/runs/r-evil/{path}")
            assert answer.status == 200, path
            assert EVIL not in await answer.text(), path


@pytest.mark.loopback
async def test_a_report_has_a_way_back(tmp_path: Path) -> None:
    async with site(stored(tmp_path, run())) as client:
        text = await (await client.get("/db/bench/runs/r1/report")).text()
    assert '<a href="/db/bench/runs/r1">← r1</a>' in text
    assert '<a href="/db/bench/runs/r1#blocks">blocks and calls</a>' in text
