import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.dispatch.framing import Framing, OverlongError
from agentload.dispatch.shapes import ErrorEvent

STREAMS = st.lists(
    st.sampled_from(
        ["data: a", "data:b", "data", ": ping", "event: x", "id: 7", "", "", "data: é:1"]
    ),
    max_size=12,
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def cut(data: bytes, marks: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(mark % (len(data) + 1) for mark in marks)})
    return [data[a:b] for a, b in pairwise(edges)]


def events(pieces: list[bytes]) -> list[bytes | bytearray]:
    framing = Framing()
    return [payload for piece in pieces for payload in framing.feed(piece)] + framing.end()


def test_an_event_is_its_data_lines_joined_whatever_else_it_says() -> None:
    stream = (
        b": hello\n\nevent: note\ndata: one\ndata:two\nid: 1\n\ndata\n\nretry: 5\n\ndata:  "
        b"spaced\n\n"
    )
    assert events([stream]) == [b"one\ntwo", b"", b" spaced"]


def test_a_byte_order_mark_before_the_first_line_is_no_part_of_it() -> None:
    assert events([b"\xef\xbb", b"\xbfdata: a\n\n"]) == [b"a"]


def test_a_lone_carriage_return_ends_a_line_without_waiting_for_more() -> None:
    framing = Framing()
    assert framing.feed(b"data: a\r\r") == [b"a"]


def test_what_no_blank_line_completes_is_given_at_the_end() -> None:
    framing = Framing()
    assert framing.feed(b"data: a\n\ndata: b") == [b"a"]
    assert framing.end() == [b"b"]
    assert framing.end() == []


@given(lines=STREAMS, end=ENDS, marks=st.lists(st.integers(0, 500), max_size=12))
def test_any_chunking_gives_equal_events(lines: list[str], end: str, marks: list[int]) -> None:
    stream = "".join(line + end for line in lines).encode()
    assert events(cut(stream, marks)) == events([stream])


@given(lines=STREAMS, ends=st.lists(ENDS, min_size=12, max_size=12))
def test_the_kind_of_line_end_makes_no_difference(lines: list[str], ends: list[str]) -> None:
    mixed = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()
    # A CR and the LF of the empty line after it are one line end, as the standard has it.
    plain = mixed.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert events([mixed]) == events([plain])


def test_a_line_that_never_ends_costs_no_more_a_read_than_a_short_one() -> None:
    framing = Framing()
    for _ in range(20_000):  # joined anew with each read it would be ten gigabytes
        assert framing.feed(b"data: " + b"x" * 50) == []
    assert len(framing.end()[0]) == 20_000 * 56 - 6


def fed_for(framing: Framing, piece: bytes, *, total: int) -> None:
    for _ in range(total // len(piece)):
        framing.feed(piece)


@pytest.mark.parametrize(
    "piece",
    [
        b"x" * 65_536,
        *(
            pytest.param(piece, marks=pytest.mark.slow)
            for piece in (
                b"data:" + b"x" * 60_000 + b"\n",
                b"data:\n" * 10_000,
                b"data:" + b"x" * 60_000 + b"\r",
            )
        ),
    ],
)
def test_a_line_and_an_event_have_at_most_16_mb(piece: bytes) -> None:
    framing = Framing()
    with pytest.raises(OverlongError):
        fed_for(framing, piece, total=25 << 20)
    assert framing.held_bytes <= 17 << 20


def test_an_event_of_some_mb_is_whole() -> None:
    framing = Framing()
    found = [
        payload
        for _ in range(200)
        for payload in framing.feed(b"x" * 65_536 if _ else b"data: " + b"x" * 65_530)
    ]
    assert (found, [len(payload) for payload in framing.feed(b"\n\n")], framing.held_bytes) == (
        [],
        [200 * 65_536 - 6],
        0,
    )


def test_comments_without_end_hold_nothing() -> None:
    framing = Framing()
    for _ in range(1_000):
        framing.feed(b": ping\n\n" * 1_000)
    assert framing.held_bytes == 0


def test_an_event_that_is_named_error_is_told_from_others() -> None:
    framing = Framing()
    found = framing.feed(b"event: error\ndata: a\n\ndata: b\n\nevent: note\ndata: c\n\n")
    assert (found, [isinstance(payload, ErrorEvent) for payload in found]) == (
        [b"a", b"b", b"c"],
        [True, False, False],
    )


@pytest.mark.slow
def test_an_event_of_many_lines_takes_the_memory_of_its_text() -> None:
    framing = Framing()
    tracemalloc.start()
    try:
        fed_for(framing, b"data: \n" * 10_000, total=10 << 20)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 4 << 20
