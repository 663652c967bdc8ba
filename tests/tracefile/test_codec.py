"""Files of every kind are read as they were written."""

import io
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from agentload.model import check as checks
from agentload.model.trace import Header, Recorded, Segment, Session, Turn, TurnRef, image_tokens
from agentload.tracefile import codec, digest, lines, read, write

EXAMPLE = b"""\
{"kind":"agentload-trace","version":1,"name":"code","seed":7,"block":64,"tokenizer":null,"prefixes":{"P0":[["system",2800,"sys"],\
["tools",12300,"tools"]]},"source":{"from":"here"}}
{"session":"s42","workload":"code","start_s":12.5,"prefix":"P0","turns":[{"add":[["user",400,"s42.0"]],"output":216},\
{"wait":"tool","wait_s":0.29,"add":[["assistant",216,"s42.a0"],["tool",655,"s42.1"]],"output":180,"spawn":["s43"]},\
{"after":[["s43",-1]],"add":[["assistant",180,"s42.a1"],["tool",350,"s43.r",{"from":["s43",-1]}]],"output":300,\
"check":[{"has":"ZX-4417"}]},\
{"wait":"user","wait_s":600.0,"keep":2,"add":[["user",1800,"s42.sum"]],"output":350,"event":"compact"}]}
{"session":"s43","workload":"code","turns":[{"add":[["image",[448,448],"p"],["user",640,[12,10]]],"output":5}]}
"""

names = st.text(max_size=5)
counts = st.integers(0, 2**40)
seconds = st.floats(0, 1e9)
keys = names | st.tuples(counts, counts)
extras = st.dictionaries(
    st.sampled_from(("x", "y")), st.sampled_from(("1", '"a"', "[null,1.5]", '{"b":{}}'))
).map(lambda d: tuple(d.items()))
refs = st.builds(TurnRef, session=names, turn=st.integers(-1, 99))
sizes = st.tuples(st.integers(1, 2000), st.integers(1, 2000))
texts = st.builds(
    Segment,
    role=st.sampled_from(("system", "user", "assistant", "tool", "tools")),
    tokens=counts,
    key=keys,
    source=st.none() | refs,
    plant=st.none() | names,
    at=st.none() | st.floats(0, 1),
    text=st.none() | names,
    extra=extras,
)
images = st.builds(
    lambda size, key: Segment(role="image", tokens=image_tokens(size), key=key, pixels=size),
    sizes,
    keys,
)
segments = st.lists(texts | images, max_size=3).map(tuple)
documents = st.sampled_from(("{}", '{"a":[1,{"b":null}]}'))
check = (
    st.builds(checks.Has, text=names)
    | st.builds(checks.Matches, pattern=names)
    | st.builds(checks.Number, value=st.floats(-1e9, 1e9), tolerance=seconds)
    | st.builds(checks.JsonSchema, schema=documents)
    | st.builds(checks.ToolCall, name=names, arguments=documents)
    | st.builds(checks.Equals, text=names)
    | st.builds(checks.Length, at_least=counts, at_most=st.none() | counts)
)
recorded = st.builds(
    Recorded,
    ttft_s=st.none() | seconds,
    api_s=st.none() | seconds,
    output=st.none() | counts,
    cached=st.none() | counts,
    start_s=st.none() | seconds,
)
turns = st.builds(
    Turn,
    add=segments,
    output=counts,
    wait=st.sampled_from((None, "tool", "user", "schedule")),
    wait_s=seconds,
    after=st.lists(refs, max_size=2).map(tuple),
    spawn=st.lists(names, max_size=2).map(tuple),
    keep=st.none() | counts,
    check=st.lists(check, max_size=2).map(tuple),
    event=st.none() | names,
    model=st.none() | names,
    deadline_s=st.none() | seconds,
    thinking=st.none() | counts,
    asks=extras,
    recorded=st.none() | recorded,
    context=st.none() | counts,
    extra=extras,
)
sessions = st.builds(
    Session,
    session=st.text(min_size=1, max_size=5),
    workload=names,
    turns=st.lists(turns, min_size=1, max_size=3).map(tuple),
    start_s=st.none() | seconds,
    prefix=st.none() | names,
    extra=extras,
)
headers = st.builds(
    Header,
    name=names,
    seed=st.integers(0, 2**60),
    block=st.integers(1, 512),
    tokenizer=st.none() | names,
    prefixes=st.dictionaries(names, segments, max_size=2),
    source=extras,
    extra=extras,
)


@given(sessions)
def test_a_session_is_read_as_it_was_written(session: Session) -> None:
    assert codec.session(codec.session_line(session)) == session


@given(headers)
def test_a_header_is_read_as_it_was_written(header: Header) -> None:
    assert codec.header(codec.header_line(header)) == header


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.zst"])
def test_a_file_is_written_back_to_the_byte(tmp_path: Path, name: str) -> None:
    plain, copy = tmp_path / "plain.jsonl", tmp_path / name
    plain.write_bytes(EXAMPLE)
    trace = read(plain)
    write(copy, trace)
    assert b"".join(lines(read(copy))) == EXAMPLE
    assert read(copy).header == trace.header
    assert list(read(copy).sessions) == list(trace.sessions) == list(trace.sessions)
    assert digest(copy) == digest(plain)
    assert sorted(tmp_path.iterdir()) == sorted({plain, copy})


def test_a_compressed_file_of_two_frames_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "t.zst"
    cut = EXAMPLE.index(b"\n") + 1
    file.write_bytes(zstandard.compress(EXAMPLE[:cut]) + zstandard.compress(EXAMPLE[cut:]))
    assert b"".join(lines(read(file))) == EXAMPLE


def test_a_dash_reads_standard_input_as_often_as_asked_and_writes_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(zstandard.compress(EXAMPLE))))
    trace = read("-")
    assert len(list(trace.sessions)) == len(list(trace.sessions)) == 2
    write("-", trace)
    assert capfdbinary.readouterr().out == EXAMPLE
