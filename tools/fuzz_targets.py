"""Define each reader of foreign input as a function of bytes, for the fuzzer.

Such a function may raise nothing but the errors that users are meant to see.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from agentload.builtin import find
from agentload.dispatch.fault import body_fault
from agentload.dispatch.sse import StreamParser, document
from agentload.emulator import faults, profile
from agentload.endpoints.read import read_file
from agentload.errors import AgentloadError, StoreError, TraceError
from agentload.exposition.scrape import parse as scraped
from agentload.importers import catalog
from agentload.importers.catalog import conversion
from agentload.importers.parts.intake import Texts
from agentload.matrix.read import read_matrix
from agentload.model.rows import VerdictRow
from agentload.run.files import read_study
from agentload.store import codec, journal
from agentload.store.codec import HEAD, MAGIC, frame
from agentload.tasks.parts.grading import call_text, json_in
from agentload.telemetry.log_lines import start_up, work
from agentload.tracefile import check, overview, read
from agentload.ui.pages import run as page
from agentload.verdict.policy import read_policy
from agentload.watch.jobs_file import read_jobs
from tests.importers.importing import KEY
from tests.importers.samples import laid_out, samples
from tests.store.rows import ONE_OF_EACH

ROOT: Final = Path(__file__).parents[1]
FIXTURES: Final = ROOT / "tests" / "fixtures"
MOST: Final = 2_000
"""Most sessions of an import that are looked at: a few bytes may mean millions."""
OPTIONS: Final = {"prometheus": {"requests": 40}}
"""By importer that draws its calls: so few that the reader takes most of the time."""


@dataclass(frozen=True, slots=True)
class Target:
    """A reader, and inputs that it is known to read."""

    one: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]


def _sse(data: bytes) -> None:
    for size in (len(data) or 1, max(7, len(data) >> 11)):
        parser = StreamParser()
        for at in range(0, len(data), size):
            parser.feed(at, data[at : at + size])
        parser.end(len(data))


def _sse_seeds() -> Iterator[bytes]:
    for path in sorted((FIXTURES / "wire").glob("*.sse")):
        yield path.read_bytes()
    yield (
        b"data: "
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}}]}\r\n\r\n'
    )
    yield (
        b'event: error\ndata: {"error":{"message":"m","code":"400","type":"t"}}\n\ndata: [DONE]\n\n'
    )


def _answer(data: bytes) -> None:
    for each in document(data).tool_calls:
        msgspec.json.encode(call_text(each.name, each.arguments))
    assert len(body_fault(data).text) < 300
    text = data.decode("utf-8", "replace")
    msgspec.json.encode(call_text("f", text))
    json_in(text)


def _answer_seeds() -> Iterator[bytes]:
    for path in sorted((FIXTURES / "wire").glob("*.json")):
        yield path.read_bytes()


def _journal(data: bytes) -> None:
    _in_file(data, lambda path: list(journal.read(path, damaged=lambda _: None)), StoreError)


def _rows(data: bytes) -> None:
    """Read bytes that are no row in a whole frame with a right checksum.

    A newer or a faulty program may write such frames.
    """
    kind, payload = (data[0] % 16, data[1:]) if data else (0, b"")
    content = codec.header() + frame(kind, payload)
    _in_file(content, lambda path: list(journal.read(path, damaged=lambda _: None)), StoreError)


def _journal_seeds() -> Iterator[bytes]:
    yield codec.header() + b"".join(codec.record(row) for row in ONE_OF_EACH)
    yield MAGIC


def _rows_seeds() -> Iterator[bytes]:
    for row in ONE_OF_EACH:
        whole = codec.record(row)
        yield whole[HEAD.size - 1 : HEAD.size] + whole[HEAD.size :]


def _trace(data: bytes) -> None:
    def look(path: Path) -> None:
        found = read(path)
        check.check(found)
        overview.overview(found)

    _in_file(data, look, TraceError)


def _trace_seeds() -> Iterator[bytes]:
    for name in ("demo-chat", "demo-rag"):
        yield b"".join(find("traces", name).read_bytes().splitlines(keepends=True)[:3])


def _importer(name: str, files: Mapping[str, bytes], data: bytes) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        suppress(AgentloadError),
        tempfile.TemporaryFile() as texts,
    ):
        paths = laid_out(
            Path(folder), {**files, max(files, key=lambda each: len(files[each])): data}
        )
        with suppress(AgentloadError):
            catalog.likeliest_format(paths)
        for tolerance in ("lenient", "normal"):
            made = conversion(
                paths,
                key=KEY,
                format=name,
                options=OPTIONS.get(name),
                tolerance=tolerance,
                texts=Texts(texts),
            )
            assert sum(1 for _ in islice(made, MOST)) <= MOST
            assert made.summary.sessions >= 0


def _exposition(data: bytes) -> None:
    with suppress(ValueError):
        found = scraped(data.decode("utf-8", "replace"))
        found.minus(found)
        assert tuple(found.samples()) is not None


def _exposition_seeds() -> Iterator[bytes]:
    yield (
        b'vllm:num_requests_running{engine="0"} '
        b'3\nvllm:cache_config_info{engine="0",block_size="16"} 1.0\n'
    )
    yield (
        b'# TYPE a histogram\nvllm:time_to_first_token_seconds_bucket{le="0.1"} '
        b"1\nvllm:time_to_first_token_seconds_sum 0.1\n"
    )


def _log(data: bytes) -> None:
    lines = data.decode("utf-8", "replace").splitlines()
    start_up(lines)
    assert list(work(lines)) is not None


def _log_seeds() -> Iterator[bytes]:
    yield b"INFO non-default args: {'max_model_len': 4096}\nINFO GPU KV cache size: 1,234 tokens\n"


def _document(reader: Callable[[Path], Any], data: bytes) -> None:
    _in_file(
        data, reader, AgentloadError, OSError
    )  # OSError: a name that no file can have, which the command line reports


def _profile(path: Path) -> None:
    profile.read(str(path))


def _faults(path: Path) -> None:
    faults.parse(path.read_text(encoding="utf-8", errors="replace"), name="x")


def _document_seeds(*patterns: str) -> Iterator[bytes]:
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            yield path.read_bytes()[:20_000]


def _written(*values: object) -> Iterator[bytes]:
    for value in values:
        yield yaml.safe_dump(value, sort_keys=False).encode()


ARMS: Final = {
    "model": "m",
    "arms": {
        "a": {
            "url": "http://x/v1",
            "price_per_hour": 2.5,
            "launch": ["sh", "-c", "x"],
            "expect": {"kv_cache_dtype": "fp8"},
            "gpus": 2,
        },
        "b": {
            "machines": {"m": "http://x/v1", "n": "http://y/v1"},
            "headers": {"a": "b"},
            "extra_body": {"c": [1]},
            "replica_headers": ["x"],
        },
    },
}
JOBS: Final = {
    "database": "x.duckdb",
    "jobs": {
        "nightly": {
            "traces": ["rag"],
            "endpoints": "prod=http://x/v1",
            "schedule": {"cron": "0 2 * * *", "time_zone": "Europe/Berlin", "stagger_s": 300},
            "budget": {"calls": 400, "minutes": 30},
            "retention": {"runs": 30},
            "policy": {"min_change": 0.03, "slos": [{"ttft_ms": 3000}]},
            "notify": {"slack": "SLACK_URL"},
        }
    },
}
STUDIES: Final = (
    {
        "study": 1,
        "kind": "replay",
        "traces": ["rag"],
        "servers": {"endpoints": "a=http://x/v1"},
        "load": {"wait_cap_s": {"user": "5m"}},
    },
    {
        "study": 1,
        "kind": "ask",
        "servers": {"endpoints": "a=http://x/v1"},
        "contexts": "1k..8k",
        "items": 10,
    },
    {
        "study": 1,
        "kind": "sweep",
        "servers": {"endpoints": "a=http://x/v1"},
        "contexts": [512],
        "pairs": 2,
    },
)
POLICY: Final = {
    "min_change": 0.03,
    "slos": [{"workload": "chat", "ttft_ms": 800}],
    "load": {"peak_agents": 4},
    "price": {"usd_per_gpu_hour": 1},
}
FAULTS: Final = {
    "faults": [
        {"kind": "cut", "share": 0.5},
        {"kind": "busy", "status": 429, "every": 3},
        {"kind": "restart", "at_s": 3},
    ]
}
MATRIX: Final = {
    "models": {"a": {"endpoints": "a=http://x/v1"}},
    "workloads": {"rag": "rag"},
    "measure": {"replay": {"pairs": 2}},
}


def _decision(data: bytes) -> None:
    """Look at a stored decision as the page of its run does."""
    row = VerdictRow(run_id="r", at_ns=1, policy="p", decision=data.decode("utf-8", "replace"))
    page.verdict_of(row)


def _decision_seeds() -> Iterator[bytes]:
    found = msgspec.json.decode(
        (ROOT / "tests" / "report" / "goldens" / "decision.json").read_bytes()
    )
    yield msgspec.json.encode({name: found[name] for name in ("headline", "decision", "answers")})


def _in_file(data: bytes, look: Callable[[Path], object], *told: type[Exception]) -> None:
    with tempfile.TemporaryDirectory() as folder, suppress(*told):
        path = Path(folder) / "x.yaml"
        path.write_bytes(data)
        look(path)


def _importers() -> Iterator[tuple[str, Target]]:
    with tempfile.TemporaryDirectory() as scratch:
        found = samples(Path(scratch))
    for name, files in sorted(found.items()):
        packed = {
            each: text.encode() if isinstance(text, str) else text for each, text in files.items()
        }
        largest = max(packed.values(), key=len)
        yield f"import-{name}", Target(partial(_importer, name, packed), partial(iter, (largest,)))


TARGETS: Final[Mapping[str, Target]] = {
    "sse": Target(_sse, _sse_seeds),
    "answer": Target(_answer, _answer_seeds),
    "journal": Target(_journal, _journal_seeds),
    "rows": Target(_rows, _rows_seeds),
    "trace": Target(_trace, _trace_seeds),
    "exposition": Target(_exposition, _exposition_seeds),
    "log": Target(_log, _log_seeds),
    "arms": Target(partial(_document, read_file), partial(_written, ARMS)),
    "jobs": Target(partial(_document, read_jobs), partial(_written, JOBS)),
    "study": Target(partial(_document, read_study), partial(_written, *STUDIES)),
    "policy": Target(partial(_document, read_policy), partial(_written, POLICY)),
    "faults": Target(partial(_document, _faults), partial(_written, FAULTS)),
    "matrix": Target(partial(_document, read_matrix), partial(_written, MATRIX)),
    "profile": Target(
        partial(_document, lambda path: profile.read(str(path))),
        partial(_document_seeds, "profiles/llama-3.1-8b-h100.yaml"),
    ),
    "decision": Target(_decision, _decision_seeds),
    **dict(_importers()),
}
