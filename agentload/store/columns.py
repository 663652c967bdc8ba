"""Rows of a journal as Arrow columns, so that a database takes them in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from agentload.store import codec

CHUNKS: Final = pa.schema(
    [("call_id", pa.int64()), ("start_ns", pa.int64()), ("gap_us", pa.list_(pa.int32())), ("tokens", pa.list_(pa.uint16()))]
)


def by_name(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Turn rows, whose values come in the order of *names*, into named columns."""
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def table(kind: int, columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Turn the columns of one kind of row into a table of *schema*; a column that the file lacks takes the field's default."""
    length = len(next(iter(columns.values())))
    defaults = codec.DEFAULTS[kind]
    known = dict(columns) | {field.name: [defaults.get(field.name)] * length for field in schema if field.name not in columns}
    return pa.table({field.name: pa.array(known[field.name], field.type) for field in schema}, schema=schema)


def chunks(call_ids: Sequence[int], stamps: Sequence[Mapping[str, Any] | None]) -> pa.Table:
    """Turn the packed stamps of calls into rows of `chunks`; a call without stamps has none."""
    kept = [(call_id, each) for call_id, each in zip(call_ids, stamps, strict=True) if each is not None]
    lengths = np.fromiter((len(each["gap_us"]) // 4 for _, each in kept), dtype=np.int64, count=len(kept))
    ends = np.cumsum(lengths)
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    gaps = np.frombuffer(b"".join([each["gap_us"] for _, each in kept]), dtype=np.int32)
    tokens = np.frombuffer(b"".join([each["tokens"] for _, each in kept]), dtype=np.uint16)
    is_first = np.zeros(len(gaps), dtype=np.bool_)
    is_first[offsets[:-1]] = True
    return pa.table(
        {
            "call_id": pa.array([call_id for call_id, _ in kept], pa.int64()),
            "start_ns": pa.array([each["first_ns"] for _, each in kept], pa.int64()),
            # No gap lies before the first chunk: NULL, which also keeps it out of every statistic.
            "gap_us": pa.ListArray.from_arrays(pa.array(offsets), pa.array(gaps, mask=is_first)),
            "tokens": _token_lists(tokens, offsets),
        },
        schema=CHUNKS,
    )


def _token_lists(tokens: np.ndarray[tuple[int], np.dtype[np.uint16]], offsets: np.ndarray[tuple[int], np.dtype[np.int32]]) -> pa.Array:
    """Keep a call's list unless every chunk carried one token, as nearly all do."""
    other = np.concatenate(([0], np.cumsum(tokens != 1)))
    is_plain = other[offsets[1:]] == other[offsets[:-1]]
    lengths = np.where(is_plain, 0, np.diff(offsets))
    kept = np.repeat(~is_plain, np.diff(offsets))
    ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(tokens[kept]), mask=pa.array(is_plain))
