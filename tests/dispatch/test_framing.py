from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agentload.dispatch.framing import Framing

STREAMS = st.lists(st.sampled_from(["data: a", "data:b", "data", ": ping", "event: x", "id: 7", "", "", "data: é:1"]), max_size=12)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def cut(data: bytes, marks: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(mark % (len(data) + 1) for mark in marks)})
    return [data[a:b] for a, b in pairwise(edges)]


def events(pieces: list[bytes]) -> list[bytes]:
    framing = Framing()
    return [payload for piece in pieces for payload in framing.feed(piece)] + framing.end()


def test_an_event_is_its_data_lines_joined_whatever_else_it_says() -> None:
    stream = b": hello\n\nevent: note\ndata: one\ndata:two\nid: 1\n\ndata\n\nretry: 5\n\ndata:  spaced\n\n"
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
