"""Cut what a node measured in a round into a shard, and merge all nodes' shards into one run.

A shard is a part of the node's journals. If all nodes see one folder, the driver reads it there;
otherwise its bytes are sent. The driver checks the shards against each other and writes their
rows into its own journal, on its own clock: a run from many nodes is read, resumed and rebuilt
like any other.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from io import BytesIO
from pathlib import Path
from typing import Final

from agentload.live.workers.messages import Shard, Slice
from agentload.model.record import Record
from agentload.model.rows import CallRow, Row
from agentload.store import codec, journal

_INSTANTS: Final = tuple(field.name for field in fields(CallRow) if field.name.endswith("_ns"))
_FAST: Final = 1
"""Compression level: a network that carries 100 MB/s gains nothing from a better one."""
Pair = tuple[str, str]
"""Arm and session."""


class Shards:
    """Cut a node's journals into one shard a round."""

    def __init__(self, journals: Sequence[Path], share: str, *, is_seen: bool) -> None:
        """Start at the journals' current ends: what they hold already is another driver's.

        *share* names the shards; if the driver sees the journals (*is_seen*), no bytes are sent.
        """
        self._ends = {path: _end(path) for path in journals}
        self._share = share
        self._is_seen = is_seen

    def cut(self) -> Shard:
        """Return what was measured since the last shard."""
        rows = 0
        parts: list[Slice] = []
        for path, start in self._ends.items():
            reader = journal.read(path, offset=start, followed=True)
            rows += sum(1 for _ in reader.frames())
            self._ends[path] = reader.offset
            parts.append(Slice(path=path, start=start, end=reader.offset))
        if self._is_seen:
            return Shard(share=self._share, rows=rows, content=tuple(parts))
        content = zlib.compress(b"".join(map(_bytes, parts)), _FAST)
        return Shard(share=self._share, rows=rows, content=content)


def _end(path: Path) -> int:
    if not path.exists():  # a new journal begins with its header
        return len(codec.header())
    reader = journal.read(path, followed=True)
    for _ in reader.frames():
        pass
    return reader.offset


def _bytes(part: Slice) -> bytes:
    with part.path.open("rb") as source:
        source.seek(part.start)
        return source.read(part.end - part.start)


class Merged(Record):
    """Hold the rows of all nodes, by their end and on the driver's clock, and what is wrong."""

    rows: tuple[Row, ...]
    fault: str | None


def merge(
    shards: Sequence[Shard],
    ahead_ns: Mapping[str, int],
    *,
    expected: Collection[Pair],
    drained_ns: Mapping[str, int | None],
) -> Merged:
    """Check the shards of a round and join their rows.

    *ahead_ns* is by how much each share's clock is ahead of ours; *expected* are the sessions
    that should have been played; *drained_ns* is when each arm's load first began to drain.
    """
    rows = {shard.share: _rows(shard) if shard.share in ahead_ns else () for shard in shards}
    moved = [_moved(row, ahead_ns[share], drained_ns) for share, own in rows.items() for row in own]
    return Merged(
        rows=tuple(sorted(moved, key=_ended_ns)),
        fault=_cut_short(shards, rows) or _disagreement(rows, expected),
    )


def _rows(shard: Shard) -> tuple[Row, ...]:
    """Return the rows of a shard; none of one that cannot be read, which its count betrays."""
    try:
        if isinstance(shard.content, bytes):
            content = zlib.decompress(shard.content)
        else:
            content = b"".join(map(_bytes, shard.content))
    except (zlib.error, OSError):
        return ()
    frames = codec.frames(BytesIO(content), offset=0)
    rows = [
        codec.row(each.kind, each.payload, codec.NAMES)
        for each in frames
        if isinstance(each, codec.Frame)
    ]
    return tuple(row for row in rows if row is not None)


def _cut_short(shards: Sequence[Shard], rows: Mapping[str, Sequence[Row]]) -> str | None:
    held = sorted((share, len(own)) for share, own in rows.items() if own)
    written = sorted((shard.share, shard.rows) for shard in shards if shard.rows)
    if held == written:
        return None
    return (
        f"shards hold {sum(count for _, count in held):,} rows of {len(held)} nodes, "
        f"and nodes wrote {sum(count for _, count in written):,}"
    )


def _disagreement(rows: Mapping[str, Sequence[Row]], expected: Collection[Pair]) -> str | None:
    """Return what was played twice or by no node; None if nothing was."""
    times = Counter[str]()
    players = defaultdict[Pair, set[str]](set)
    for share, own in rows.items():
        for row in own:
            if isinstance(row, CallRow):
                times[row.request_id] += 1
                players[row.arm, row.session].add(share)
    faults = {
        "calls were made twice": [call for call, count in times.items() if count > 1],
        "sessions were played by two nodes": [
            session for (_, session), shares in players.items() if len(shares) > 1
        ],
        "sessions were played by no node": [pair[1] for pair in expected if pair not in players],
    }
    for fault, examples in faults.items():
        if examples:
            return f"{len(examples):,} {fault}, such as {min(examples)}"
    return None


def _moved(row: Row, ahead_ns: int, drained_ns: Mapping[str, int | None]) -> Row:
    """Return a row with its instants on the driver's clock."""
    if not isinstance(row, CallRow):
        return row
    instants = {name: getattr(row, name) for name in _INSTANTS}
    moved = {name: at_ns - ahead_ns for name, at_ns in instants.items() if at_ns is not None}
    chunks = row.chunks and replace(row.chunks, first_ns=row.chunks.first_ns - ahead_ns)
    drain_ns = drained_ns.get(row.arm)
    tail = row.tail or (drain_ns is not None and moved["released_ns"] > drain_ns)
    return replace(row, **moved, chunks=chunks, tail=tail)


def _ended_ns(row: Row) -> tuple[int, int]:
    """Return a sort key: calls by their end, then all other rows."""
    if isinstance(row, CallRow):
        return 0, row.released_ns if row.done_ns is None else row.done_ns
    return 1, 0
