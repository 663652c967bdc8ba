"""What people mistype, and whether the hint is the corrected option, ready to paste."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentload.cli import main as cli
from agentload.errors import UsageError
from agentload.study.argv import build_study
from tests.study.words import split

DECIDE = "decide rag --profile gpt-oss-20b-h100 --arms bf16,fp8"
REPLAY = "replay rag --endpoints a=http://127.0.0.1:9/v1,b=http://127.0.0.1:10/v1"
EVAL = "eval --endpoints a=http://127.0.0.1:9/v1,b=http://127.0.0.1:10/v1"
FIND = "simulate rag --profile gpt-oss-20b-h100 --arms bf16,fp8 --find max-concurrency"
EMULATED = "sweep --endpoints emulated:gpt-oss-20b-h100/bf16+fp8"

OPTIONS = [  # the words before the mistake, the mistake, the hint
    (DECIDE, "--min-change 3", "--min-change 3%"),
    (DECIDE, "--min-change 3percent", "--min-change 3%"),
    (DECIDE, "--min-change 0", "--min-change 3%"),
    (DECIDE, "--min-change 150%", "--min-change 100%"),
    (DECIDE, "--min-change 300", "--min-change 100%"),
    (REPLAY, "--cancel-share -3", "--cancel-share 3%"),
    (REPLAY, "--cancel-share 120%", "--cancel-share 100%"),
    (DECIDE, "--accuracy-margin 3", "--accuracy-margin 3%"),
    (DECIDE, "--accuracy-margin 3points", "--accuracy-margin 3%"),
    (DECIDE, "--budget 45mins", "--budget 45m"),
    (DECIDE, "--budget 2hours", "--budget 2h"),
    (DECIDE, "--budget soon", "--budget 45m"),
    (DECIDE, "--budget -5m", "--budget 5m"),
    (DECIDE, "--slo ttft=2sec", "--slo ttft=2s"),
    (DECIDE, "--slo ttft:2s", "--slo ttft=2s"),
    (DECIDE, "--slo 2s", "--slo ttft=2s"),
    (DECIDE, "--slo itl=50", "--slo tpot=50ms"),
    (DECIDE, "--slo ttft=2s,tpot", "--slo ttft=2s,tpot=50ms"),
    (DECIDE, "--slo ttft=2s,ttft=3s", "--slo ttft=2s"),
    (DECIDE, "--agents 1.5", "--agents 2"),
    (DECIDE, "--agents many", "--agents 12"),
    (DECIDE, "--agents 0", "--agents 1"),
    (DECIDE, "--price -2", "--price 2"),
    (DECIDE, "--price 2usd", "--price 2"),
    (DECIDE, "--wait-cap 60", "--wait-cap user=60"),
    (DECIDE, "--wait-cap usr=60", "--wait-cap user=60"),
    (DECIDE, "--wait-cap user=60sec", "--wait-cap user=60s"),
    (DECIDE, "--sessions 8x", "--sessions 8"),
    (DECIDE, "--sessions 0", "--sessions 1"),
    (f"{DECIDE} --agents 9", "--decide-by cost", "--decide-by gpus"),
    (f"{DECIDE} --agents 9", "--decide-by latancy", "--decide-by latency"),
    (DECIDE, "--fail-on avod", "--fail-on avoid"),
    (DECIDE, "--seed x1", "--seed 1"),
    (DECIDE, "--profil llama", "--profile llama"),
    (DECIDE, "--sesions 8", "--sessions 8"),
    (REPLAY, "--max-context 120kb", "--max-context 120k"),
    (REPLAY, "--context 120kb", "--max-context 120k"),
    (DECIDE, "--sesions 8x", "--sessions 8"),
    (DECIDE, "--min-chang 3", "--min-change 3%"),
    (REPLAY, "--session 0", "--sessions 1"),
    (DECIDE, "--price 2,50", "--price 2.50"),
    (DECIDE, "--slo ttft=-2s", "--slo ttft=2s"),
    (DECIDE, "--slo ttft=2s,tpot=0", "--slo ttft=2s,tpot=50ms"),
    (REPLAY, "--temperature hot", "--temperature 0.7"),
    (REPLAY, "--temperature 0,125", "--temperature 0.125"),
    (DECIDE, "--price 1,000.5", "--price 1000.5"),
    (REPLAY, "--max-context 120ktokens", "--max-context 120k"),
    (REPLAY, "--duration 90secs", "--duration 90s"),
    (REPLAY, "--duration 1h30m", "--duration 1h"),
    (REPLAY, "--rate 5/s", "--rate 5"),
    (REPLAY, "--pairs three", "--pairs 12"),
    (REPLAY, "--pairs 0", "--pairs 1"),
    (REPLAY, "--burst 5", "--rate 2 --burst 5x10/60"),
    (f"{REPLAY} --rate 2", "--burst 5", "--burst 5x10/60"),
    (REPLAY, "--design abba", "--design interleaved"),
    (REPLAY, "--cache cald", "--cache cold"),
    (REPLAY, "--sessions 4 --rate 2", "--sessions 4, or --rate 2"),
    (FIND, "--share 95", "--share 95%"),
    (FIND, "--minutes 2mins", "--minutes 2m"),
    (EVAL, "--contexts 4k-32k", "--contexts 4k..32k"),
    (EVAL, "--contexts 4kb,32kb", "--contexts 4k,32k"),
    (EVAL, "--contexts 32k..4k", "--contexts 4k..32k"),
    (EVAL, "--depths 0", "--depths 1"),
    (EMULATED, "--contexts 1k-8k", "--contexts 1k..8k"),
]
"""Mistaken options of studies: the corrected ones are read for real."""

OTHERS = [  # the whole line, and what the hint says
    ("simulate rag --profile gpt-oss-20b-h100 --find max-concurency", "--find max-concurrency"),
    (
        "simulate rag --profile gpt-oss-20b-h100 --minutes 2",
        "--find max-concurrency --minutes 2; for a run of that length: --duration 2m",
    ),
    (
        "simulate rag --profile gpt-oss-20b-h100 --minutes 1h",
        "--find max-concurrency --minutes 1h; for a run of that length: --duration 1h",
    ),
    ("simulate rag --profile gpt-oss-20b-h100 --minutes 0", "--duration 15m"),
    (f"{DECIDE} --budget 45", "--budget 45m"),
    ("ui --port 99999", "--port 65535"),
    ("endpoints check 127.0.0.1:9", "http://127.0.0.1:9/v1"),
    ("replay rag --endpoints bf16=localhost:8001", "bf16=http://localhost:8001/v1"),
    (
        "trace import langfuse x.json",
        "export its OpenTelemetry spans, then: agentload trace import otel x.json",
    ),
    (f"{REPLAY} --profile gpt-oss-20b-h100", "agentload simulate rag --profile gpt-oss-20b-h100"),
    ("simulate rag --endpoints a=http://h/v1", "agentload replay rag --endpoints a=http://h/v1"),
    ("simulate rag --endpoints", "agentload replay rag --endpoints URL"),
    ("replay rag --profile", "agentload simulate rag --profile PROFILE"),
    ("calibrate chat", "agentload calibrate chat --model MODEL"),
    ("serve llama-3.1-8b-h100", "`agentload emulate`"),
    ("trace import otel here/span.json", "files there: spans.json"),
    ("trace import here/span.json", "files there: spans.json"),
    ("trace import otel nowhere/span.json", "there is no folder nowhere"),
    (f"replay here/runs.duckdb {REPLAY.partition('rag ')[2]}", "agentload advise here/runs.duckdb"),
    ("trace show here/runs.duckdb", "agentload advise here/runs.duckdb"),
    ("advise here/notes.duckdb", "databases here: here/runs.duckdb"),
    ("compare here/runs.duckdb", "agentload compare here/runs.duckdb --runs a,b"),
    ("compare here/runs.duckdb --runs b", "agentload compare here/runs.duckdb --runs a,b"),
    ("compare here/single.duckdb", "agentload runs list here/single.duckdb"),
    ("decid rag", "did you mean `agentload decide`?"),
    ("trace shwo chat", "did you mean `agentload trace show`?"),
    ("decide ragg --profile gpt-oss-20b-h100", "did you mean rag?"),
    ("decide rag --profile gpt-oss-20b-h100 --arms bf16,fp9", "it has: bf16, fp8, fp8-skip-sw"),
    ("watch add n --trace rag --endpoints a=http://127.0.0.1:9/v1 --cron '0 25 * * *'", "hour"),
    ("simulate rag --profile llama-3.1-8b-h100 --minutes 7", "--duration 7m"),
    ("trace generate cron mode=jobs", "the default is agents"),
    ("watch add n --trace rag --endpoints a=http://h/v1 --cron '0 2 * * *' --pairs 1", "--pairs 3"),
]


URL = "http://127.0.0.1:9/v1"
MISNAMED = [  # a line, and its whole hint: an option of another kind is none
    (f"simulate rag --endpoint {URL}", f"agentload replay rag --endpoints {URL}"),
    (f"simulate rag --url {URL}", f"agentload replay rag --endpoints {URL}"),
    ("simulate rag --ab x", "agentload simulate --help"),
    ("simulate rag --cron x", "agentload simulate --help"),
    ("replay rag --arms fp8", "`agentload simulate` has --arms: agentload simulate --help"),
    ("replay rag --find x", "`agentload simulate` has --find: agentload simulate --help"),
    ("sweep --contexts 1k..4k --profile gpt-oss-20b-h100", "--endpoints emulated:gpt-oss-20b-h100"),
    (f"replay rag --url {URL}", f"--endpoints {URL}"),
    (f"replay rag --base-url={URL}", f"--endpoints {URL}"),
    ("replay rag --qps 4", "--rate 4"),
    ("replay rag --request-rate 4", "--rate 4"),
    ("replay rag --max-concurrency 4", "--sessions 4"),
    ("replay rag --out x", "agentload replay --help"),
    ("replay rag --output x", "agentload replay --help"),
    ("replay rag --quick", "agentload replay --help"),
    ("replay rag --time 60", "agentload replay --help"),
    ("replay rag -n 4", "agentload replay --help"),
    ("replay rag --db", "agentload replay rag --help"),
    ("replay rag --trace chat --sessions 4", "agentload replay chat --sessions 4"),
    ("decide --trace rag", "agentload decide rag"),
    ("decide rag --reps 4", "agentload decide --help"),
    (f"eval --endpoints a={URL} --questions 5", "agentload eval --help"),
    (f"endpoints check --endpoints a={URL}", f"agentload endpoints check a={URL}"),
    ("emulate --profile gpt-oss-20b-h100", "agentload emulate gpt-oss-20b-h100"),
    ("emulate --profile", "agentload emulate --help"),
    ("launch arms.yaml --port 9", "agentload launch --help"),
    ("kv --model llama", "agentload kv llama"),
    ("ui --database=x.duckdb --port 1", "agentload ui x.duckdb --port 1"),
    ("trace export rag --format vllm-multi-turn", "agentload trace export vllm-multi-turn rag"),
    ("trace generate chat --session 4", "agentload trace generate chat sessions=4"),
    ("trace generate chat --sessions=4 -o z", "agentload trace generate chat sessions=4 -o z"),
    ("trace generate chat --session", "agentload trace generate --help"),
    ("trace generate chat --frobnicate 4", "agentload trace generate --help"),
    ("trace generate chat --db x --sessions 4", "agentload trace generate --help"),
    ("trace generate --session 4", "agentload trace generate --help"),
    ("trace import weka x.json --blok 16 -o z", "agentload trace import weka x.json block=16 -o z"),
    ("trace import x.json --block 16", "agentload trace import --help"),
    ("trace export aiperf-dag chat --modell m", "agentload trace export aiperf-dag chat model=m"),
    ("trace fit x.csv --some 4", "agentload trace fit --help"),
    ("trace generate chat --output x", "--out x"),
    ("report x.duckdb --outdir x", "--out x"),
    ("demo --quite x", "--quiet"),
    ("watch run n --jobs x", "agentload watch run --help"),
    ("replay rag --run x", "--run-id x"),
    ("replay rag --dry", "--dry-run"),
    ("replay rag --dbase x", "--db x"),
    ("replay rag --calls 40", "--max-calls 40"),
    ("replay rag --wait-caps user=5", "--wait-cap user=5"),
    ("replay rag --wait-scal user=2", "--wait-scale user=2"),
    ("decide rag --budget-minutes 10m", "--budget 10m"),
    ("endpoints init --model-name x", "--model x"),
    (
        "replay chat --sessions 4 --workers 2 --profile gpt-oss-20b-h100 --pairs=2",
        "agentload simulate chat --sessions 4 --pairs=2 --profile gpt-oss-20b-h100",
    ),
    ("ui --port 80 a.duckdb --databse b.duckdb", "agentload ui --help"),
    ("report --run r --database a.duckdb b.duckdb", "agentload report --help"),
]


def agentload(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Type a line; return its exit code, its error and its hint."""
    monkeypatch.setattr(sys, "argv", ["agentload", *shlex.split(line)])
    code = cli.main()
    said = capsys.readouterr().err.splitlines()
    return code, _after(said, "error: "), _after(said, "hint: ")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a database of two runs, one of a single run, and other files."""
    folder = tmp_path_factory.mktemp("here")
    for database, runs in (("runs", "ab"), ("single", "a")):
        for run in runs:
            line = (
                "simulate demo-chat --profile llama-3.1-8b-h100 --sessions 1 --duration 1 "
                f"--run-id {run} --db"
            )
            assert cli.run([*line.split(), str(folder / f"{database}.duckdb"), "--quiet"]) == 0
    (folder / "notes.duckdb").write_text("no database, whatever its name says")
    (folder / "spans.json").write_text("{}")
    return folder


@pytest.fixture
def beside(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder that has that one under its name."""
    (tmp_path / "here").symlink_to(here)
    monkeypatch.chdir(tmp_path)


