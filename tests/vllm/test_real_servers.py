"""Everything that talks to servers, against a real vLLM: launch,
identity, replay, probes, pools, preemptions, death in mid-stream.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from agentload.ask.probes import reuse, reuse_across_arms
from agentload.dispatch.answer import CallTerms
from agentload.endpoints.agreement import agreement
from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify, identify_all
from agentload.endpoints.launch import LaunchedServer, run_servers
from agentload.errors import EndpointError
from agentload.evidence.gather import gather
from agentload.evidence.view import run_view
from agentload.kvmath.compare import sizes
from agentload.kvmath.config import model_shape
from agentload.layout.plan import Scheme, plan
from agentload.layout.traces import sweep as swept
from agentload.live.caller import Sampling, chat
from agentload.live.raw import RawLog
from agentload.live.target import Target
from agentload.live.wire import Wire, WireRequest
from agentload.model.commands import Limits, Outcome
from agentload.model.plan import ClosedLoop, Load
from agentload.model.rows import BlockRow, CallRow, RunRow, SampleRow
from agentload.model.trace import Trace
from agentload.prompts.messages import JsonPiece
from agentload.prompts.renderer import Prompt
from agentload.run.play import Playing, ReplayPart
from agentload.store import journal
from agentload.store.database import reading
from agentload.store.places import journals
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from agentload.tracefile.files import write as write_trace
from agentload.workloads import catalog
from tests.cli.verbs import agentload
from tests.vllm.serving import (
    IDLE_S,
    KEPT,
    LENGTH,
    arms,
    fates,
    kept_bytes,
    launched_by_the_verb,
    missing,
    model,
    typed,
)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.loopback,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.filterwarnings(
        "default"
    ),  # what a vLLM's stream leaves behind when it is killed is not ours
]
SPOKEN = b'{"role":"user","content":"also area arts"}'
THREE = ("bf16", "fp8", "fp8-skip-sw")
GENERATED = {"ok", "garbage"}
"""Random weights repeat themselves, and that is noticed."""
SECOND = 1_000_000_000
START_S = 600  # twenty seconds, on a machine that has nothing else to do


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def windowed(
    weights: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Endpoint, ...]]:
    folder = tmp_path_factory.mktemp("windowed")
    served = arms(folder / "endpoints.yaml", model(weights, "gemma3"), THREE)
    with launched_by_the_verb(folder / "endpoints.yaml"):
        yield served


def played(
    trace: Trace, served: tuple[Endpoint, ...], database: Path, *, sessions: int, pairs: int = 2
) -> str:
    load = Load(arrivals=ClosedLoop(sessions=sessions))
    made = plan(
        trace,
        [arm.name for arm in served],
        run="real",
        scheme=Scheme(pairs=pairs),
        load=load,
        limits=Limits(total_ns=120 * SECOND),
    )
    study = Replay(traces=(TraceRef(path="t"),), servers=Live(endpoints="e"))
    asked = Playing(
        study=study, plan=made, endpoints=served, database=database, trace_hash="", sample_s=0.5
    )
    return asyncio.run(ReplayPart(asked).play()).run_id


def test_three_arms_are_what_the_arms_file_says(windowed: tuple[Endpoint, ...]) -> None:
    identities = dict(zip(THREE, asyncio.run(identify_all(windowed)), strict=True))
    found = agreement(windowed, identities)
    assert (found.mismatches, found.unknown, found.equal) == ((), (), ())
    assert {identity.settings["max_num_batched_tokens"] for identity in identities.values()} == {
        2048
    }
    wrong = replace(windowed[0], expect={"kv_cache_dtype": "fp8"})
    with pytest.raises(EndpointError, match="expected fp8, the server says"):
        agreement([wrong], identities).require()


def test_three_arms_end_in_a_decision_on_prompts_of_exact_length_and_stamps_of_the_kernel(
    windowed: tuple[Endpoint, ...], tmp_path: Path
) -> None:
    shutil.copy(Path(windowed[0].log or "").with_name("endpoints.yaml"), tmp_path)
    write_trace(
        tmp_path / "rag.jsonl",
        catalog.trace("rag", seed=7, options={"sessions": "8", "documents": "0.2"}, ctx_scale=0.15),
    )
    how = ("--pairs", "2", "--sessions", "2", "--wait-cap", "user=0.2")
    typed(
        tmp_path,
        "replay",
        "rag.jsonl",
        "--endpoints",
        "endpoints.yaml",
        "--db",
        "real.duckdb",
        *how,
    )
    database = tmp_path / "real.duckdb"
    with duckdb.connect(
        str(database)
    ) as connection:  # a report that is kept does not say whose machine it was
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
        connection.execute("UPDATE legs SET host = 'one machine'")
    rows = [row for path in journals(database, run) for row in journal.read(path)]
    calls = [row for row in rows if isinstance(row, CallRow)]
    assert {row.status for row in calls} <= GENERATED
    assert {(row.token_rule, row.stamp_source) for row in calls} == {("token_ids", "kernel")}
    assert all(row.output_tokens == row.asked_tokens for row in calls)
    assert [row.void for row in rows if isinstance(row, BlockRow)] == [None] * 6
    (described,) = (row for row in rows if isinstance(row, RunRow))
    assert '"lengths": "exact"' in described.options
    # A text shorter than the frame of its message is as long as the frame, 8 tokens here.
    assert all(0 <= (row.prompt_tokens or 0) - row.context_tokens <= 8 for row in calls)
    assert len({row.prompt_hash for row in calls}) * 3 == len(calls)
    assert any(row.cached_tokens for row in calls)
    out = Path(kept).absolute() if (kept := os.environ.get(KEPT)) else tmp_path / "report"
    typed(tmp_path, "report", "real.duckdb", "-o", str(out))
    decided = json.loads((out / "decision.json").read_text(encoding="utf-8"))
    assert decided["kind"] == "measured"
    assert {each["arm"] for each in decided["decision"]["server"]} == {"fp8", "fp8-skip-sw"}
    said = (out / "decision.md").read_text(encoding="utf-8")
    assert all(found in said for found in ("vLLM 0.", "KV dtype bfloat16", "KV dtype FP8"))


def test_a_second_equal_prompt_comes_from_the_prefix_cache_of_each_arm_and_of_no_other(
    windowed: tuple[Endpoint, ...],
) -> None:
    counted = asyncio.run(tokenizer(windowed[0], "tiny"))
    assert counted is not None
    found = [asyncio.run(reuse(arm, "tiny", tokenizer=counted)) for arm in windowed]
    assert [(each.verdict, each.prompt_tokens) for each in found] == [("hit", 2048)] * 3
    assert [each.cached_tokens for each in found] == [each.counted_hits for each in found]
    others = asyncio.run(reuse_across_arms(windowed, ["tiny"] * 3, tokenizer=counted))
    assert [(each.arm, each.verdict) for each in others] == [
        ("fp8", "no hit"),
        ("fp8-skip-sw", "no hit"),
    ]


def test_a_prompt_that_is_too_long_is_an_error_of_the_server_with_its_words(
    windowed: tuple[Endpoint, ...], tmp_path: Path
) -> None:
    run = played(
        swept((LENGTH + 500,), pairs=1, output=8, seed=1),
        windowed[:1],
        tmp_path / "long.duckdb",
        sessions=1,
        pairs=1,
    )
    (call,) = (
        row
        for path in journals(tmp_path / "long.duckdb", run)
        for row in journal.read(path)
        if isinstance(row, CallRow)
    )
    assert (call.status, call.http_status) == ("http_error", 400)
    assert "maximum context length" in (call.error or "")


def test_pools_of_a_windowed_model_are_as_large_as_computed(
    windowed: tuple[Endpoint, ...], weights: Path
) -> None:
    for arm in windowed:
        _hold_pool(arm, model(weights, "gemma3"))


@pytest.mark.parametrize(("shape", "ways"), [("llama", ("bf16", "fp8")), ("gpt_oss", THREE)])
def test_pools_are_as_large_as_computed(
    shape: str, ways: tuple[str, ...], weights: Path, tmp_path: Path
) -> None:
    shaped = model(weights, shape)
    for arm in arms(tmp_path / "endpoints.yaml", shaped, ways):
        with run_servers([arm], logs=tmp_path, start_s=START_S):
            _hold_pool(arm, shaped)


def _hold_pool(arm: Endpoint, shaped: Path) -> None:
    identity = asyncio.run(identify(arm))
    facts = identity.facts()
    shape = model_shape(json.loads((shaped / "config.json").read_text()), name=shaped.name)
    block = int(
        identity.cache_config["block_size"]
    )  # as asked for: that of the prefix cache may be larger
    computed = sizes(shape, 64 << 20, max_model_len=LENGTH, in_flight=2048, block_tokens=block)
    pool = next(each.pool_tokens for each in computed if each.arm == arm.name)
    assert pool == pytest.approx(float(str(facts["pool_tokens"])), rel=0.01)
    assert identity.log.pool_tokens == pytest.approx(pool, rel=0.01)


def test_a_pool_that_is_too_small_is_seen_to_preempt(weights: Path, tmp_path: Path) -> None:
    (arm,) = arms(
        tmp_path / "endpoints.yaml", model(weights, "llama"), ("bf16",), memory="16M", length=4096
    )
    with run_servers([arm], logs=tmp_path, start_s=START_S):
        run = played(
            swept(range(256, 272), pairs=1, output=1024, seed=1),
            (arm,),
            tmp_path / "x.duckdb",
            sessions=16,
            pairs=1,
        )
    rows = [row for path in journals(tmp_path / "x.duckdb", run) for row in journal.read(path)]
    assert {row.status for row in rows if isinstance(row, CallRow)} <= GENERATED
    samples = [row for row in rows if isinstance(row, SampleRow)]
    assert max(row.value for row in samples if row.name == "preemptions") > 0
    assert max(row.value for row in samples if row.name == "kv_usage") > 0.9


@pytest.mark.parametrize(
    ("ended_by", "statuses"),
    [
        ("api killed", {"truncated", "reset"}),
        ("engine killed", {"stream_error", "truncated", "reset"}),
        # It says `abort` and closes the stream in order, or falls silent.
        ("api terminated", {"short", "idle_timeout", "truncated", "reset", "stream_error"}),
    ],
)
def test_a_server_that_dies_in_mid_stream_is_a_failed_call(
    ended_by: str, statuses: set[str], weights: Path, tmp_path: Path
) -> None:
    (arm,) = arms(tmp_path / "endpoints.yaml", model(weights, "llama"), ("fp8",))
    with _stoppable(arm, tmp_path) as running, RawLog(tmp_path / "raw", which="all") as raw:
        outcome = asyncio.run(_streamed(arm, lambda: _end(running, ended_by), raw))
    assert outcome.status in statuses
    assert outcome.chunks is not None
    assert outcome.done_ns is not None
    said, last_ns = kept_bytes(raw.path)
    assert outcome.status in fates(said, silent_s=(outcome.done_ns - last_ns) / SECOND)
    assert running.survivors() == ()


def test_a_full_queue_is_busy_whether_it_is_said_before_the_stream_or_inside_it(
    weights: Path, tmp_path: Path
) -> None:
    (arm,) = arms(
        tmp_path / "endpoints.yaml",
        model(weights, "llama"),
        ("bf16",),
        "--max-num-queued-reqs",
        "2",
    )
    with run_servers([arm], logs=tmp_path, start_s=START_S):
        refused, crowd = asyncio.run(_crowded(arm))
        counted = asyncio.run(identify(arm)).counters["rejections"]
    assert (refused.status, refused.http_status) == ("busy", 503)
    busy = [each for each in crowd if each.status == "busy"]
    assert {each.status for each in crowd} - GENERATED == {"busy"}
    # Some pass the door while nobody is inside yet, and are turned away in the stream.
    assert 200 in {each.http_status for each in busy}
    assert all("currently busy" in (each.error or "") for each in (refused, *busy))
    assert counted == 1 + len(busy)


async def _crowded(arm: Endpoint) -> tuple[Outcome, list[Outcome]]:
    """Ask once while two streams fill the queue, then many times at once."""
    running = asyncio.Event()
    streaming: set[str] = set()

    def streamed(name: str) -> Callable[[int], None]:
        def note(_: int) -> None:
            streaming.add(name)
            if len(streaming) == 2:
                running.set()

        return note

    async with Wire([Target(arm=arm.name, url=arm.url)]) as wire:
        long = [
            asyncio.create_task(wire.call(_request(arm, f"long{k}", 2000, streamed(f"long{k}"))))
            for k in range(2)
        ]
        await running.wait()
        refused = await wire.call(_request(arm, "third", 4))
        await asyncio.gather(*long)
        return refused, await asyncio.gather(
            *(wire.call(_request(arm, f"crowd{k}", 4)) for k in range(16))
        )


def test_arms_take_turns_on_one_machine_and_a_report_has_lines_and_workloads(
    weights: Path, tmp_path: Path
) -> None:
    file, database, logs = tmp_path / "endpoints.yaml", tmp_path / "turns.duckdb", tmp_path / "logs"
    arms(file, model(weights, "llama"), ("bf16", "fp8"))
    short = tmp_path / "rag.jsonl"
    write_trace(
        short,
        catalog.trace("rag", seed=7, options={"sessions": "4", "documents": "0"}, ctx_scale=0.15),
    )
    agentload(
        "replay --pairs 1 --sessions 1 --wait-cap user=0.2 --launch",
        short,
        endpoints=file,
        db=database,
        logs=logs,
    )
    with reading(database) as connection:
        ((run, model_name),) = connection.execute("SELECT run_id, model FROM runs").fetchall()
    assert model_name == "tiny"
    agentload(
        "sweep --contexts 256,512,1k --pairs 1 --output 8 --launch",
        endpoints=file,
        db=database,
        into=run,
        logs=logs,
    )
    with reading(database) as connection:
        evidence = gather(connection, run_view(connection, run))
        ((starts,),) = connection.execute(
            "SELECT count(DISTINCT facts ->> 'process_start_s') FROM fingerprints"
        ).fetchall()
    assert starts == 6  # each arm twice, once more each time to be met, of which the first stays
    assert [each.name for each in evidence.workloads] == ["rag"]
    assert [(each.arm, each.itl_ms.size) for each in evidence.sweeps] == [("bf16", 3), ("fp8", 3)]
    assert (evidence.arm("bf16").observed_dtype, evidence.arm("fp8").observed_dtype) == (
        "bfloat16",
        "fp8",
    )


@contextmanager
def _stoppable(arm: Endpoint, logs: Path) -> Iterator[LaunchedServer]:
    with run_servers([arm], logs=logs, start_s=START_S) as servers:
        yield servers[arm.name]


def _end(running: LaunchedServer, how: str) -> None:
    match how:
        case "api killed":
            os.kill(running.pid, signal.SIGKILL)
        case "api terminated":
            os.kill(running.pid, signal.SIGTERM)
        case _:
            for pid in running.survivors():
                if pid != running.pid:
                    os.kill(pid, signal.SIGKILL)


async def _streamed(arm: Endpoint, end: Callable[[], None], raw: RawLog) -> Outcome:
    ended = False

    def streamed(tokens: int) -> None:
        nonlocal ended
        if tokens >= 20 and not ended:
            ended = True
            end()

    async with Wire([Target(arm=arm.name, url=arm.url)], raw=raw) as wire:
        return await wire.call(_request(arm, "dies", 6000, streamed))


def _request(
    arm: Endpoint, name: str, tokens: int, streamed: Callable[[int], None] | None = None
) -> WireRequest:
    return WireRequest(
        request_id=name,
        arm=arm.name,
        session=name,
        body=chat(
            Prompt(spoken=(JsonPiece(SPOKEN, 3),), written=()),
            sampling=Sampling(model="tiny", max_tokens=tokens),
        ),
        released_ns=time.monotonic_ns(),
        limits=Limits(idle_ns=int(IDLE_S * SECOND)),
        asked=CallTerms(tokens=tokens, is_forced=True),
        on_tokens=streamed,
    )
