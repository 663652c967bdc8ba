"""Every verb that reads a file is given one that is none of
its own: an error and a hint, an exit code, and no traceback.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

import duckdb
import pytest

from agentload.cli import main as cli

SERVER: Final = "--endpoints emulated:llama-3.1-8b-h100 --dry-run"
QUICK: Final = ("eval --own {} " + SERVER, "kv {}", "runs list {}")
VERBS: Final = (
    *QUICK,
    *(
        "advise {}",
        "report {} -o out",
        "compare {} --runs a,b",
        "runs show {} --run a",
        "runs delete a --db {}",
        "runs load a --db {}",
    ),
    *(
        "advise good.duckdb --policy {}",
        "report good.duckdb --against prometheus={} -o out",
        "ui {} --for 0.1 --port 0",
    ),
    *(
        "trace check {}",
        "trace show {}",
        "trace import openai_chat {} -o out.jsonl",
        "trace import otel {} -o out.jsonl",
    ),
    *(
        "simulate {} --profile llama-3.1-8b-h100",
        "simulate demo-chat --profile {}",
        "profile show {}",
    ),
    *(
        "replay {} " + SERVER,
        "replay demo-chat --endpoints {} --dry-run",
        "eval --endpoints {} --dry-run",
    ),
    *(
        "run {}",
        "matrix run {} --dry-run",
        "watch run nightly --file {}",
        "watch history --file {}",
        "endpoints check {}",
    ),
    *("emulate {} --port 0", "emulate llama-3.1-8b-h100 --faults {} --port 0", "launch {} --print"),
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.chdir(tmp_path)
    texts = {
        "empty": b"",
        "binary": bytes(range(256)) * 40,
        "zeros": bytes(100),
        "utf16": "a: b\n".encode("utf-16"),
        "deep": b"[" * 5000,
    }
    for name, content in (
        texts
        | {
            "null": b"null\n",
            "list": b"[1, 2]\n",
            "text": b"hello world\n",
            "bom": b"\xef\xbb\xbf{}\n",
        }
    ).items():
        Path(name).write_bytes(content)
    Path("folder").mkdir()
    Path("dangling").symlink_to("nowhere")
    Path("loop").symlink_to("loop")
    for name, making in {
        "newer": "CREATE TABLE schema_version AS SELECT 99 AS version",
        "foreign": "CREATE TABLE t (a INTEGER)",
    }.items():
        with duckdb.connect(f"{name}.duckdb") as database:
            database.execute(making)
    missing = ("/dev/null", "missing", "a\nb", "x" * 300, "not utf-8 \udcff")
    return (*sorted(path.name for path in tmp_path.iterdir()), *missing)


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=() if verb in QUICK else pytest.mark.slow) for verb in VERBS]
)
def test_a_file_of_another_kind_is_refused_in_words(
    verb: str,
    files: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in files:
        monkeypatch.setattr(
            sys, "argv", ["agentload", *(word.replace("{}", name) for word in shlex.split(verb))]
        )
        code, said = cli.main(), capsys.readouterr().err
        if (
            code == 0
        ):  # a file without a record may be one, and a page shows what is the matter with it
            continue
        assert (code in {1, 2}, "error: " in said, "hint: " in said) == (True, True, True), (
            name,
            code,
            said,
        )
