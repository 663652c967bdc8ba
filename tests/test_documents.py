"""What people write is read within bounds, and what is
wrong with it is an error that names the file and the line.
"""

import gzip
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard

from agentload import documents
from agentload.errors import AgentloadError, ProfileError, TraceError


def bomb(levels: int) -> str:
    return "a0: &a0 [1]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, levels)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [", "x:2: not YAML: while parsing a flow node"),
        ("a: 1\nb: " + "[" * 3000 + "]" * 3000, "x:2: not YAML: nested deeper than 100"),
        ("a:\n  b: &x\n    c: *x", "x:3: not YAML: 'x' holds itself"),
        ("a: &x [1, {b: *x}]", "x:1: not YAML: 'x' holds itself"),
        (bomb(9), "x:7: not YAML: more than 524,288 values"),
        (
            bomb(5).replace("[1]", "{k: v}") + "z: {<<: [" + "*a4, " * 60 + "*a4]}",
            "x:6: not YAML: more than 524,288 values",
        ),
        ("a: 1\nb: " + "9" * 5000, "x:2: not YAML: Exceeds the limit"),
        ("a: 0x" + "f" * 5000, "x:1: not YAML: a whole number of more than 300 digits"),
        ("a: 2026-02-30", "x:1: not YAML: day is out of range for month"),
        ('a: !!int ""', "x:1: not YAML: "),
        ("a: !!bool maybe", "x:1: not YAML: "),
        ("a: !!timestamp soon", "x:1: not YAML: "),
        (
            "a: !!python/object/apply:os.getcwd []",
            "x:1: not YAML: could not determine a constructor",
        ),
        ("a: \x00", "x: not YAML: unacceptable character"),
        ("a: 1\n---\nb: 2", "x:2: not YAML: expected a single document"),
        (
            "? [a, b]\n: {? {c: d}\n : 1}",
            "x:1: not YAML: while constructing a mapping found unhashable key",
        ),
        ("a: '" + "b" * documents.MOST_BYTES, "x: larger than 1 MiB"),
    ],
)
def test_what_yaml_can_say_and_nobody_means_is_an_error_where_it_stands(
    text: str, said: str
) -> None:
    with pytest.raises(ProfileError) as raised:
        documents.parse(text, at="x", raises=ProfileError, hint="do this")
    assert raised.value.message.startswith(said)
    assert len(raised.value.message) < 400
    assert raised.value.hint == "do this"


def test_aliases_and_merged_mappings_are_read() -> None:
    found = documents.parse("a: &x {b: 1}\nc: [*x, *x]\nd: {<<: *x, e: .inf}", at="x")
    assert found == {"a": {"b": 1}, "c": [{"b": 1}, {"b": 1}], "d": {"b": 1, "e": float("inf")}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: 1\nb: caf\xe9\n", "x.yaml:2: not text: invalid continuation byte in UTF-8"),
        (b"a" * (documents.MOST_BYTES + 1), "x.yaml: larger than 1 MiB"),
    ],
)
def test_a_file_that_is_no_text_is_an_error_with_its_line(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "x.yaml").write_bytes(content)
    with pytest.raises(AgentloadError) as raised:
        documents.read(tmp_path / "x.yaml")
    assert raised.value.message == f"{tmp_path}/{said}"


def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(AgentloadError, match="Is a directory"):
        documents.read(tmp_path)
    with pytest.raises(AgentloadError, match="no such file") as raised:
        documents.read(tmp_path / "x.yaml", missing="make one")
    assert raised.value.hint == "make one"


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert documents.read(tmp_path / "x.yaml") == {"a": 1}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\nb", b"a\r\nb\rc\n\n", b"\na\n"])
def test_lines_are_the_same_however_they_are_cut_into_chunks(text: bytes, size: int) -> None:
    found = list(
        documents.lines((text[at : at + size] for at in range(0, len(text), size)), at="x")
    )
    assert found == [line + b"\n" for line in text.split(b"\n")[:-1]] + (
        [text.split(b"\n")[-1]] if not text.endswith(b"\n") and text else []
    )


def test_a_line_without_end_is_refused_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LONGEST_LINE", 1 << 20)
    taken = []

    def endless() -> Iterator[bytes]:
        yield b"a\nb\n"
        while True:
            taken.append(1)
            yield b"0" * (1 << 16)

    with pytest.raises(TraceError, match="x:3: a line longer than 1 MiB"):
        list(documents.lines(endless(), at="x"))
    assert len(taken) == 17


@pytest.mark.parametrize("packed", [lambda text: text, gzip.compress, zstandard.compress])
def test_a_file_is_expanded_whatever_its_name(tmp_path: Path, packed: object) -> None:
    # one of three functions
    (tmp_path / "x").write_bytes(packed(b"a\nb"))  # type: ignore[operator]
    assert list(documents.lines(documents.chunks(tmp_path / "x"), at="x")) == [b"a\n", b"b"]


def test_a_file_that_expands_without_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "ORDINARY", 1 << 20)
    for name, packed in (
        ("a.gz", gzip.compress(b"{}\n" * (1 << 20))),
        ("a.zst", zstandard.compress(b"{}\n" * (3 << 20))),
    ):
        path = tmp_path / name
        path.write_bytes(packed)
        monkeypatch.setattr(documents, "EXPANDS", 100)
        with pytest.raises(TraceError, match=r"bytes expand to more than 1 MiB"):
            for _ in documents.chunks(path):
                pass
        monkeypatch.setattr(documents, "EXPANDS", 100_000)
        assert sum(map(len, documents.chunks(path))) >= 3 << 20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{50: 0.25, 'a': [None]}", {50: 0.25, "a": [None]}),
        (r"'a regular expression: \d+'", r"a regular expression: \d+"),
        ("{50: 1is}", None),
        ("1if 2else 3", None),
        ("(1)(2)", None),
        ("f(1)", None),
        ("{[]: 1}", None),
        ("a\0", None),
        ("[" * 10_000, None),
        ("-" * 100_000 + "1", None),
    ],
)
def test_a_value_in_pythons_notation_is_read_without_the_compilers_warnings(
    text: str, value: object
) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert documents.python_value(text) == value
    assert not said


def test_threads_that_read_pythons_notation_leave_the_process_its_warnings() -> None:
    before = list(warnings.filters)
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(documents.python_value, ["1"] * 4_000)) == {1}
    sys.setswitchinterval(usual_s)
    assert warnings.filters == before
