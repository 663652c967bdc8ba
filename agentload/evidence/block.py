"""Write an arm's figures as one aligned block, named as `vllm bench serve` names them.

The clock of a call starts where the product's does: in open loop when it was due, so that a queue
in the client is part of TTFT, which a client that starts at sending leaves out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agentload.evidence.plays import plays_table, valid_plays
from agentload.evidence.summary import COUNTED
from agentload.evidence.view import run_view
from agentload.model.record import Record
from agentload.store.database import reading

WIDTH: Final = 50
QUANTITIES: Final = (
    ("ttft_ms", "Time to First Token", "TTFT"),
    ("tpot_ms", "Time per Output Token (excl. 1st token)", "TPOT"),
    ("itl_ms", "Inter-token Latency", "ITL"),
    ("e2el_ms", "End-to-end Latency", "E2EL"),
)
_THREE: Final = (
    "avg({0}) FILTER ({1}), quantile_cont({0}, 0.5) FILTER ({1}), quantile_cont({0}, 0.99) "
    "FILTER ({1})"
)
_CALLS: Final = f"""
SELECT count(*) FILTER (status = 'ok'), count(*) FILTER (status <> 'ok'),
    sum(prompt_tokens) FILTER (status = 'ok'), sum(output_tokens) FILTER (status = 'ok'),
    (SELECT sum(p.ended_ns - p.clock_ns) / 1e9 FROM plays p WHERE p.arm = $arm),
    {_THREE.format("ttft_ms", "status = 'ok'")}, {_THREE.format("tpot_ms", "status = 'ok'")},
    {_THREE.format("turn_ms", "status = 'ok'")}
FROM counted WHERE arm = $arm
"""  # noqa: S608  # our own names
_GAPS: Final = f"""
SELECT {_THREE.format("gap", "gap IS NOT NULL")}
FROM (
    SELECT unnest(gap_us) / 1e3 AS gap FROM streams JOIN counted USING (request_id, arm)
    WHERE streams.run_id = $run AND arm = $arm AND counted.status = 'ok'
)
"""  # noqa: S608  # our own names

Three = tuple[float | None, float | None, float | None]


class ServingFigures(Record):
    """An arm's figures over all calls that count; the triples are mean, median and P99 in ms."""

    arm: str
    successful: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    seconds: float
    ttft_ms: Three
    tpot_ms: Three
    itl_ms: Three
    e2el_ms: Three

    def lines(self) -> Iterator[str]:
        """Yield the block, each label at the left and each figure at the right."""
        seconds = self.seconds or float("nan")
        tokens = self.prompt_tokens + self.output_tokens
        yield f" {self.arm}: serving benchmark result ".center(WIDTH, "=")
        yield _line("Successful requests:", f"{self.successful:d}")
        yield _line("Failed requests:", f"{self.failed:d}")
        yield _line("Benchmark duration (s):", f"{self.seconds:.2f}")
        yield _line("Total input tokens:", f"{self.prompt_tokens:d}")
        yield _line("Total generated tokens:", f"{self.output_tokens:d}")
        yield _line("Request throughput (req/s):", f"{self.successful / seconds:.2f}")
        yield _line("Output token throughput (tok/s):", f"{self.output_tokens / seconds:.2f}")
        yield _line("Total token throughput (tok/s):", f"{tokens / seconds:.2f}")
        for field, title, short in QUANTITIES:
            yield title.center(WIDTH, "-")
            for name, value in zip(("Mean", "Median", "P99"), getattr(self, field), strict=True):
                yield _line(f"{name} {short} (ms):", "–" if value is None else f"{value:.2f}")
        yield "=" * WIDTH


def _line(label: str, figure: str) -> str:
    return f"{label}{figure:>{WIDTH - len(label)}}"


def serving_figures(database: Path, run_id: str) -> tuple[ServingFigures, ...]:
    """Read the figures of each arm of a run."""
    with reading(database) as connection:
        view = run_view(connection, run_id)
        found = []
        with plays_table(connection, valid_plays(view.plays)):
            for row in view.arms:
                given = {"run": run_id, "arm": row.arm}
                calls = connection.execute(COUNTED + _CALLS, given).fetchall()[0]
                gaps = connection.execute(COUNTED + _GAPS, given).fetchall()[0]
                ok, failed, prompt, output, seconds = calls[:5]
                found.append(
                    ServingFigures(
                        arm=row.arm,
                        successful=ok,
                        failed=failed,
                        prompt_tokens=prompt or 0,
                        output_tokens=output or 0,
                        seconds=seconds or 0.0,
                        ttft_ms=calls[5:8],
                        tpot_ms=calls[8:11],
                        itl_ms=gaps,
                        e2el_ms=calls[11:14],
                    )
                )
    return tuple(found)
