"""Files are read as they come, and what is wrong in
them is named by its place and never by its content.
"""

import gzip
import hashlib
import time
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from agentload import documents
from agentload.errors import TraceError
from agentload.importers.parts.fields import rows
from agentload.importers.parts.files import HALF, records, values
from agentload.importers.parts.notes import ImportNotes
from tests.importers.importing import written


class Kind(msgspec.Struct):
    number: int
    word: str = ""


LINES = b'{"number":1}\n\n{"number":"2"}\r\n   \n{"number":3,"word":"x","more":[1,{"a":"}"}]}\n'
THREE = [1, 2, 3]


def numbers(path: Path, notes: ImportNotes | None = None) -> list[int]:
    return [record.number for _, record in records(path, Kind, notes or ImportNotes())]


@pytest.mark.parametrize(
    "packed",
    [
        LINES,
        gzip.compress(LINES),
        zstandard.compress(LINES),
        zstandard.compress(LINES[:14]) + zstandard.compress(LINES[14:]),
    ],
    ids=["plain", "gzip", "zstd", "zstd in two frames"],
)
def test_lines_are_read_whatever_they_are_packed_in_and_blank_ones_are_no_records(
    tmp_path: Path, packed: bytes
) -> None:
    assert numbers(written(tmp_path / "file", packed)) == THREE


@pytest.mark.parametrize(
    "text",
    [
        '[{"number":1},{"number":2},\n{"number":3}]',
        '{\n "number": 1\n}\n{"number":2} {"number":3,\n"word":"[{\\"}"}',
        '[\n\n{"number":1},{"number":2},{"number":3}',
    ],
    ids=["an array", "values behind each other", "an array without its end"],
)
def test_values_need_not_be_one_a_line(tmp_path: Path, text: str) -> None:
    assert numbers(written(tmp_path / "file", text)) == THREE


def test_a_malformed_record_is_an_error_that_names_its_place_or_is_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path / "file", '{"number":1}\n{"number":"secret words"}\nsecret\n{"number":3}\n'
    )
    with pytest.raises(TraceError) as caught:
        numbers(path)
    assert caught.value.message == f"{path}:2: number: Expected `int`"
    assert caught.value.hint == "--lenient skips such records and counts them"
    notes = ImportNotes("lenient")
    assert numbers(path, notes) == [1, 3]
    assert notes.placed(notes.malformed) == (
        ("not JSON", 1, f"{path}:3"),
        ("number: Expected `int`", 1, f"{path}:2"),
    )


@pytest.mark.parametrize(
    "text", ['{"number":1}\n{"numb', '[{"number":1},{"numb'], ids=["lines", "an array"]
)
def test_a_half_written_end_is_counted_and_only_strict_makes_it_an_error(
    tmp_path: Path, text: str
) -> None:
    path = written(tmp_path / "file", text)
    notes = ImportNotes()
    assert numbers(path, notes) == [1]
    assert notes.odd == {HALF: 1}
    with pytest.raises(TraceError, match=HALF):
        numbers(path, ImportNotes("strict"))


def test_a_compressed_file_that_was_cut_gives_what_is_there(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"number":1}\n' * 1_000 + hashlib.shake_256(b"").digest(200_000))
    notes = ImportNotes("lenient")
    assert numbers(written(tmp_path / "file", packed[:-9_000]), notes)[:3] == [1, 1, 1]
    assert "the compressed file is damaged or cut short (EOFError)" in notes.odd


def test_a_missing_file_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        numbers(tmp_path / "none")


nested = st.recursive(
    st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.text(max_size=3), nested, max_size=3), max_size=5),
    st.sampled_from([b"[,]", b" \n "]),
    st.integers(1, 50),
)
def test_every_value_is_found_whatever_the_chunks(
    found: list[object], around: bytes, chunk: int
) -> None:
    texts = [msgspec.json.encode(value) for value in found]
    stream = around[:1] + around[1:2].join(texts) + around[2:]
    pieces = [stream[start : start + chunk] for start in range(0, len(stream), chunk)]
    assert [text for _, text in values(pieces)] == texts


class Row(msgspec.Struct):
    first: int = msgspec.field(name="First")
    second: float | None = msgspec.field(name="Second one", default=None)


def test_tables_are_read_by_column_and_an_empty_cell_is_absent(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        '\ufeffother,first , SECOND ONE\r\na,1,0.5\r\n\r\n"b,c",2,\r\nd,x,1\r\ne,3\r\nf,4',
    )
    notes = ImportNotes("lenient")
    assert [(row.first, row.second) for _, row in rows(path, Row, notes)] == [(1, 0.5), (2, None)]
    assert (notes.malformed, notes.odd) == (
        {"First: Expected `int`": 1, "2 cells, the header has 3": 1},
        {HALF: 1},
    )


def test_a_table_without_a_needed_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"t.csv:1: no column 'First'"):
        list(rows(written(tmp_path / "t.csv", "a,b\n1,2\n"), Row, ImportNotes()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        b'{"word":"%s","number":1}\n',
        b'{\n"word":"%s",\n"number":1}',
        b'[\n{"word":"%s","number":1}]',
    ],
)
def test_a_record_of_many_megabytes_takes_the_time_of_its_bytes(
    tmp_path: Path, text: bytes
) -> None:
    """Chunk upon chunk, what had come was copied again with each: 96 s for 200 MB."""

    def seconds(size: int) -> float:
        path = written(tmp_path / "file", text % (b"x" * size))
        began_s = time.process_time()
        assert numbers(path) == [1]
        return time.process_time() - began_s

    assert min(seconds(16 << 20) for _ in range(2)) < 16 * min(
        seconds(4 << 20) for _ in range(2)
    )  # was 4 * 4 * 1.3


@pytest.mark.parametrize("text", [b'{"word":"', b'[{"word":"', b"[\n[\n"])
def test_a_record_without_end_is_refused_at_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(documents, "LONGEST_LINE", 1 << 20)
    path = written(tmp_path / "file", zstandard.compress(text + b"x" * (64 << 20)))
    with pytest.raises(TraceError, match="longer than 1 MiB"):
        numbers(path, ImportNotes("lenient"))
