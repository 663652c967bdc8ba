"""Traces drawn from a server's metrics have its
lengths, its mean, its rate and its cached share.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from agentload.errors import TraceError
from agentload.exposition.scrape import HISTOGRAMS
from agentload.importers.catalog import conversion
from agentload.importers.parts.notes import ImportSummary
from agentload.model.trace import Session
from tests.importers.importing import KEY, assert_ordered, imported, lengths, written

PROMPT, OUTPUT = HISTOGRAMS["prompt_tokens"][0], HISTOGRAMS["output_tokens"][0]


def text(
    prompts: list[int],
    outputs: list[int],
    mean: tuple[float, float],
    *,
    cached: float,
    started: float = 1_000.0,
    engines: int = 1,
) -> str:
    """Write metrics as vLLM does: cumulative buckets by engine."""
    lines = ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {started}"]
    for name, counts, average in ((PROMPT, prompts, mean[0]), (OUTPUT, outputs, mean[1])):
        lines.append(f"# TYPE {name} histogram")
        for engine in range(engines):
            label = f'engine="{engine}",model_name="m"'
            seen = 0
            for bound, count in zip(("100.0", "1000.0", "10000.0", "+Inf"), counts, strict=True):
                seen += count
                lines.append(f'{name}_bucket{{{label},le="{bound}"}} {seen}')
            lines += [f"{name}_count{{{label}}} {seen}", f"{name}_sum{{{label}}} {average * seen}"]
    total = engines * mean[0] * sum(prompts)
    for name, value in (("queries", total), ("hits", total * cached)):
        lines += [
            f"# TYPE vllm:prefix_cache_{name}_total counter",
            f"vllm:prefix_cache_{name}_total{{}} {value}",
        ]
    return "\n".join(lines) + "\n"


CHAT = text([20, 50, 30, 0], [70, 30, 0, 0], (1_800.0, 120.0), cached=0.6)


def drawn(folder: Path, *texts: str, **options: object) -> tuple[list[Session], ImportSummary]:
    """Import texts that were written 200 s apart, the
    first of them 200 s behind the server's start.
    """
    paths = [written(folder / f"{number}.prom", each) for number, each in enumerate(texts)]
    for number, path in enumerate(paths):
        os.utime(path, 2 * (1_200.0 + 200.0 * number,))
    made = conversion(paths, key=KEY, options=options)
    sessions = list(made)
    assert_ordered(sessions)
    return sessions, made.summary


@pytest.mark.parametrize("sharing", ["sessions", "prefix", "none"])
def test_lengths_are_the_histograms_and_their_means(tmp_path: Path, sharing: str) -> None:
    sessions, _ = drawn(tmp_path, CHAT, sharing=sharing, requests=2_000)
    prompts = np.array([length for session in sessions for length in lengths(session)])
    outputs = np.array([turn.output for session in sessions for turn in session.turns])
    assert len(prompts) == 2_000
    # Buckets are met to the request, but for lengths that round to a bound.
    assert (
        np.abs(np.histogram(prompts, (0, 100.5, 1000.5, 10_000.5))[0] - [400, 1_000, 600]).max()
        <= 1
    )
    assert np.abs(np.histogram(outputs, (0, 100.5, 1000.5))[0] - [1_400, 600]).max() <= 1
    assert (abs(prompts.mean() / 1_800 - 1) < 0.01, abs(outputs.mean() / 120 - 1) < 0.01) == (
        True,
        True,
    )


@pytest.mark.parametrize("cached", [0.1, 0.6, 0.95])
@pytest.mark.parametrize("sharing", ["sessions", "prefix"])
def test_the_ideal_hit_ratio_is_the_cached_share(
    tmp_path: Path, cached: float, sharing: str
) -> None:
    _, summary = drawn(
        tmp_path,
        text([20, 50, 30, 0], [70, 30, 0, 0], (1_800.0, 120.0), cached=cached),
        sharing=sharing,
        requests=2_000,
    )
    assert summary.ideal_import is not None
    assert abs(summary.ideal_import - cached) < 0.02


def test_the_rate_is_the_requests_since_the_start_or_between_two_texts(tmp_path: Path) -> None:
    """100 requests in 200 s, and 200 more in the 200 s behind them."""
    sessions, _ = drawn(tmp_path / "one", CHAT, sharing="none", requests=2_000)
    assert abs((sessions[-1].start_s or 0) / (2_000 / 0.5) - 1) < 0.1
    later = text([60, 150, 90, 0], [210, 90, 0, 0], (1_800.0, 120.0), cached=0.6)
    sessions, _ = drawn(tmp_path / "two", CHAT, later, sharing="none", requests=2_000)
    assert abs((sessions[-1].start_s or 0) / (2_000 / 1.0) - 1) < 0.1
    sessions, _ = drawn(tmp_path / "given", CHAT, sharing="none", requests=2_000, rate_per_s=10)
    assert abs((sessions[-1].start_s or 0) / 200 - 1) < 0.1


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\n",
            "no request has ended yet",
        ),
        ("vllm: {{{\n", "not a metrics text"),
        (
            CHAT.replace("process_start_time_seconds 1000.0\n", ""),
            "no start time to measure a rate from",
        ),
    ],
)
def test_what_tells_nothing_is_refused(tmp_path: Path, content: str, what: str) -> None:
    with pytest.raises(TraceError, match=what):
        imported(tmp_path, {"m.prom": content}, "prometheus")
