from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.live.workers.messages import Shard
from agentload.model.rows import AnswerRow, CallRow
from agentload.model.stamps import Stamps
from agentload.remote.shards import Merged, Shards, merge
from agentload.store import journal

HOUR_NS = 3_600_000_000_000


def call(session: str, turn: int = 0, *, ahead_ns: int = 0) -> CallRow:
    at_ns = 1_000 * (turn + 1) + ahead_ns
    return CallRow(
        run_id="r",
        leg=1,
        arm="a",
        block=0,
        pair=0,
        workload="w",
        session=session,
        turn=turn,
        attempt=0,
        retry_of=None,
        request_id=f"{session}.{turn}",
        due_ns=at_ns,
        released_ns=at_ns,
        sent_ns=at_ns + 1,
        first_ns=at_ns + 2,
        done_ns=at_ns + 3,
        context_tokens=1,
        asked_tokens=1,
        status="ok",
        chunks=Stamps(first_ns=at_ns + 2, gap_us=bytes(4), tokens=bytes(2)),
    )


def answer(name: str) -> AnswerRow:
    return AnswerRow(
        run_id="r",
        arm="a",
        task="t",
        item=name,
        context_tokens=1,
        depth=None,
        repetition=0,
        score=1.0,
        right=True,
        answer="x",
    )


def shard(folder: Path, name: str, *rows: CallRow | AnswerRow, is_seen: bool = False) -> Shard:
    path = folder / f"{name}.journal"
    with journal.Writer(path) as writer:
        cutting = Shards((path,), name, is_seen=is_seen)
        for row in rows:
            writer.append(row)
        writer.flush()
        return cutting.cut()


def test_rows_of_all_nodes_come_on_our_clock_in_order_of_their_end(tmp_path: Path) -> None:
    shards = [
        shard(tmp_path, "one", call("s0"), call("s0", 2)),
        shard(tmp_path, "two", answer("i"), call("s1", 1, ahead_ns=HOUR_NS), is_seen=True),
    ]
    found = merge(
        shards,
        {"one": 0, "two": HOUR_NS},
        expected={("a", "s0"), ("a", "s1")},
        drained_ns={"a": 2_500},
    )
    assert found.fault is None
    assert found.rows == (call("s0"), call("s1", 1), replace(call("s0", 2), tail=True), answer("i"))


def test_a_shard_has_what_came_since_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    with journal.Writer(path) as writer:
        writer.append(call("before"))
        writer.flush()
        cutting = Shards((path,), "n", is_seen=False)
        for turn in range(3):
            writer.append(call("s", turn))
            writer.flush()
            found = merge([cutting.cut()], {"n": 0}, expected=(), drained_ns={})
            assert found.rows == (call("s", turn),)


@pytest.mark.parametrize(
    ("rows", "expected", "fault"),
    [
        (((call("s0"),), (call("s1"),)), {("a", "s0"), ("a", "s1")}, None),
        (
            ((call("s0"),), (call("s1"),)),
            {("a", "s0"), ("a", "s2")},
            "1 sessions were played by no node, such as s2",
        ),
        (((call("s0"),), (call("s0", 1),)), (), "1 sessions were played by two nodes, such as s0"),
        (((call("s0"), call("s0")), (call("s1"),)), (), "1 calls were made twice, such as s0.0"),
        (((), ()), (), None),
    ],
)
def test_shards_are_checked_against_each_other(
    tmp_path: Path,
    rows: tuple[tuple[CallRow, ...], ...],
    expected: set[tuple[str, str]],
    fault: str | None,
) -> None:
    shards = [shard(tmp_path, f"n{number}", *own) for number, own in enumerate(rows)]
    assert merge(shards, {"n0": 0, "n1": 0}, expected=expected, drained_ns={}).fault == fault


def test_a_shard_that_is_cut_short_is_noticed(tmp_path: Path) -> None:
    whole = shard(tmp_path, "n", call("s0"), call("s1"))
    found = merge([replace(whole, rows=3)], {"n": 0}, expected=(), drained_ns={})
    assert found.fault == "shards hold 2 rows of 1 nodes, and nodes wrote 3"


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [flipped, lambda content: content[:-9], lambda _: b""])
def test_a_shard_that_is_damaged_on_its_way_is_noticed(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    whole = shard(tmp_path, "n", call("s0"), call("s1"))
    assert isinstance(whole.content, bytes)
    found = merge(
        [replace(whole, content=damage(whole.content)), shard(tmp_path, "m", call("s2"))],
        {"n": 0, "m": 0},
        expected=(),
        drained_ns={},
    )
    assert [row.session for row in found.rows if isinstance(row, CallRow)] == ["s2"]
    assert found.fault is not None
    assert found.fault.startswith("shards hold 1 rows of 1 nodes, and nodes wrote 3")


def test_a_shard_whose_journal_is_gone_is_noticed(tmp_path: Path) -> None:
    seen = shard(tmp_path, "n", call("s0"), is_seen=True)
    (tmp_path / "n.journal").unlink()
    found = merge([seen], {"n": 0}, expected=(), drained_ns={})
    assert found == Merged(rows=(), fault="shards hold 0 rows of 0 nodes, and nodes wrote 1")


def test_a_shard_of_a_share_that_nobody_was_given_is_noticed(tmp_path: Path) -> None:
    found = merge([shard(tmp_path, "x", call("s0"))], {"n": 0}, expected=(), drained_ns={})
    assert found == Merged(rows=(), fault="shards hold 0 rows of 0 nodes, and nodes wrote 1")


def test_a_share_that_two_nodes_hand_over_is_noticed(tmp_path: Path) -> None:
    shards = [shard(tmp_path, "n", call("s0")), shard(tmp_path, "m", call("s1"))]
    lying = [shards[0], replace(shards[1], share="n")]
    found = merge(lying, {"n": 0, "m": 0}, expected=(), drained_ns={})
    assert found.fault == "shards hold 1 rows of 1 nodes, and nodes wrote 2"
