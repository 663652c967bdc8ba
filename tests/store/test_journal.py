import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.errors import StoreError
from agentload.model.rows import CallRow, Row, RunRow
from agentload.model.stamps import stamps
from agentload.store import codec
from agentload.store.codec import HEAD, MAGIC, NEWS, Damage, Frame, frame, frames
from agentload.store.journal import RESERVE, Writer, read
from agentload.store.tables import CALL
from tests.store.rows import ONE_OF_EACH, S, call, run_row


def write(path: Path, *rows: Row) -> bytes:
    with Writer(path) as journal:
        for row in rows:
            journal.append(row)
    return path.read_bytes()


def test_every_kind_of_row_comes_back_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "a.journal", *ONE_OF_EACH)
    reader = read(tmp_path / "a.journal")
    assert tuple(reader) == ONE_OF_EACH
    assert reader.torn is None
    assert reader.offset == (tmp_path / "a.journal").stat().st_size


def test_rows_of_other_kinds_are_skipped_and_the_end_is_reached_all_the_same(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.journal"
    whole = write(path, *ONE_OF_EACH)
    reader = read(path, kinds=(CallRow, RunRow))
    assert tuple(reader) == tuple(row for row in ONE_OF_EACH if isinstance(row, CallRow | RunRow))
    assert reader.offset == len(whole)


def test_damage_is_told_though_the_row_that_it_is_in_is_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    whole = bytearray(write(path, call(1), run_row()))
    whole[len(codec.header()) + len(codec.record(call(1))) - 3] ^= 0xFF
    path.write_bytes(whole)
    found: list[Damage] = []
    assert tuple(read(path, kinds=(RunRow,), damaged=found.append)) == (run_row(),)
    assert len(found) == 1


def test_every_row_type_has_a_number() -> None:
    assert set(codec.KINDS.values()) == set(Row.__args__)


def test_equal_rows_give_equal_bytes_whenever_they_are_flushed(tmp_path: Path) -> None:
    at_once = write(tmp_path / "a.journal", *ONE_OF_EACH)
    for row in ONE_OF_EACH:
        with Writer(tmp_path / "b.journal") as journal:
            journal.append(row)
            journal.flush_if_due(0)
    assert (tmp_path / "b.journal").read_bytes() == at_once


def test_rows_reach_the_kernel_within_a_second_of_callers_who_try_twice_a_second(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.journal"
    with Writer(path) as journal:
        journal.flush_if_due(5 * S + S // 4)
        journal.append(call(1))
        journal.flush_if_due(5 * S + S // 2)
        before = list(read(path))
        journal.flush_if_due(6 * S)
        assert (before, list(read(path))) == ([], [call(1)])


@pytest.mark.parametrize("loses", [shutil.rmtree, lambda folder: (folder / "a.journal").unlink()])
def test_a_journal_that_is_removed_is_written_again_and_that_is_an_error(
    loses: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "run" / "a.journal"
    with Writer(path) as journal:
        journal.append(call(1))
        journal.flush()
        loses(path.parent)
        journal.append(call(2))
        with pytest.raises(
            StoreError,
            match=r"was removed while it was written: its [0-9,]+ bytes were written again",
        ):
            journal.flush()
        journal.append(call(3))
    assert list(read(path)) == [call(1), call(2), call(3)]


def test_a_journal_that_is_cut_is_an_error_that_says_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    journal = Writer(path)
    journal.append(call(1))
    journal.flush()
    os.truncate(path, 30)
    with pytest.raises(
        StoreError, match=r"was cut while it was written: 30 of [0-9,]+ bytes are left"
    ):
        journal.close()
    assert path.stat().st_size == 30


def test_a_journal_that_is_replaced_is_an_error_and_the_other_file_stays_as_it_is(
    tmp_path: Path,
) -> None:
    path, other = tmp_path / "a.journal", tmp_path / "b.journal"
    write(other, call(9))
    journal = Writer(path)
    journal.append(call(1))
    journal.flush()
    other.rename(path)
    with pytest.raises(StoreError, match="was replaced by another file"):
        journal.close()
    assert list(read(path)) == [call(9)]


def test_a_journal_is_readable_while_it_is_written_and_reading_goes_on_where_it_stopped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.journal"
    with Writer(path) as journal:
        journal.append(call(1))
        journal.flush()
        first = read(path)
        assert list(first) == [call(1)]
        assert first.torn is None
        journal.append(call(2))
        journal.flush()
        assert list(read(path, offset=first.offset)) == [call(2)]


def test_who_follows_a_journal_reads_none_of_the_space_that_is_reserved(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    with Writer(path) as journal:
        for number in range(200):
            journal.append(
                call(number, chunks=stamps(range(0, 3_000_000_000, 1_000_000), [1] * 3000))
            )
        journal.flush()
        assert path.stat().st_size > journal._end + RESERVE // 2
        with path.open("rb") as source:
            whole = [
                each
                for each in frames(source, offset=len(MAGIC), followed=True)
                if isinstance(each, Frame)
            ]
            assert source.tell() < journal._end + 2 * NEWS
        assert (whole[-1].end, len(whole)) == (journal._end, 201)
        assert list(read(path, followed=True)) == list(read(path))


@given(chunks=st.lists(st.integers(0, 2**31), max_size=50), cut=st.floats(0, 1))
def test_a_cut_at_any_byte_costs_only_the_rows_behind_it(chunks: list[int], cut: float) -> None:
    rows = [call(number, chunks=stamps(sorted(chunks), [3] * len(chunks))) for number in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.journal")
        whole = write(path, *rows)
        sizes = [len(codec.header())]
        for row in rows:
            sizes.append(sizes[-1] + len(codec.record(row)))
        assert sizes[-1] == len(whole)
        at = round(cut * len(whole))
        path.write_bytes(whole[:at])
        kept = [row for row, end in zip(rows, sizes[1:], strict=True) if end <= at]
        reader = read(path)
        assert list(reader) == kept
        assert (reader.torn is None) == (at in sizes or at <= len(MAGIC))
        # Whoever goes on writing leaves the torn bytes behind.
        write(path, *rows)
        assert list(read(path)) == [*kept, *rows]


@given(st.data())
def test_one_damaged_byte_costs_one_row_and_is_named(data: st.DataObject) -> None:
    rows = [call(number) for number in range(4)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.journal")
        whole = bytearray(write(path, *rows))
        victim = data.draw(st.integers(0, 2), label="row")
        start = len(codec.header()) + sum(len(codec.record(row)) for row in rows[:victim])
        length = len(codec.record(rows[victim]))
        where = start + data.draw(st.integers(0, length - 1), label="byte")
        whole[where] ^= data.draw(st.integers(1, 255), label="flipped bits")
        path.write_bytes(whole)
        with pytest.raises(StoreError, match=f"damaged at byte {start:,} "):
            list(read(path))
        faults: list[Damage] = []
        assert list(read(path, damaged=faults.append)) == rows[:victim] + rows[victim + 1 :]
        assert faults == [Damage(kind="damaged", offset=start, length=length)]


class Growing(io.BytesIO):
    """A file as the kernel shows it to a reader while it is
    written: page by page, each as it is when its turn comes.
    """

    PAGE = 4096

    def __init__(self, content: bytes, *, reserved: int, lengths: list[int]) -> None:
        super().__init__(content)
        self.content, self.reserved = content, reserved
        self.lengths = iter(sorted(lengths))
        self.length = 0

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        end = self.reserved if size is None or size < 0 else min(start + size, self.reserved)
        shown = b""
        while (at := start + len(shown)) < end:
            self.length = next(self.lengths, len(self.content))
            page = self.content[: self.length].ljust(self.reserved, b"\0")[
                at : min(end, (at // self.PAGE + 1) * self.PAGE)
            ]
            shown += page
        self.seek(start + len(shown))
        return shown


@given(data=st.data(), followed=st.booleans(), flipped=st.booleans())
def test_what_is_being_written_is_never_taken_for_damage(
    data: st.DataObject, *, followed: bool, flipped: bool
) -> None:
    records = [
        frame(CALL, bytes([number]) * size)
        for number, size in enumerate(data.draw(st.lists(st.integers(1, 3000), max_size=12)), 1)
    ]
    content = bytearray(b"".join(records))
    broken = (
        data.draw(st.integers(0, len(records) - 2), label="broken")
        if flipped and len(records) > 1
        else None
    )
    ends = list(accumulate(map(len, records)))
    if broken is not None:
        content[ends[broken] - 1] ^= 1
    lengths = data.draw(st.lists(st.integers(0, len(content)), max_size=12), label="lengths")
    source = Growing(bytes(content), reserved=len(content) + 2 * Growing.PAGE, lengths=lengths)
    offset, seen, faults = 0, [], []
    while offset < len(content):
        for each in frames(source, offset=offset, followed=followed):
            if isinstance(each, Frame):
                seen.append(bytes(content[each.offset : each.end]))
                offset = each.end
            elif each.kind == "damaged":
                faults.append(each)
    assert seen == [record for number, record in enumerate(records) if number != broken]
    damage = (
        []
        if broken is None
        else [
            Damage(
                kind="damaged",
                offset=ends[broken] - len(records[broken]),
                length=len(records[broken]),
            )
        ]
    )
    assert faults == damage


def test_a_second_writer_of_the_same_journal_is_refused(tmp_path: Path) -> None:
    with (
        Writer(tmp_path / "a.journal"),
        pytest.raises(StoreError, match="another process is writing"),
    ):
        Writer(tmp_path / "a.journal")


@pytest.mark.parametrize("content", [b"hello", b"agentload-journal/9\n" + bytes(100)])
def test_a_file_that_is_no_journal_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a journal"):
        list(read(path))
    with pytest.raises(StoreError, match="not a journal"):
        Writer(path)
    assert path.read_bytes() == content


def test_fields_that_an_older_journal_lacks_take_their_default_and_unknown_ones_are_dropped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.journal"
    old = write(path, call(1, deadline_ns=77))
    start, length = len(MAGIC) + HEAD.size, HEAD.unpack_from(old, len(MAGIC))[0]
    head = old[start : start + length].replace(b"deadline_ns", b"patience_ns")
    path.write_bytes(MAGIC + frame(codec.HEADER, head) + old[start + length :])
    assert list(read(path)) == [call(1)]


def test_a_journal_without_a_field_that_has_no_default_is_of_another_version(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.journal"
    old = write(path, call(1))
    start, length = len(MAGIC) + HEAD.size, HEAD.unpack_from(old, len(MAGIC))[0]
    head = old[start : start + length].replace(b"released_ns", b"let_go_ns__")
    path.write_bytes(MAGIC + frame(codec.HEADER, head) + old[start + length :])
    with pytest.raises(StoreError, match="CallRow records lack released_ns"):
        list(read(path))


FULL_DISK = """
import resource, sys
from pathlib import Path
from agentload.errors import StoreError
from agentload.store.journal import RESERVE, Writer
from tests.store.rows import call
limit = RESERVE * 3 // 2
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
written = 0
with Writer(Path(sys.argv[1])) as journal:
    try:
        for written in range(1, 1_000_000):
            journal.append(call(written))
            if written % 500 == 0:
                journal.flush()
    except StoreError as error:
        print(written, error.message.partition(": ")[2])
    # What is in flight when the disk turns out to be full still fits.
    for late in range(1, 1001):
        journal.append(call(written + late))
    try:
        journal.flush()
    except StoreError:
        pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


@pytest.mark.slow
def test_a_full_disk_is_noticed_while_all_rows_still_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    written = int(done.stdout.split()[0])
    assert (
        done.stdout == f"{written} File too large: the {written:,} rows written so far are kept\n"
    )
    assert [row.request_id for row in read(path)] == [  # type: ignore[union-attr]
        call(n).request_id for n in range(1, written + 1001)
    ]


NEARLY_FULL = """
import resource, sys
from pathlib import Path
from agentload.errors import StoreError
from agentload.store.journal import RESERVE, Writer
from agentload.store.loader import keep
from tests.store.rows import call
resource.setrlimit(resource.RLIMIT_FSIZE, (RESERVE // 2, RESERVE // 2))
keep([call(1), call(2)], Path(sys.argv[1]), run_id="r1", name="few")
try:
    Writer(Path(sys.argv[1]).with_suffix(".journal") / "r1" / "leg001.journal")
except StoreError as error:
    print(error.hint)
"""


def test_a_few_rows_fit_on_a_nearly_full_disk_and_a_run_says_how_much_it_wants(
    tmp_path: Path,
) -> None:
    database = tmp_path / "x.duckdb"
    done = subprocess.run(
        [sys.executable, "-c", NEARLY_FULL, database],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "have 17 MiB of disk space free, then resume the run\n"
    assert list(read(tmp_path / "x.journal" / "r1" / "few.journal")) == [call(1), call(2)]


def test_a_disk_that_cannot_take_a_row_keeps_it_for_the_next_flush(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Writer(path) as journal:
        rows = [call(number) for number in range(3)]
        for row in rows:
            journal.append(row)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(codec.header()) + 100, hard))
            os.ftruncate(journal._fd, len(codec.header()))
            journal._reserved = 0
            with pytest.raises(StoreError, match="bytes of rows are still in memory"):
                journal.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
    assert list(read(path)) == rows
