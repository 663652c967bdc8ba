"""Turn journal rows into Arrow columns, which a database loads in batches."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agentload.store import codec
from agentload.store.tables import CALL

CHUNKS: Final = pa.schema(
    [
        ("call_id", pa.int64()),
        ("start_ns", pa.int64()),
        ("gap_us", pa.list_(pa.int32())),
        ("late_at", pa.list_(pa.int32())),
        ("late_us", pa.list_(pa.int32())),
        ("tokens", pa.list_(pa.uint16())),
    ]
)
FILLED: Final = {
    kind: {*names} | ({"call_id"} if kind == CALL else set()) for kind, names in codec.NAMES.items()
}
"""The table columns that a kind of row fills."""
GROUP: Final = 2048  # DuckDB packs this many integers together, each as wide as the widest
LATE_BITS: Final = 48  # cost of storing one late gap separately
WIDTHS: Final = range(9, 21)  # 0.5 ms to 1 s

Gaps: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]


def by_name(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Turn rows with values in the order of *names* into named columns."""
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def table(kind: int, columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Build a table of *schema* from one kind's columns; a missing one takes its default."""
    length = len(next(iter(columns.values())))
    defaults = codec.DEFAULTS[kind]
    known = dict(columns) | {
        field.name: [defaults.get(field.name)] * length
        for field in schema
        if field.name not in columns
    }
    return pa.table(
        {field.name: pa.array(known[field.name], field.type) for field in schema}, schema=schema
    )


def chunks(call_ids: Sequence[int], stamps: Sequence[Mapping[str, Any] | None]) -> pa.Table:
    """Unpack the stamps of calls into rows of `chunks_row`."""
    kept = [
        (call_id, each)
        for call_id, each in zip(call_ids, stamps, strict=True)
        if each and each["gap_us"]
    ]
    lengths = np.fromiter(
        (len(each["gap_us"]) // 4 for _, each in kept), dtype=np.int64, count=len(kept)
    )
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    gaps: Gaps = np.frombuffer(b"".join([each["gap_us"] for _, each in kept]), dtype=np.int32)
    tokens = np.frombuffer(b"".join([each["tokens"] for _, each in kept]), dtype=np.uint16)
    is_first = np.zeros(len(gaps), dtype=np.bool_)
    is_first[offsets[:-1]] = True
    late = is_late(gaps, is_first)
    late_counts = _counts(late, offsets)
    at = np.flatnonzero(late)
    places = at - offsets[np.searchsorted(offsets, at, side="right") - 1] + 1
    return pa.table(
        {
            "call_id": pa.array([call_id for call_id, _ in kept], pa.int64()),
            "start_ns": pa.array([each["first_ns"] for _, each in kept], pa.int64()),
            "gap_us": pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), pa.array(gaps, mask=is_first | late)
            ),
            "late_at": _lists(places.astype(np.int32), late_counts),
            "late_us": _lists(gaps[late], late_counts),
            "tokens": _token_lists(tokens, lengths, offsets),
        },
        schema=CHUNKS,
    )


def is_late(gaps: Gaps, is_first: Mask) -> Mask:
    """Return which gaps to store separately, because that costs fewer bits.

    DuckDB packs every gap of a group as wide as the widest; a late gap stays out of it.
    """
    if not len(gaps):
        return is_first
    starts = np.arange(0, len(gaps), GROUP)
    size = np.diff(np.append(starts, len(gaps)))
    lowest = np.minimum.reduceat(np.where(is_first, np.iinfo(np.int32).max, gaps), starts)
    padded = np.zeros(len(starts) * GROUP, dtype=np.int32)
    padded[: len(gaps)] = np.where(is_first, 0, gaps - np.repeat(lowest, size))
    span = padded.reshape(-1, GROUP)
    best, cost = (
        np.full(len(starts), np.iinfo(np.int64).max),
        np.ceil(np.log2(span.max(axis=1) + 1.0)) * size,
    )
    for width in WIDTHS:
        apart = width * size + LATE_BITS * (span >= 1 << width).sum(axis=1)
        best, cost = np.where(apart < cost, 1 << width, best), np.minimum(apart, cost)
    late: Mask = (span >= best[:, None]).ravel()[: len(gaps)]
    return late


def _token_lists(
    tokens: npt.NDArray[np.uint16], lengths: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
) -> pa.Array:
    """List each call's tokens by chunk; NULL if every chunk held one token, as nearly all do."""
    kept = np.where(_counts(tokens != 1, offsets), lengths, 0)
    return _lists(tokens[np.repeat(kept > 0, lengths)], kept)


def _counts(mask: Mask, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Count the set values of *mask* in each call."""
    at = np.flatnonzero(mask)
    return np.bincount(np.searchsorted(offsets, at, side="right") - 1, minlength=len(offsets) - 1)


def _lists(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> pa.Array:
    """Split values into one list for each call; NULL for an empty one."""
    ends = np.concatenate(([0], np.cumsum(lengths)))
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), pa.array(values), mask=pa.array(lengths == 0)
    )
