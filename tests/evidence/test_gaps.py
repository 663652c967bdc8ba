from pathlib import Path

import numpy as np

from agentload.evidence.gaps import Gaps, gaps
from agentload.model.stamps import stamps
from tests.evidence.runs import MS, block, call, stored


def test_chunk_gaps_and_token_latencies_are_told_apart(tmp_path: Path) -> None:
    # Ten chunks of four tokens, 80 ms apart: a reader waits 80 ms, a token takes 20.
    bunched = call("bf16", 0, 1, chunks=stamps([k * 80 * MS for k in range(10)], [4] * 10))
    single = call("fp8", 0, 201, chunks=stamps([k * 20 * MS for k in range(40)], [1] * 40))
    failed = call("fp8", 0, 202, "s2", status="truncated", chunks=stamps([0, 900 * MS], [1, 1]))
    with stored(
        tmp_path, [block("bf16", 0, 0), bunched, block("fp8", 0, 200), single, failed]
    ) as connection:
        assert gaps(connection, "r1") == (
            Gaps(
                workload="rag",
                arm="bf16",
                chunks=9,
                chunk_ms=(80.0, 80.0, 80.0),
                token_ms=(20.0, 20.0, 20.0),
            ),
            Gaps(
                workload="rag",
                arm="fp8",
                chunks=39,
                chunk_ms=(20.0, 20.0, 20.0),
                token_ms=(20.0, 20.0, 20.0),
            ),
        )


def test_quantiles_weigh_chunks_by_one_and_token_latencies_by_their_tokens(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    gap_us, tokens = rng.integers(1_000, 90_000, 400), rng.integers(1, 9, 400)
    stream = stamps([0, *np.cumsum(gap_us * 1_000).tolist()], [1, *tokens.tolist()])
    with stored(tmp_path, [block("bf16", 0, 0), call("bf16", 0, 1, chunks=stream)]) as connection:
        (found,) = gaps(connection, "r1")

    def quantiles(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, ...]:
        return tuple(np.quantile(values, [0.5, 0.95, 0.99], method="inverted_cdf").tolist())

    assert found == Gaps(
        workload="rag",
        arm="bf16",
        chunks=400,
        chunk_ms=quantiles(gap_us / 1e3),
        token_ms=quantiles(np.repeat(gap_us / tokens / 1e3, tokens)),
    )
