"""Read a vLLM server's log: what the server decided at its start, and its periodic lines.

The periodic lines of a growing log become samples, for servers whose /metrics cannot be read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agentload.documents import python_value
from agentload.model.record import Record

_POOL: Final = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY: Final = re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.,]+)x")
# `Using FLASH_ATTN attention backend out of potential backends:
# [...]`; for a forced backend, CUDA prints the enum's member, CPU its name.
_BACKEND: Final = re.compile(
    r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) (?:attention )?backend\b"
)
_FLASH: Final = re.compile(r"Using FlashAttention version (\d+)")
_DTYPE: Final = re.compile(r"Using (\S+) data type to store kv cache")
_BLOCK: Final = re.compile(r"Setting attention block size to (\d+) tokens")
_VERSION: Final = re.compile(r"\bversion (\d+\.\d+\S*)|V1 LLM engine \(v(\d+\.\d+[^)]*)\)")
_FACTS: Final[tuple[tuple[str, re.Pattern[str], type[Any]], ...]] = (
    ("version", _VERSION, str),
    ("attention_backend", _BACKEND, str),
    ("flash_version", _FLASH, int),
    ("kv_cache_dtype", _DTYPE, str),
    ("block_tokens", _BLOCK, int),
)
# `Initializing a V1 LLM engine (v0.32.0) with config:
# model='M', …`: settings of /server_info, by our names.
_CONFIG: Final = re.compile(r"LLM engine \(v[^)]*\) with config: (.*)")
# `non-default args: {'model': 'M', 'max_model_len': 8192, …}`: all arguments
# of the server; one value that is no literal makes the whole unreadable.
_ARGUMENTS: Final = re.compile(r"non-default args: (\{.*\})")
_SETTING: Final = re.compile(r"\b(\w+)=('[^']*'|[\w.]+)")
_SETTINGS: Final = {
    "model": "weights",
    "quantization": "quantization",
    "enforce_eager": "eager",
    "tensor_parallel_size": "tensor_parallel",
    "data_parallel_size": "data_parallel",
    "enable_chunked_prefill": "chunked_prefill",
    "kv_cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "prefix_caching",
}
# What drafts is written in fields of its own, of which `model` is also the name of another.
_DRAFTS: Final = re.compile(
    r"SpeculativeConfig\(method=(?P<speculative>'[^']*'), model=(?P<draft_model>None|'[^']*'), "
    r"num_spec_tokens=(?P<drafts>\d+)\)"
)
_WORK: Final = re.compile(
    r"(?:Engine (\d+): )?Avg prompt throughput: ([\d.]+) tokens/s, Avg generation "
    r"throughput: ([\d.]+) tokens/s, "
    # Numbers of deferred and of fetched requests may stand between the two.
    r"Running: (\d+) reqs, Waiting: (\d+) reqs,(?:.*? Preemptions: (\d+),)?.*?"
    r"KV cache usage: ([\d.]+)%(?:, Prefix cache hit rate: ([\d.]+)%)?"
)
# `Compiling a graph for compile range (1, 2048) takes 14.78 s`,
# or `Directly load the compiled graph(s) for … from the cache`.
_COMPILED: Final = {"Directly load the compiled graph": "hit", "Compiling a graph for": "missed"}
_PROCESS: Final = re.compile(r"^\((\w+)")
_WARNINGS: Final = (
    "uncalibrated q_scale",
    "Using KV cache scaling factor 1.0",
    "Checkpoint does not provide a q scaling factor",
    "precluded higher-priority backend",
    "may cause accuracy drop without a proper scaling factor",
)
_PREFIX: Final = re.compile(r"^(?:\([^)]*\) )?(?:[A-Z]+ [\d-]+ [\d:]+ )?(?:\[[^\]]*\] )?")
MOST_BYTES: Final = 1 << 20
"""Most bytes read at one look, the latest ones.

Periodic lines come every ten seconds, so a log that grows faster holds few of them.
"""
ADDED: Final = ("running", "waiting", "prompt_tokens_per_s", "output_tokens_per_s")
"""Figures that are summed over a server's engines, each of which writes its own lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """What a server said at its start; None where it said nothing."""

    version: str | None = None
    pool_tokens: int | None = None
    """Sum over all engines."""
    max_concurrency: float | None = None
    """Sum over all engines."""
    attention_backend: str | None = None
    flash_version: int | None = None
    kv_cache_dtype: str | None = None
    block_tokens: int | None = None
    arguments: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Arguments of its command line by vLLM's names; API keys may be among them."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the engine, by the names of `identity.settings`.

    `kv_cache_dtype` and `prefix_caching` are added to those.
    """
    compile_cache: str | None = None
    """`hit` if all graphs that torch compiles were in its cache, `missed` if one was not."""
    warnings: tuple[str, ...] = field(default=())
    """Lines about scales and kernels that matter for accuracy or the comparison, each once."""


class PeriodicLine(Record):
    """One periodic line of a server's log."""

    prompt_tokens_per_s: float
    output_tokens_per_s: float
    running: int
    waiting: int
    kv_usage: float
    """Share of the pool that is in use."""
    engine: str | None = None
    """Engine that wrote the line, where the line names one."""
    preemptions: int | None = None
    """Count since the line before.

    None if the line has no count: none happened, or this version does not report them.
    """
    prefix_hit_rate: float | None = None


