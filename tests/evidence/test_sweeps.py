from __future__ import annotations

import polars as pl

from agentload.evidence.observations import parted, sweeps
from agentload.model.apart import CONTEXT_SWEEP

FRAME = pl.DataFrame(
    [
        (CONTEXT_SWEEP, "bf16", "ok", 0, 5.0, 100.0, 1000, 900, 0, 20),
        (CONTEXT_SWEEP, "fp8", "ok", 0, 4.0, 90.0, 1000, 900, None, 20),
        (CONTEXT_SWEEP, "bf16", "ok", 1, 6.0, 110.0, None, 900, 128, 100),
        (CONTEXT_SWEEP, "bf16", "http_error", 2, None, None, None, 900, None, None),
        ("other", "bf16", "ok", 1, 9.0, 1.0, 5, 5, 0, 2),
    ],
    schema=["workload", "arm", "status", "pair", "tpot_ms", "ttft_ms", "prompt_tokens", "context_tokens", "cached_tokens", "tokens"],
    orient="row",
)


def test_a_sweep_has_one_row_for_each_call_that_went_well_at_its_mean_length() -> None:
    bf16, fp8 = sweeps(parted(FRAME)[0], ["bf16", "fp8"])
    assert (bf16.arm, bf16.pair.tolist(), bf16.users.tolist(), bf16.context_tokens.tolist()) == ("bf16", [0, 1], [1, 1], [1010.0, 950.0])
    assert bf16.ttft_ms is not None
    assert (bf16.itl_ms.tolist(), bf16.ttft_ms.tolist()) == ([5.0, 6.0], [100.0, 110.0])
    assert bf16.prompt_tokens is not None
    assert bf16.prompt_tokens.tolist() == [1000.0, 900.0]
    assert bf16.computed_tokens is not None
    assert bf16.computed_tokens.tolist() == [1000.0, 900.0 - 128.0]
    assert fp8.computed_tokens is None  # a server that does not tell its hits


def test_a_sweep_beside_other_workloads_is_none_of_them_and_one_alone_is_the_workload() -> None:
    swept, others = parted(FRAME)
    assert (swept["workload"].to_list(), others["workload"].to_list()) == ([CONTEXT_SWEEP] * 4, ["other"])
    assert parted(swept)[1].equals(swept)
    assert sweeps(parted(others)[0], ["bf16", "fp8"]) == ()
