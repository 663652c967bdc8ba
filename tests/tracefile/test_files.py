import gzip
from pathlib import Path

import pytest
import zstandard

from agentload import documents
from agentload.errors import TraceError
from agentload.model.trace import Header, Trace
from agentload.tracefile import files, read, write
from agentload.workloads import catalog

HEADER = '{"kind":"agentload-trace","version":1,"name":"x"}\n'


def session(turn: str = '{"add":[["user",4,"k"]],"output":3}', *, more: str = "") -> str:
    return f'{{"session":"s","workload":"w","start_s":0,"turns":[{turn}]{more}}}\n'


FORMAT = "docs/trace.schema.json describes every field"
IMPORT = "if it is another program's log: agentload trace import FORMAT FILE"
LOOK = "sed -n 3p {file} shows the line; fix it, or delete it: sed -i 3d {file}"
LOOK_2 = LOOK.replace("3", "2")
BROKEN = [
    ("", ":1: not JSON: Input data was truncated", IMPORT),
    ("hello\n", ":1: not JSON: JSON is malformed: invalid character (byte 0)", IMPORT),
    ("[1]\n", ":1: a line must be a JSON object", IMPORT),
    ('{"timestamp":0,"input_length":5}\n', (':1: no trace header: the first line must be '
        '{"kind":"agentload-trace",…}'), IMPORT),
    (
        '{"kind":"agentload-trace","version":2}\n',
        ":1: trace version 2 is newer than this program reads (1)",
        "pip install --upgrade agentload",
    ),
    ('{"kind":"agentload-trace","version":1}\n', (":1: Object missing required "
        "field `name`"), FORMAT),
    (HEADER + session() + "{\n" + session(), ":3: not JSON: Input data was truncated", LOOK),
    (HEADER + session(more=',"x":' + "[" * 5000), (":2: not JSON: maximum recursion depth exceeded "
        "while deserializing an object"), LOOK_2),
    (HEADER + session(more=',"x":' + "9" * 5000), (":2: not JSON: Integer value out of "
        "range - at `$[...]`"), LOOK_2),
    (HEADER + session('{"add":[],"output":-1}'), (":2: turns[0].output: Expected "
        "`int` >= 0"), FORMAT),
    (HEADER + session('{"add":[],"output":"3"}'), (":2: turns[0].output: Expected "
        "`int`, got `str`"), FORMAT),
    (HEADER + session('{"add":[["robot",4,"k"]],"output":3}'), (":2: turns[0].add[0][0]: Invalid "
        "enum value 'robot'"), FORMAT),
    (
        HEADER + session('{"add":[["user",[4,4],"k"]],"output":3}'),
        ":2: segment 'k': [width, height] replaces tokens for images only",
        FORMAT,
    ),
    (
        HEADER + session('{"add":[["user",-4,"k"]],"output":3}'),
        ":2: segment 'k': tokens must be 0 to 2^53 and an image's sides >= 1, got -4",
        FORMAT,
    ),
    (
        HEADER + session('{"add":[["user",9007199254740993,"k"]],"output":3}'),
        ":2: segment 'k': tokens must be 0 to 2^53 and an image's sides >= 1, got 9007199254740993",
        FORMAT,
    ),
    (
        HEADER + session('{"add":[],"output":3,"check":[{"has":"a","equals":"b"}]}'),
        ":2: a check has exactly one kind, this one has has, equals",
        FORMAT,
    ),
    (HEADER + session('{"add":[],"output":3,"check":[{}]}'), (":2: a check has exactly one kind, "
        "this one has none"), FORMAT),
    (HEADER + session("")[:-1] + "\n", ":2: turns: Expected `array` of length >= 1", FORMAT),
    (
        HEADER + session() + session()[:40],
        ":3: the last line is truncated: not JSON: Input data was truncated",
        "the file was cut short; --lenient skips this line",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "hint"), BROKEN)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(text)
    with pytest.raises(TraceError) as raised:
        list(read(file).sessions)
    assert (raised.value.message, raised.value.hint) == (
        f"{file}{message}",
        hint.replace("{file}", str(file)),
    )


def test_a_lenient_reader_leaves_out_a_truncated_last_line_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(HEADER + session() + session()[:40])
    assert len(list(read(file, lenient=True).sessions)) == 1
    file.write_text(HEADER + "{\n" + session())
    with pytest.raises(TraceError, match=":2: not JSON"):
        list(read(file, lenient=True).sessions)


def test_a_last_line_without_newline_counts_if_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(HEADER + session().rstrip())
    assert len(list(read(file).sessions)) == 1


