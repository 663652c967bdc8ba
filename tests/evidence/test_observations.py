from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from advisor.evidence import Floats
from agentload.evidence.observations import batch_means, busy_s, sweep_and_workloads, sweeps
from agentload.model.apart import CONTEXT_SWEEP

FRAME = pl.DataFrame(
    [
        (CONTEXT_SWEEP, "bf16", "ok", 0, 5.0, 100.0, 1000, 900, 0, 20),
        (CONTEXT_SWEEP, "fp8", "ok", 0, 4.0, 90.0, 1000, 900, None, 20),
        (CONTEXT_SWEEP, "bf16", "ok", 1, 6.0, 110.0, None, 900, 128, 100),
        (CONTEXT_SWEEP, "bf16", "http_error", 2, None, None, None, 900, None, None),
        ("other", "bf16", "ok", 1, 9.0, 1.0, 5, 5, 0, 2),
    ],
    schema=[
        "workload",
        "arm",
        "status",
        "pair",
        "tpot_ms",
        "ttft_ms",
        "prompt_tokens",
        "context_tokens",
        "cached_tokens",
        "tokens",
    ],
    orient="row",
)


def test_a_sweep_has_one_row_for_each_call_that_went_well_at_its_mean_length() -> None:
    bf16, fp8 = sweeps(sweep_and_workloads(FRAME)[0], ["bf16", "fp8"])
    assert (bf16.arm, bf16.pair.tolist(), bf16.users.tolist(), bf16.context_tokens.tolist()) == (
        "bf16",
        [0, 1],
        [1, 1],
        [1010.0, 950.0],
    )
    assert bf16.ttft_ms is not None
    assert (bf16.itl_ms.tolist(), bf16.ttft_ms.tolist()) == ([5.0, 6.0], [100.0, 110.0])
    assert bf16.prompt_tokens is not None
    assert bf16.prompt_tokens.tolist() == [1000.0, 900.0]
    assert bf16.computed_tokens is not None
    assert bf16.computed_tokens.tolist() == [1000.0, 900.0 - 128.0]
    assert fp8.computed_tokens is None  # a server that does not tell its hits


def test_a_sweep_beside_other_workloads_is_none_of_them_and_one_alone_is_the_workload() -> None:
    swept, others = sweep_and_workloads(FRAME)
    assert (swept["workload"].to_list(), others["workload"].to_list()) == (
        [CONTEXT_SWEEP] * 4,
        ["other"],
    )
    assert sweep_and_workloads(swept)[1].equals(swept)
    assert sweeps(sweep_and_workloads(others)[0], ["bf16", "fp8"]) == ()


SPAN = st.tuples(
    st.integers(0, 400), st.integers(0, 120), st.integers(0, 50_000), st.integers(1, 2_000)
)
STEPS = 3600


def columns(spans: list[tuple[int, int, int, int]]) -> tuple[Floats, Floats, Floats, Floats]:
    table = np.array(spans, dtype=np.float64)
    return table[:, 0] / 8, (table[:, 0] + table[:, 1]) / 8, table[:, 2], table[:, 3]


def brute(
    at: Floats, first: Floats, last: Floats, prompt: Floats, output: Floats
) -> tuple[Floats, Floats]:
    """Add up at each instant, call by call."""
    kv, count = np.zeros(at.size), np.zeros(at.size)
    for start, end, tokens, growth in zip(first, last, prompt, output, strict=True):
        inside = (start <= at) & (at < end)
        kv += np.where(inside, tokens + growth * (at - start) / max(end - start, 1e-9), 0)
        count += inside
    return kv, count


@given(st.lists(SPAN, min_size=1, max_size=12))
def test_a_calls_batch_is_the_mean_over_its_own_decoding_of_all_that_decodes(
    spans: list[tuple[int, int, int, int]],
) -> None:
    first, last, prompt, output = columns(spans)
    kv_tokens, sequences = batch_means(first, last, prompt, output)
    for i in range(len(spans)):
        if last[i] <= first[i]:
            assert np.isnan(kv_tokens[i])
            assert np.isnan(sequences[i])
            continue
        at = first[i] + (np.arange(STEPS) + 0.5) / STEPS * (last[i] - first[i])
        kv, count = brute(at, first, last, prompt, output)
        np.testing.assert_allclose(kv_tokens[i], kv.mean(), rtol=1e-2)
        np.testing.assert_allclose(sequences[i], count.mean(), rtol=1e-2)


def test_a_call_alone_sees_its_prompt_and_half_its_answer() -> None:
    found = batch_means(np.array([1e5]), np.array([1e5 + 2]), np.array([1000.0]), np.array([100.0]))
    np.testing.assert_allclose(found, ([1050.0], [1.0]), rtol=1e-9)


def test_calls_without_an_answer_take_no_part() -> None:
    nan = np.nan
    kv_tokens, _ = batch_means(
        np.array([0.0, nan]), np.array([1.0, 0.5]), np.array([10.0, 99.0]), np.array([2.0, 5.0])
    )
    np.testing.assert_array_equal(kv_tokens, [11.0, nan])


@given(st.lists(SPAN, min_size=1, max_size=12))
def test_busy_time_is_shared_out_exactly(spans: list[tuple[int, int, int, int]]) -> None:
    sent, done, _, _ = columns(spans)
    found = busy_s(sent, done)
    edges = np.unique(np.concatenate([sent, done]))
    middles = (edges[1:] + edges[:-1]) / 2
    held = ((sent[:, None] < middles) & (middles < done[:, None])).any(axis=0)
    np.testing.assert_allclose(found.sum(), np.diff(edges)[held].sum(), atol=1e-9)
    assert (found <= done - sent + 1e-9).all()
    assert (found >= 0).all()


def test_two_equal_calls_share_their_time_in_halves() -> None:
    np.testing.assert_allclose(
        busy_s(np.array([0.0, 1.0, np.nan]), np.array([2.0, 3.0, 4.0])), [1.5, 1.5, 0.0]
    )
