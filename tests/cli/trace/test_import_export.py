"""The verbs that bring traces in, send them out, and make them less kind."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agentload.cli.main import main
from agentload.cli.trace import importing
from agentload.tracefile import read
from tests.importers import test_mooncake, test_prometheus, test_tables_of_requests
from tests.importers.importing import jsonl, written

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def called(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["agentload", "trace", *map(str, arguments)])
        code = main()
        out, err = capfd.readouterr()
        return code, out, err

    return called


SUMMARY = """\
mooncake: 1 file, 0.0 MB → 3 sessions, 3 calls, 1.5 s
tokens: 31 prompt (10 a call), 5 output (2 a call)
ideal prefix-hit ratio: source 25.81%, import 25.81%
estimated: 1 × an answer without tokens: one is requested
licence: the public Mooncake traces are Apache-2.0 (kvcache-ai/Mooncake)
"""


def test_a_file_is_imported_and_its_summary_stands_on_stderr(tmp_path: Path, run: Run) -> None:
    source = written(tmp_path / "m.jsonl", test_mooncake.LINES)
    assert run("import", source, "block=4", "-o", tmp_path / "t.jsonl.zst") == (0, "", SUMMARY)
    assert len(list(read(tmp_path / "t.jsonl.zst").sessions)) == 3
    code, out, err = run("import", "mooncake", source, "block=4")
    assert (code, out.count("\n"), err) == (0, 4, SUMMARY)
    assert run("check", tmp_path / "t.jsonl.zst")[0] == 0


def test_the_summary_is_data_when_it_is_asked_for(tmp_path: Path, run: Run) -> None:
    source = written(tmp_path / "m.jsonl", test_mooncake.LINES)
    code, out, err = run("import", source, "block=4", "--json", "-o", tmp_path / "t.jsonl")
    assert (code, err, json.loads(out)["ideal_import"]) == (0, "", 8 / 31)


def test_an_import_that_takes_long_says_how_far_it_is(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "PROGRESS_S", 0.001)
    source = written(tmp_path / "m.jsonl", test_mooncake.LINES * 200)
    code, _, err = run("import", source, "block=4", "-o", tmp_path / "t.jsonl")
    assert (code, " so far\n" in err, err.endswith(" (kvcache-ai/Mooncake)\n")) == (0, True, True)


def test_malformed_records_are_errors_unless_they_may_be_left_out(tmp_path: Path, run: Run) -> None:
    source = written(tmp_path / "a.csv", test_tables_of_requests.AZURE + "x,1,1\n")
    assert run("import", source, "-o", tmp_path / "t.jsonl") == (
        1,
        "",
        (
            f"error: {source}:4: TIMESTAMP is not a date and time\nhint: --lenient skips such "
            "records and counts them\n"
        ),
    )
    assert not (tmp_path / "t.jsonl").exists()
    code, _, err = run("import", source, "--lenient", "-o", tmp_path / "t.jsonl")
    assert (code, f"skipped: 1 × TIMESTAMP is not a date and time (first: {source}:4)" in err) == (
        0,
        True,
    )


def test_words_are_kept_beside_the_trace_and_that_is_said(tmp_path: Path, run: Run) -> None:
    chat = [
        {"role": "user", "content": "a question about whales"},
        {"role": "assistant", "content": "an answer"},
    ]
    source = written(tmp_path / "c.jsonl", jsonl({"messages": chat}))
    code, _, err = run("import", source, "--with-text", "-o", tmp_path / "t.jsonl")
    texts = tmp_path / "t.text.jsonl"
    assert (
        code,
        f"literal text: 2 contents in {texts}; it is as private as the source" in err,
    ) == (0, True)
    assert "whales" not in (tmp_path / "t.jsonl").read_text()
    code, out, err = run("export", "openai-batch", tmp_path / "t.jsonl", "--text", texts)
    assert (code, "a question about whales" in out) == (0, True)
    assert (
        err == "words: those of 1 content are the source's, all others drawn with their lengths\n"
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["import", "--json", "{m}"], "error: --json needs a file for the trace\nhint: -o FILE\n"),
        (
            ["import", "--with-text", "{m}"],
            "error: --with-text needs a file for the trace\nhint: -o FILE\n",
        ),
        (
            ["import", "--lenient", "--strict", "{m}"],
            "error: --lenient and --strict exclude each other\n",
        ),
        (
            ["import", "monkake", "{m}"],
            "error: no format 'monkake'\nhint: did you mean mooncake?\n",
        ),
        (
            ["import", "mooncake", "{m}", "blok=4"],
            "error: 'mooncake' has no option 'blok'\nhint: did you mean block?\n",
        ),
        (
            ["export", "mooncake", "{m}", "4"],
            (
                "error: '4' is no option of the form NAME=VALUE\nhint: agentload trace export "
                "mooncake\n"
            ),
        ),
        (
            ["export", "mooncake", "{m}", "--text", "{m}"],
            (
                "error: --text: 'mooncake' holds no words\nhint: agentload trace export FORMAT "
                "TRACE without --text\n"
            ),
        ),
        (
            ["degrade", "{m}"],
            "error: nothing to degrade\nhint: agentload trace degrade TRACE --break 0.1 -o FILE\n",
        ),
        (["degrade", "{m}", "--scale", "0"], "error: --scale must be positive, got 0\n"),
    ],
)
def test_what_contradicts_itself_is_refused(
    tmp_path: Path, run: Run, arguments: list[str], error: str
) -> None:
    source = written(tmp_path / "m.jsonl", test_mooncake.LINES)
    assert run(*(str(source) if argument == "{m}" else argument for argument in arguments)) == (
        2,
        "",
        error,
    )


def test_formats_and_their_options_are_listed(run: Run) -> None:
    code, out, _ = run("import")
    assert (code, "openclaw  " in out, "weka  " in out) == (0, True, True)
    _, out, _ = run("import", "weka")
    assert out.endswith("\nblock    64\nevery_s  0.0\n")
    _, out, _ = run("import", "weka", "--json")
    assert json.loads(out)["options"] == {"block": 64, "every_s": 0.0}
    assert "vllm-multi-turn  " in run("export")[1]
    assert run("export", "mooncake")[1].endswith(
        "\nblock        0\ns_per_token  0.02\nsessions     flat\n"
    )


@pytest.mark.parametrize("verb", [("export", "mooncake", "rag"), ("degrade", "rag", "--cap", "1")])
def test_a_shipped_trace_is_known_by_its_name(run: Run, verb: tuple[str, ...]) -> None:
    code, out, err = run(*verb)
    assert (code, err, out.count("\n") > 10) == (0, "", True)


def test_what_was_imported_can_be_degraded_and_exported_through_pipes(tmp_path: Path) -> None:
    source = written(tmp_path / "m.jsonl", test_mooncake.LINES)
    agentload = Path(sys.executable).with_name("agentload")
    command = (
        f"{agentload} trace import mooncake {source} block=4 | {agentload} trace degrade - "
        f"--scale 2 | {agentload} trace export mooncake -"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert [json.loads(line)["timestamp"] for line in done.stdout.splitlines()] == [0, 3_000, 3_000]


@pytest.mark.loopback
def test_a_trace_is_fitted_to_metrics_from_a_file_or_a_server(tmp_path: Path, run: Run) -> None:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(test_prometheus.CHAT.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        code, _, err = run(
            "fit", "--prometheus", url, "rate_per_s=2", "requests=200", "-o", tmp_path / "t.jsonl"
        )
        server.shutdown()
        thread.join()
    assert (
        code,
        (
            "calls are drawn from 100 requests' histograms: 60.0% of prompt tokens were "
            "cached, 2 requests per second"
        )
        in err,
    ) == (0, True)
    assert sum(len(session.turns) for session in read(tmp_path / "t.jsonl").sessions) == 200
    code, _, err = run("fit", "--prometheus", url)
    assert (code, err.startswith(f"error: {url}: "), "hint: name the whole address" in err) == (
        1,
        True,
        True,
    )
    written(tmp_path / "m.prom", test_prometheus.CHAT)
    assert (
        run(
            "fit",
            "--prometheus",
            tmp_path / "m.prom",
            "requests=20",
            "rate_per_s=1",
            "-o",
            tmp_path / "t.jsonl",
        )[0]
        == 0
    )
    assert run("fit", "--prometheus", tmp_path / "m.prom", "requests")[0] == 2
    assert run("fit", "--prometheus", tmp_path / "m.prom", "--for", "1")[0] == 2
    same = [
        "--prometheus",
        tmp_path / "m.prom",
        "--prometheus",
        written(tmp_path / "n.prom", test_prometheus.CHAT),
    ]
    assert run("fit", *same) == (
        1,
        "",
        (
            f"error: {tmp_path / 'n.prom'}: no request ended between the texts, or not a "
            "vLLM or SGLang server\n"
            "hint: save SERVER/metrics after some load\n"
        ),
    )


BESIDE = """\
next to production       trace  production
prompt tokens mean          10  1,800            less
prompt tokens q50           10  100 to 1,000     less
prompt tokens q90           12  1,000 to 10,000  less
prompt tokens q99           12  1,000 to 10,000  less
output tokens mean           2  120              less
output tokens q50            1  up to 100        alike
output tokens q90            3  100 to 1,000     less
output tokens q99            3  100 to 1,000     less
cached share of prompts     0%  60%              less
1 of 9 alike
first token, batch size and KV pool: agentload report --against, of a run with this trace
"""


def test_a_trace_is_shown_beside_production(tmp_path: Path, run: Run) -> None:
    source, prom = (
        written(tmp_path / "m.jsonl", test_mooncake.LINES),
        written(tmp_path / "m.prom", test_prometheus.CHAT),
    )
    run("import", source, "block=4", "-o", tmp_path / "t.jsonl")
    code, out, err = run("show", tmp_path / "t.jsonl", "--against", f"prometheus={prom}")
    assert (code, out.endswith("\n" + BESIDE), err) == (0, True, "")
    code, out, _ = run("show", tmp_path / "t.jsonl", "--json", "--against", f"prometheus={prom}")
    found = json.loads(out)
    assert (code, found["overview"]["turns"], len(found["against"])) == (0, 3, 9)
    assert run("show", tmp_path / "t.jsonl", "--against", "metrics=x")[0] == 2
    assert run("show", tmp_path / "t.jsonl", "--against", str(prom))[0] == 1
    assert run("show", tmp_path / "t.jsonl", "--against", f"prometheus={source}")[0] == 1
    assert run("show", tmp_path / "t.jsonl", "--against", f"prometheus={tmp_path / 'none'}")[0] == 1


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (
            "http://me:word@127.0.0.1/metrics",
            "http://127.0.0.1/metrics: an address with a password",
        ),
        ("http://127.0.0.1:x/metrics", "http://127.0.0.1:x/metrics: no address"),
    ],
)
def test_an_address_that_cannot_be_read_is_an_error_that_shows_no_password(
    tmp_path: Path, run: Run, place: str, error: str
) -> None:
    written(tmp_path / "m.jsonl", test_mooncake.LINES)
    run("import", tmp_path / "m.jsonl", "block=4", "-o", tmp_path / "t.jsonl")
    code, _, err = run("show", tmp_path / "t.jsonl", "--against", f"prometheus={place}")
    assert (code, err.partition("\n")[0]) == (1, f"error: {error}")
