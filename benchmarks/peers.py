"""Other load generators, each from an installation of its
own: what they say of the same load against the same server.

Each is asked for so many streams with the options its users would take, and for the
most detail that it exports. What it does not export is None. Prompts come from its own
generator, by a tokenizer of some words that is written for it: nothing is downloaded.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

MS, SECOND = 1e6, 1e9
PROMPT_TOKENS = 60
LONGEST_S = 600


class PeerError(Exception):
    """A peer did not play to its end."""


class Said(msgspec.Struct):
    """What a peer says of one call.

    Calls without an id are told apart by the order of their starts.
    """

    id: str | None
    started_s: float
    ttft_ns: float
    gaps_ns: list[float] | None
    """Between chunks with tokens."""
    mean_gap_ns: float | None = None


class Wanted(msgspec.Struct):
    """What a peer is to play."""

    url: str
    """Base URL without its /v1."""
    streams: int
    calls: int
    tokens: int
    folder: Path


def vllm(program: str, wanted: Wanted) -> list[Said]:
    """`vllm bench serve`: its first gap is that between
    the role and the first token, which came in one write.
    """
    result = "result.json"
    _run(
        [
            program,
            "bench",
            "serve",
            "--backend",
            "openai-chat",
            "--endpoint",
            "/v1/chat/completions",
            "--request-id-prefix",
            "peer-",
        ],
        wanted,
        {
            "base-url": wanted.url,
            "model": "truth",
            "tokenizer": _tokenizer(wanted.folder),
            "dataset-name": "random",
            "random-input-len": PROMPT_TOKENS,
            "random-output-len": wanted.tokens,
            "num-prompts": wanted.calls,
            "max-concurrency": wanted.streams,
            "result-dir": wanted.folder,
            "result-filename": result,
        },
        flags=("ignore-eos", "save-result", "save-detailed", "disable-tqdm"),
    )
    found = json.loads((wanted.folder / result).read_text())
    calls = zip(found["start_times"], found["ttfts"], found["itls"], found["errors"], strict=True)
    return [
        Said(
            id=f"peer-{number}",
            started_s=started_s,
            ttft_ns=ttft_s * SECOND,
            gaps_ns=[gap_s * SECOND for gap_s in itls[1:]],
        )
        for number, (started_s, ttft_s, itls, error) in enumerate(calls)
        if not error
    ]


def aiperf(program: str, wanted: Wanted) -> list[Said]:
    """`aiperf profile`."""
    _run(
        [
            program,
            "profile",
            "--endpoint-type",
            "chat",
            "--ui",
            "none",
            "--export-level",
            "records",
            "--extra-inputs",
            "ignore_eos:true",
        ],
        wanted,
        {
            "url": wanted.url,
            "model": "truth",
            "tokenizer": _tokenizer(wanted.folder),
            "isl": PROMPT_TOKENS,
            "osl": wanted.tokens,
            "request-count": wanted.calls,
            "concurrency": wanted.streams,
            "artifact-dir": wanted.folder / "artifacts",  # which it empties first
        },
        flags=("streaming", "use-server-token-count"),
    )
    lines = (wanted.folder / "artifacts" / "profile_export.jsonl").read_text().splitlines()
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [
        Said(
            id=record["metadata"]["x_request_id"],
            started_s=record["metadata"]["request_start_ns"] / SECOND,
            ttft_ns=record["metrics"]["time_to_first_token"]["value"] * MS,
            gaps_ns=[gap * MS for gap in record["metrics"]["inter_chunk_latency"]["value"]],
        )
        for record in records
        if record.get("error") is None
    ]


def guidellm(program: str, wanted: Wanted) -> list[Said]:
    """`guidellm run`: of the gaps between tokens it exports each call's mean alone."""
    result = wanted.folder / "result.json"
    _run(
        [program, "run"],
        wanted,
        {
            "backend": f"kind=openai_http,target={wanted.url},model=truth",
            "profile": f"kind=concurrent,streams={wanted.streams}",
            "constraint": f"kind=max_requests,count={wanted.calls}",
            "tokenizer": f"kind=hf_auto,model={_tokenizer(wanted.folder)}",
            "data": f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},"
            f"output_tokens={wanted.tokens}",
            "output": f"kind=json,path={result}",
        },
        flags=("disable-console",),
    )
    (benchmark,) = json.loads(result.read_text())["benchmarks"]
    return [
        Said(
            id=None,
            started_s=call["request_start_time"],
            ttft_ns=call["time_to_first_token_ms"] * MS,
            gaps_ns=None,
            mean_gap_ns=call["inter_token_latency_ms"] * MS,
        )
        for call in benchmark["requests"]["successful"]
    ]


PEERS: dict[str, Callable[[str, Wanted], list[Said]]] = {
    "vllm": vllm,
    "aiperf": aiperf,
    "guidellm": guidellm,
}


def _run(
    command: list[str], wanted: Wanted, options: dict[str, object], *, flags: tuple[str, ...]
) -> None:
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    quiet = {"VLLM_NO_USAGE_STATS": "1"}
    log = wanted.folder / "log.txt"
    with log.open("wb") as output:
        done = subprocess.run(
            [*command, *given, *(f"--{flag}" for flag in flags)],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=wanted.folder,
            env=os.environ | quiet,
            timeout=LONGEST_S,
            check=False,
        )
    if done.returncode:
        raise PeerError(
            f"{command[0]} ended with code {done.returncode}:\n{log.read_text()[-2000:]}"
        )


def _tokenizer(folder: Path) -> Path:
    """Write a tokenizer whose words are tokens, as a model repository has it."""
    path = folder / "tokenizer"
    path.mkdir(exist_ok=True)
    special = ["[UNK]", "[PAD]", "</s>"]
    added = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    words = [*special, *(f"word{number}" for number in range(1000))]
    described = {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": word, **added} for number, word in enumerate(special)
        ],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": "[UNK]",
        },
    }
    empty = {
        "truncation": None,
        "padding": None,
        "normalizer": None,
        "post_processor": None,
        "decoder": None,
    }
    (path / "tokenizer.json").write_text(json.dumps(described | empty))
    names = {
        "unk_token": "[UNK]",
        "pad_token": "[PAD]",
        "eos_token": "</s>",
        "model_max_length": 100_000,
    }
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (path / "tokenizer_config.json").write_text(
        json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template} | names
        )
    )
    return path