def test_the_header_is_read_at_once_and_sessions_when_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(HEADER + session() + "broken\n")
    assert next(iter(read(file).sessions)).session == "s"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.jsonl: No such file or directory"):
        read(tmp_path / "nowhere.jsonl")


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    file = tmp_path / "t.zst"
    file.write_bytes(zstandard.compress(HEADER.encode())[:4] + b"\xff" * 40)
    with pytest.raises(TraceError, match="damaged or cut short: zstd"):
        read(file)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "t.jsonl.zst",
            "zstdcat {file} | sed -n 3p shows the line; fix it, or write the trace again",
        ),
        ("t.jsonl.gz", "zcat {file} | sed -n 3p shows the line; fix it, or write the trace again"),
    ],
)
def test_a_bad_line_is_shown_by_a_command_that_can_read_its_file(
    tmp_path: Path, name: str, hint: str
) -> None:
    text = (HEADER + session() + "{\n").encode()
    file = tmp_path / name
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else zstandard.compress(text))
    with pytest.raises(TraceError) as error:
        list(read(file).sessions)
    assert error.value.hint == hint.format(file=file)


def test_a_byte_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes((HEADER + session()).encode().replace(b'"w"', b'"\xff"'))
    with pytest.raises(
        TraceError, match=r"t\.jsonl:2: not JSON: 'utf-8' codec can't decode byte 0xff"
    ):
        list(read(file).sessions)


@pytest.mark.parametrize("depth", range(880, 1000, 4))
def test_what_is_nested_just_too_deeply_to_be_kept_is_named_with_its_line(
    tmp_path: Path, depth: int
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(HEADER + session(more=',"x":' + "[" * depth + "]" * depth))
    try:
        assert len(list(read(file).sessions)) == 1
    except TraceError as error:
        # either is well
        assert ("t.jsonl:2: not JSON: maximum recursion depth exceeded") in error.message  # noqa: PT017


@pytest.mark.slow
def test_a_compressed_line_without_end_is_refused_at_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line of 1 GiB in 32 kB took as much memory and more."""
    monkeypatch.setattr(documents, "EXPANDS", 1 << 20)
    file = tmp_path / "t.jsonl.zst"
    packer = zstandard.ZstdCompressor().compressobj()
    file.write_bytes(
        packer.compress(HEADER.encode())
        + b"".join(packer.compress(b"0" * (1 << 24)) for _ in range(64))
        + packer.flush()
    )
    with pytest.raises(TraceError, match=r"t\.jsonl\.zst:2: a line longer than 256 MiB"):
        list(read(file).sessions)


def test_a_cut_archive_is_a_truncated_line(tmp_path: Path) -> None:
    file = tmp_path / "t.zst"
    packed = zstandard.ZstdCompressor().compressobj()
    head = packed.compress((HEADER + session() + session()[:40]).encode()) + packed.flush(
        zstandard.COMPRESSOBJ_FLUSH_BLOCK
    )
    file.write_bytes(head)
    with pytest.raises(TraceError, match=":3: the last line is truncated"):
        list(read(file).sessions)


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(HEADER + session() + "broken\n")
    with pytest.raises(TraceError):
        write(tmp_path / "out.jsonl", read(file))
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_that_somebody_laid_out_beside_a_trace_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "t.jsonl.part").symlink_to(precious)
    write(tmp_path / "t.jsonl", catalog.trace("chat", seed=1, options={"sessions": 1}))
    assert precious.read_text() == "mine"
    assert (tmp_path / "t.jsonl").stat().st_size > 100
    assert not (tmp_path / "t.jsonl.part").is_symlink()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(HEADER + session())
    with pytest.raises(TraceError) as raised:
        write(tmp_path / "no" / "out.jsonl", read(file))
    assert raised.value.hint == f"mkdir -p {tmp_path / 'no'}"


@pytest.mark.parametrize("sessions", [3, 60])
def test_sessions_of_a_small_file_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: int
) -> None:
    path = tmp_path / "made.jsonl"
    write(path, catalog.trace("short_chat", seed=7, options={"sessions": sessions}))
    monkeypatch.setattr(files, "SMALL", 10_000)  # bytes: between the two
    trace = read(path)
    first, second = list(trace.sessions), list(trace.sessions)
    assert first == second
    assert (first[0] is second[0]) == (path.stat().st_size <= files.SMALL)


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match=r"'.*/file' is a file, not a folder"):
        write(tmp_path / "file" / "sub" / "x.jsonl", Trace(header=Header(name="x"), sessions=()))
