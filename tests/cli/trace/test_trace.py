"""The verbs as a user types them; what they compute is tested with the rooms that compute it."""

import io
import json
import sys
from functools import cache
from pathlib import Path

import pytest

from agentload.cli import main as cli
from agentload.tracefile import lines
from agentload.workloads import catalog

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> "Typed":
    return Typed(monkeypatch, capfdbinary)


class Typed:
    """Run the command line and return (exit code, stdout, stderr)."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capture = capture

    def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["agentload", "trace", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.main()
        sys.stdout.flush()
        out = self._capture.readouterr()
        return code, out.out.decode(), out.err.decode()


@cache
def small(name: str = "rag", **options: object) -> bytes:
    return b"".join(lines(catalog.trace(name, seed=7, options={"sessions": 20, **options})))


def test_generate_writes_the_trace_of_a_workload(typed: Typed, tmp_path: Path) -> None:
    assert typed("generate", "rag", "sessions=20") == (0, small().decode(), "")
    path = tmp_path / "rag.jsonl"
    calls = small().count(b'"output"')
    assert typed("generate", "rag", "sessions=20", "-o", str(path)) == (
        0,
        "",
        f"{path}: 20 sessions, {calls} calls\n",
    )
    assert path.read_bytes() == small()


def test_generate_takes_seed_scale_and_options(typed: Typed) -> None:
    expected = lines(
        catalog.trace("rag", seed=3, options={"sessions": 4, "rate_per_s": 2.0}, ctx_scale=0.25)
    )
    assert (
        typed(
            "generate", "rag", "sessions=4", "rate-per-s=2", "--seed", "3", "--ctx-scale", "0.25"
        )[1]
        == b"".join(expected).decode()
    )


def test_generate_without_a_workload_lists_them(typed: Typed) -> None:
    code, out, _ = typed("generate")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, list(catalog.names()))
    assert [each["name"] for each in json.loads(typed("generate", "--json")[1])] == list(
        catalog.names()
    )


def test_generate_lists_the_options_of_a_workload(typed: Typed) -> None:
    code, out, _ = typed("generate", "rag", "--options")
    assert (code, out.splitlines()[-6:]) == (
        0,
        [
            "sessions    1000",
            "rate_per_s  0.5",
            "cv          1.1",
            "peak        1.0",
            "passages    74",
            "documents   0.2",
        ],
    )
    assert (
        json.loads(typed("generate", "rag", "--options", "--json")[1])["options"]["passages"] == 74
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rga",), "error: no workload 'rga'\nhint: did you mean rag?\n"),
        (
            ("rag", "pasages=6"),
            "error: workload 'rag' has no option 'pasages'\nhint: did you mean passages?\n",
        ),
        (
            ("rag", "6"),
            (
                "error: '6' is no option of the form NAME=VALUE\nhint: agentload trace "
                "generate WORKLOAD --options\n"
            ),
        ),
        (("rag", "--ctx-scale", "0"), "error: ctx_scale must be in (0, 100], got 0\n"),
    ],
)
def test_generate_says_what_is_wrong_with_its_options(
    typed: Typed, arguments: tuple[str, ...], message: str
) -> None:
    assert typed("generate", *arguments) == (2, "", message)


@pytest.mark.parametrize(
    ("name", "options"),
    [("rag", ()), ("mix", ("--profile", "llama-3.1-8b-h100", "--pool", "100000"))],
)
def test_show_prints_tables_and_lines_of_blocks(
    typed: Typed, name: str, options: tuple[str, ...]
) -> None:
    """`trace generate NAME sessions=20 | trace show - OPTIONS > golden/NAME.txt` mends it."""
    code, out, err = typed("show", "-", *options, stdin=small(name))
    assert (code, err) == (0, "")
    assert out == (GOLDEN / f"show-{name}.txt").read_text()


def test_show_has_the_same_as_json(typed: Typed) -> None:
    shown = json.loads(
        typed("show", "-", "--json", "--profile", "llama-3.1-8b-h100/fp8", stdin=small())[1]
    )
    assert shown["overview"]["sessions"] == 20
    assert shown["arms"][0]["arm"] == "fp8"
    assert (
        shown["overview"]["fields"]["first"]["count"]
        + shown["overview"]["fields"]["first@document"]["count"]
        == 20
    )


def test_show_writes_a_page_that_needs_no_network_and_no_script(
    typed: Typed, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert typed(
        "show",
        "-",
        "--html",
        str(page),
        "--profile",
        "llama-3.1-8b-h100",
        stdin=small("code", sessions=3),
    ) == (0, "", "")
    text = page.read_text()
    assert text.count("<figure>") == 5
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_check_passes_a_trace_and_holds_it_against_its_workload(typed: Typed) -> None:
    code, out, _ = typed("check", "-", stdin=small("short_chat", sessions=1_000))
    assert (code, out.splitlines()) == (
        0,
        [out.splitlines()[0], "8 of 8 figures are what the workload was measured to be"],
    )
    assert out.startswith("1,000 sessions, ")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in catalog.names() if name != "mix"])
def test_check_compares_a_trace_of_default_size(typed: Typed, name: str) -> None:
    code, out, _ = typed("check", "-", stdin=b"".join(lines(catalog.trace(name, seed=7))))
    assert code == 0
    assert " figures are what the workload was measured to be" in out
    assert "note" not in out


def test_show_prints_the_distance_from_another_trace(typed: Typed, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes(small("chat", sessions=3))
    code, out, _ = typed("show", "-", "--against", str(other), stdin=small("chat", sessions=3))
    assert (code, out.splitlines()[-1].partition(" within")[0]) == (0, "15 of 15")
    rows = json.loads(
        typed("show", "-", "--against", str(other), "--json", stdin=small("chat", sessions=3))[1]
    )["against"]
    assert {(row["ratio"], row["verdict"]) for row in rows} == {(1.0, "alike")}


def test_check_notes_what_misses_the_workload(typed: Typed) -> None:
    own, other = b'"workload":"short_chat","options"', b'"workload":"rag","options"'
    code, out, _ = typed("check", "-", stdin=small("short_chat", sessions=400).replace(own, other))
    assert code == 0
    assert "note: missed" in out


def test_check_holds_no_trace_of_other_lengths_against_the_workload(typed: Typed) -> None:
    said = typed("check", "-", stdin=small(sessions=50, passages=2))[1].splitlines()
    assert said[1:] == [
        "not compared with measured quantiles: its options are not those that rag was measured with"
    ]


def test_check_names_what_cannot_be_played_and_exits_with_1(typed: Typed) -> None:
    trace = (
        b'{"kind":"agentload-trace","version":1,"name":"x"}\n'
        b'{"session":"a","workload":"w","start_s":0,"turns":[{"after":[["b",0]],"add":[["user",4,"k"]],"output":3}]}\n'
    )
    assert typed("check", "-", stdin=trace) == (
        1,
        (
            "standard input:2: session a, turn 0: waits for session b, which does not exist\n"
            "1 session, 1 call: 1 problem\n"
        ),
        "error: -: 1 problem: it cannot be played\n",
    )
    assert json.loads(typed("check", "-", "--json", stdin=trace)[1])["report"]["problem_count"] == 1


def test_a_truncated_trace_is_refused_with_its_line_unless_lenient(typed: Typed) -> None:
    trace = small()[:-40]
    code, _, err = typed("check", "-", stdin=trace)
    assert (code, err.splitlines()[1]) == (
        1,
        "hint: the file was cut short; --lenient skips this line",
    )
    assert err.startswith("error: standard input:21: the last line is truncated: ")
    assert typed("check", "-", "--lenient", stdin=trace)[0] == 0


def test_check_notes_tools_in_another_place_than_servers_put_them_and_may_insist(
    typed: Typed, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    add = '[["user",3,"u"],["tools",4,"t"]]'
    path.write_text(
        '{"kind":"agentload-trace","version":1,"name":"t","seed":1,"block":16,"tokenizer":null}\n'
        f'{{"session":"a","workload":"w","start_s":0,"turns":[{{"add":{add},"output":3}}]}}\n'
    )
    said = (
        "1 session, 1 call: can be played\n"
        "note: tools that do not follow the leading system message: 1 call; servers put "
        "them there, so they share another prefix\n"
    )
    assert typed("check", str(path)) == (0, said, "")
    refused = f"error: {path}: there are notes, which --strict does not allow\n"
    assert typed("check", str(path), "--strict") == (1, said, refused)