def start_up(lines: Iterable[str]) -> StartUp:
    """Read what a server decided at its last start; a later line replaces an earlier one."""
    reading = _StartUpLines()
    for line in lines:
        reading.take(line)
    return reading.start_up()


class _StartUpLines:
    """Gather what the lines of a server say about its start."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}
        self._pools: dict[str, int] = {}
        self._concurrent: dict[str, float] = {}
        self._compile_cache: str | None = None
        self._arguments: Mapping[str, object] = {}
        self._settings: dict[str, str] = {}
        self._warnings: dict[str, None] = {}

    def take(self, line: str) -> None:
        """Keep what a line says."""
        self._take_numbers(line)
        for name, pattern, kind in _FACTS:
            match = pattern.search(line)
            if match:
                text = next(group for group in match.groups() if group is not None)
                self._facts[name] = int(_plain(text)) if kind is int else text
        match = _CONFIG.search(line)
        if match:
            self._settings = dict(_settings(match[1]))
        match = _ARGUMENTS.search(line)
        if match:
            self._arguments = _literal(match[1])
        for mark, state in _COMPILED.items():
            # One missed graph of several is enough.
            if mark in line and self._compile_cache != "missed":
                self._compile_cache = state
        if any(mark in line for mark in _WARNINGS):
            self._warnings[_PREFIX.sub("", line.strip())] = None

    def _take_numbers(self, line: str) -> None:
        """Keep the size of an engine's pool; each engine logs its own."""
        version = _VERSION.search(line)
        # The server logs its version first, so this line begins another start.
        if version is not None and version[1]:
            self._pools.clear()
            self._concurrent.clear()
            self._compile_cache = None
        process = match[1] if (match := _PROCESS.search(line)) else ""
        match = _POOL.search(line)
        if match:
            self._pools[process] = int(_plain(match[1]))
        match = _CONCURRENCY.search(line)
        if match:
            self._concurrent[process] = float(_plain(match[1]))

    def start_up(self) -> StartUp:
        """Return what the lines so far say."""
        return StartUp(
            **self._facts,
            pool_tokens=sum(self._pools.values()) or None,
            max_concurrency=sum(self._concurrent.values()) or None,
            arguments=self._arguments,
            settings=self._settings,
            compile_cache=self._compile_cache,
            warnings=tuple(self._warnings),
        )


def _settings(config: str) -> Iterator[tuple[str, str]]:
    """Yield the settings that a configuration gives, by our names."""
    drafts = _DRAFTS.search(config)
    found = list({} if drafts is None else drafts.groupdict().items())
    for name, quoted in _SETTING.findall(_DRAFTS.sub("", config)):
        if name in _SETTINGS:
            found.append((_SETTINGS[name], quoted))
    yield from ((name, text.strip("'")) for name, text in found if text != "None")


def work(lines: Iterable[str]) -> Iterator[PeriodicLine]:
    """Yield the periodic lines among *lines*, in their order."""
    for line in lines:
        match = _WORK.search(line)
        if match:
            engine, prompt, output, running, waiting, preemptions, usage, hits = match.groups()
            yield PeriodicLine(
                engine=engine,
                prompt_tokens_per_s=float(prompt),
                output_tokens_per_s=float(output),
                running=int(running),
                waiting=int(waiting),
                kv_usage=float(usage) / 100,
                preemptions=None if preemptions is None else int(preemptions),
                prefix_hit_rate=None if hits is None else float(hits) / 100,
            )


def _literal(text: str) -> Mapping[str, object]:
    found = python_value(text)
    return found if isinstance(found, dict) else {}


def _plain(text: str) -> str:
    return text.replace(",", "")[:18]  # no server's count has more digits


class LogTail:
    """Follow a log: each look reads what was written since the last, none what came before."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._rest = b""
        self._preemptions = 0
        self._engines: dict[str | None, PeriodicLine] = {}
        try:
            self._offset = self._path.stat().st_size
        except OSError:
            self._offset = 0

    def values(self) -> Iterator[tuple[str, float]]:
        """Yield the figures of the lines since the last look, by the names of samples.

        Yields nothing without new lines, or if the file cannot be read.
        """
        lines = tuple(work(self._new_lines()))
        for each in lines:
            # A line counts since the line before, a sample since the first look.
            self._preemptions += each.preemptions or 0
            self._engines[each.engine] = each
        if not lines:
            return
        engines = tuple(self._engines.values())
        yield "preemptions", float(self._preemptions)
        for name in ADDED:
            yield name, float(sum(getattr(each, name) for each in engines))
        yield "kv_usage", max(each.kv_usage for each in engines)
        rates = [each.prefix_hit_rate for each in engines]
        # With several engines it is not known how many tokens each rate is a share of.
        if len(rates) == 1 and rates[0] is not None:
            yield "prefix_hit_rate", rates[0]

    def _new_lines(self) -> list[str]:
        try:
            size = self._path.stat().st_size
            if size < self._offset:  # rotated, or overwritten by a restarted server
                self._offset = 0
                self._rest = b""
                self._engines.clear()
            with self._path.open("rb") as file:
                file.seek(max(self._offset, size - MOST_BYTES))
                found = file.read(MOST_BYTES)
                self._offset = file.tell()
        except OSError:
            return []
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [line.decode(errors="replace") for line in lines]