def _after(lines: list[str], kind: str) -> str:
    return next((each.removeprefix(kind) for each in lines if each.startswith(kind)), "")


def options_of(hint: str) -> Iterator[str]:
    """Yield the options that a hint offers."""
    yield from re.split(r", or ", hint)


@pytest.mark.parametrize("case", OPTIONS, ids=lambda case: case[1])
def test_the_hint_of_a_mistyped_option_is_the_corrected_one_and_is_read(
    case: tuple[str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, mistake, hint = case
    monkeypatch.chdir(tmp_path)
    is_dry = "" if before == FIND else "--dry-run"
    code, error, said = agentload(f"{before} {mistake} {is_dry}", monkeypatch, capsys)
    assert (code, said) == (2, hint), error
    for option in options_of(said):
        if "--profile" in option.split():
            continue  # it names another profile than this line
        verb, typed = split([*before.split(), *shlex.split(option)])
        build_study(verb, typed)


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize(("line", "hint"), OTHERS)
def test_the_hint_of_another_mistake_names_what_to_write(
    line: str, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error, said = agentload(line, monkeypatch, capsys)
    assert code in (1, 2)
    assert hint in said, error


@pytest.mark.parametrize(("line", "hint"), MISNAMED)
def test_an_option_that_only_looks_like_the_mistyped_one_is_not_offered(
    line: str, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error, said = agentload(line, monkeypatch, capsys)
    assert (code, said) == (2, hint), error


def test_a_choice_with_a_quote_in_it_is_repeated_as_it_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ("it's", 'inter"leaved', "a is not one of b"):
        line = f"{REPLAY} --design {shlex.quote(wrong)}"
        code, error, hint = agentload(line, monkeypatch, capsys)
        assert (code, hint.split()[0]) == (2, "--design")
        assert wrong in error
        assert error.count("interleaved") == 1


def test_the_table_has_sixty_mistakes() -> None:
    assert len(OPTIONS) + len(OTHERS) >= 60


def test_a_limit_that_seconds_were_meant_by_is_doubted_before_anything_is_spent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"{DECIDE} --slo ttft=2,tpot=0.05,turn=30s --print-study"
    monkeypatch.setattr(sys, "argv", ["agentload", *shlex.split(line)])
    assert cli.main() == 0
    assert capsys.readouterr().err.splitlines() == [
        "warning: --slo ttft=2 is 2 ms; did you mean ttft=2s?",
        "warning: --slo tpot=0.05 is 0.05 ms; did you mean tpot=0.05s?",
    ]
    with pytest.raises(UsageError):
        build_study(*split([*DECIDE.split(), "--slo", "ttft"]))
