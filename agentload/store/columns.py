"""Turn journal rows into columns, which a database loads in batches.

Arrow's arrays are made of their buffers. `pyarrow.array` imports pandas wherever pandas is
installed, and a mask imports `pyarrow.compute`: either takes longer than to load a short run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
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
_OF_CALLS: Final = {*codec.NAMES[CALL], "call_id"} - {"chunks"}
FILLED: Final = codec.NAMES | {CALL: tuple(sorted(_OF_CALLS))}
"""The table columns that a kind of row fills; the chunks of calls have a table of their own."""
GROUP: Final = 2048  # DuckDB packs this many integers together, each as wide as the widest
LATE_BITS: Final = 48  # bits that one separate gap costs
WIDTHS: Final = range(9, 21)  # 0.5 ms to 1 s

Gaps: TypeAlias = npt.NDArray[np.int32]
Ints: TypeAlias = npt.NDArray[np.int64]
Columns: TypeAlias = Mapping[str, Sequence[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]


def by_name(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Turn rows with values in the order of *names* into named columns."""
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def table(kind: int, columns: Columns, schema: pl.Schema) -> pl.DataFrame:
    """Build a table of *schema* from one kind's columns; a missing one takes its default."""
    length = len(next(iter(columns.values())))
    defaults = codec.DEFAULTS[kind]
    filled = {}
    for name in schema:
        values = columns.get(name)
        if values is None:
            values = [defaults.get(name)] * length
        filled[name] = values
    try:
        return pl.DataFrame(filled, schema=schema)
    except TypeError:  # journals of older versions hold some whole numbers as floats
        ints = {name: _ints(filled[name]) for name, kind in schema.items() if kind.is_integer()}
        return pl.DataFrame(filled | ints, schema=schema)


def _ints(values: Sequence[Any]) -> list[Any]:
    """Return values with 5 in place of 5.0; a fraction stays what it is."""
    return [int(each) if isinstance(each, float) and each.is_integer() else each for each in values]


def chunks(call_ids: Sequence[int], stamps: Sequence[Mapping[str, Any] | None]) -> pa.Table:
    """Unpack the stamps of calls into rows of `chunks_row`.

    In `gap_us` a call's first gap and its late gaps are NULL; late ones stand in `late_us`.
    """
    ids = []
    kept = []
    for call_id, each in zip(call_ids, stamps, strict=True):
        if each and each["gap_us"]:
            ids.append(call_id)
            kept.append(each)
    first_ns = [each["first_ns"] for each in kept]
    lengths = np.array([len(each["gap_us"]) // 4 for each in kept], dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    gap_bytes = b"".join([each["gap_us"] for each in kept])
    gaps: Gaps = np.frombuffer(gap_bytes, dtype=np.int32)
    token_bytes = b"".join([each["tokens"] for each in kept])
    tokens = np.frombuffer(token_bytes, dtype=np.uint16)
    is_first = np.zeros(len(gaps), dtype=np.bool_)
    is_first[offsets[:-1]] = True
    late = is_late(gaps, is_first)
    late_counts = _counts(late, offsets)
    at = np.flatnonzero(late)
    calls = np.searchsorted(offsets, at, side="right") - 1
    places = at - offsets[calls] + 1  # SQL counts from 1
    known = _array(gaps, is_known=~(is_first | late))
    return pa.table(
        {
            "call_id": _array(np.array(ids, dtype=np.int64)),
            "start_ns": _array(np.array(first_ns, dtype=np.int64)),
            "gap_us": pa.ListArray.from_arrays(_array(offsets.astype(np.int32)), known),
            "late_at": _lists(places.astype(np.int32), late_counts),
            "late_us": _lists(gaps[late], late_counts),
            "tokens": _token_lists(tokens, lengths, offsets),
        },
        schema=CHUNKS,
    )


def is_late(gaps: Gaps, is_first: Mask) -> Mask:
    """Mark the gaps to store separately, because that costs fewer bits: the late ones.

    DuckDB packs every gap of a group as wide as the widest. A late gap is a long one.
    """
    if not len(gaps):
        return is_first
    starts = np.arange(0, len(gaps), GROUP)
    size = np.diff(np.append(starts, len(gaps)))
    known = np.where(is_first, np.iinfo(np.int32).max, gaps)
    lowest = np.minimum.reduceat(known, starts)
    above = gaps - np.repeat(lowest, size)
    padded = np.zeros(len(starts) * GROUP, dtype=np.int32)
    padded[: len(gaps)] = np.where(is_first, 0, above)
    span = padded.reshape(-1, GROUP)
    best = np.full(len(starts), np.iinfo(np.int64).max)
    cost = np.ceil(np.log2(span.max(axis=1) + 1.0)) * size
    for width in WIDTHS:
        late_gaps = (span >= 1 << width).sum(axis=1)
        apart = width * size + LATE_BITS * late_gaps
        best = np.where(apart < cost, 1 << width, best)
        cost = np.minimum(apart, cost)
    is_wide = span >= best[:, None]
    return is_wide.ravel()[: len(gaps)]


def _token_lists(tokens: npt.NDArray[np.uint16], lengths: Ints, offsets: Ints) -> pa.Array:
    """List each call's tokens by chunk; NULL if every chunk held one token, as nearly all do."""
    others = _counts(tokens != 1, offsets)
    kept = np.where(others, lengths, 0)
    is_kept = np.repeat(kept > 0, lengths)
    return _lists(tokens[is_kept], kept)


def _counts(mask: Mask, offsets: Ints) -> Ints:
    """Count the set values of *mask* in each call."""
    at = np.flatnonzero(mask)
    calls = np.searchsorted(offsets, at, side="right") - 1
    return np.bincount(calls, minlength=len(offsets) - 1)


def _lists(values: npt.NDArray[Any], lengths: Ints) -> pa.Array:
    """Split values into one list for each call; NULL for an empty one."""
    ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    kept = _array(values)
    buffers = [_bits(lengths > 0), pa.py_buffer(ends)]
    return pa.Array.from_buffers(pa.list_(kept.type), len(lengths), buffers, children=[kept])


def _array(values: npt.NDArray[Any], *, is_known: Mask | None = None) -> pa.Array:
    """Return values as Arrow has them, in the same memory; NULL where one is not known."""
    valid = None if is_known is None else _bits(is_known)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def _bits(mask: Mask) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
