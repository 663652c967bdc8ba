"""Public traces, where a folder of them is named by
AGENTLOAD_REAL_TRACES: what comes out is what others measured in them.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload.errors import AgentloadError
from agentload.importers.catalog import Conversion, conversion
from agentload.importers.parts.files import records
from agentload.importers.parts.notes import ImportNotes
from agentload.model.trace import Header, Session
from agentload.model.walk import contexts
from tests.importers.importing import KEY

_FOLDER = os.environ.get("AGENTLOAD_REAL_TRACES")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_FOLDER is None, reason="AGENTLOAD_REAL_TRACES names no folder"),
]


def made(pattern: str, **options: object) -> Conversion:
    paths = sorted(Path(_FOLDER or ".").rglob(pattern))
    if not paths:
        pytest.skip(f"no {pattern}")
    return conversion(paths, key=KEY, options=options)


def prompts(sessions: Iterator[Session]) -> list[list[int]]:
    return [
        [
            sum(segment.tokens for segment in context)
            for context in contexts(Header(name=""), session)
        ]
        for session in sessions
    ]


def test_kv_cache_testers_lengths_and_sharing_are_the_sources() -> None:
    found = made("kv-cache-tester*.jsonl*")
    lengths: list[list[int]] = []
    total = distinct = 0
    for _, trace in records(found.files[0], dict[str, Any], ImportNotes()):
        agents = [
            trace["requests"],
            *(
                request["requests"]
                for request in trace["requests"]
                if request["type"] == "subagent"
            ),
        ]
        calls = [
            [request for request in agent if request["type"] != "subagent"] for agent in agents
        ]
        lengths += [[request["in"] for request in agent] for agent in calls]
        # Ids name all up to their block within a trace, so that the
        # distinct ones are the blocks that have to be computed.
        total += sum(len(request["hash_ids"]) for agent in calls for request in agent)
        distinct += len(
            {block for agent in calls for request in agent for block in request["hash_ids"]}
        )
    assert prompts(iter(found)) == lengths
    tokens = sum(map(sum, lengths))
    assert (
        found.summary.ideal_source == found.summary.ideal_import == (total - distinct) * 64 / tokens
    )


def test_mooncakes_hit_ratio_is_the_papers() -> None:
    """64% of blocks by our count of the same file, 66%
    in the paper; of tokens, partial blocks left out, 65%.
    """
    found = made("synthetic_trace.jsonl*")
    sessions = list(found)
    total = distinct = 0
    for path in found.files:
        ids = [line["hash_ids"] for _, line in records(path, dict[str, Any], ImportNotes())]
        total, distinct = sum(map(len, ids)), len({block for request in ids for block in request})
    assert round(1 - distinct / total, 2) == 0.64
    assert (len(sessions), round(found.summary.ideal_import or 0, 3)) == (3_993, 0.650)
    assert found.summary.ideal_source == found.summary.ideal_import


def test_ragpulses_system_prompts_and_passages_are_a_third_of_its_prompts() -> None:
    found = made("0_trace.jsonl*")
    assert sum(len(session.turns) for session in found) == 7_106
    assert round(found.summary.ideal_import or 0, 2) == 0.31


def test_pis_calls_and_hits_are_those_of_its_usage() -> None:
    found = made("before-compaction.jsonl*")
    (only,) = found
    usages = [
        record["message"]["usage"]
        for _, record in records(found.files[0], dict[str, Any], ImportNotes())
        if "usage" in record.get("message", {})
    ]
    calls = [usage for usage in usages if usage["output"]]
    assert prompts(iter([only])) == [
        [usage["input"] + usage["cacheRead"] + usage["cacheWrite"] for usage in calls]
    ]
    hits = sum(usage["cacheRead"] for usage in calls) / sum(map(sum, prompts(iter([only]))))
    assert found.summary.recorded_hits == hits


def test_azures_rows_are_its_sessions() -> None:
    found = made("AzureLLMInferenceTrace_conv.csv*")
    lengths = sorted(length for session in prompts(iter(found)) for length in session)
    assert (len(lengths), lengths[len(lengths) // 2], lengths[len(lengths) * 9 // 10]) == (
        19_366,
        1_020,
        2_735,
    )


def test_no_prefix_of_a_public_trace_crashes(tmp_path: Path) -> None:
    for pattern in ("*.jsonl.zst", "*.csv.zst", "*.json.zst", "*.jsonl"):
        for path in sorted(Path(_FOLDER or ".").rglob(pattern)):
            content = path.read_bytes()
            for share in (0.1, 0.5, 0.9, 0.999):
                cut = tmp_path / path.name
                cut.write_bytes(content[: round(len(content) * share)])
                if path.name[0].isdigit():
                    continue
                with suppress(
                    AgentloadError
                ):  # nothing may be left of a packed file that was cut early
                    list(conversion([cut], key=KEY, tolerance="lenient"))


def test_summaries_are_data() -> None:
    found = made("round_trace.jsonl")
    list(found)
    assert msgspec.json.decode(msgspec.json.encode(found.summary))["calls"] == 19
