"""Read the engines' gauges at an interval of virtual time, as telemetry reads a server's /metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentload.emulator.calls import Gauges
from agentload.emulator.engine import Engine
from agentload.model.rows import SampleRow


def values(gauges: Gauges) -> dict[str, float]:
    """Name the gauges as `exposition` names those of a server."""
    return {
        "running": gauges.running,
        "waiting": gauges.waiting,
        "kv_usage": gauges.kv_usage,
        "preemptions": gauges.preemptions,
        "prefix_queries": gauges.prefix_queries,
        "prefix_hits": gauges.prefix_hits,
        "prompt_tokens": gauges.prompt_tokens,
        "cached_tokens": gauges.prompt_tokens_cached,
        "computed_tokens_sum": gauges.prompt_tokens_computed,
        "output_tokens": gauges.generation_tokens,
    }


class Sampler:
    """Take a sample of every engine each `every_ns`, and whenever it is asked to."""

    def __init__(self, *, run_id: str, leg: int, every_ns: int) -> None:
        self._run_id = run_id
        self._leg = leg
        self._every_ns = every_ns
        self.next_ns = 0
        """When the next sample is due."""

    def take(self, now_ns: int, engines: Mapping[str, Engine]) -> Iterator[SampleRow]:
        """Sample, and say when the next one is due."""
        self.next_ns = now_ns - now_ns % self._every_ns + self._every_ns
        return self.now(now_ns, engines)

    def now(self, now_ns: int, engines: Mapping[str, Engine]) -> Iterator[SampleRow]:
        """Sample now."""
        for arm, engine in engines.items():
            for name, value in values(engine.gauges()).items():
                yield SampleRow(run_id=self._run_id, leg=self._leg, arm=arm, at_ns=now_ns, name=name, value=float(value))
